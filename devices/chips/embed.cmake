# cmake -DIN=file -DOUT=file.cpp -DNAME=symbol -P embed.cmake: the text of IN as `const char NAME[]` in namespace rumbo.
file(READ "${IN}" bytes HEX)
string(REGEX REPLACE "(................................)" "\\1\n" bytes "${bytes}")
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "'\\\\x\\1'," bytes "${bytes}")
file(WRITE "${OUT}" "namespace rumbo {\nextern const char ${NAME}[];\nconst char ${NAME}[] = {\n${bytes}0};\n}\n")
