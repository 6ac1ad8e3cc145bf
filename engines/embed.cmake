# cmake -DOUT=file.cpp -DCATALOG=catalog.yaml -DSPEED=speed.yaml -P embed.cmake: the two files as C++ text.
file(READ ${CATALOG} catalog)
file(READ ${SPEED} speed)
file(WRITE ${OUT}.tmp "// Generated from engines/catalog.yaml and engines/speed.yaml.\n#include \"engines/api/catalog.h\"\nnamespace rumbo {\nstd::string_view BuiltInCatalogYaml() { return R\"rumbo(${catalog})rumbo\"; }\nstd::string_view BuiltInSpeedYaml() { return R\"rumbo(${speed})rumbo\"; }\n}  // namespace rumbo\n")
configure_file(${OUT}.tmp ${OUT} COPYONLY)
