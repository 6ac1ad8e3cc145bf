# cmake -DOUT=file.cpp -DMODELS=models.yaml -P embed_models.cmake: the file as C++ text.
file(READ ${MODELS} models)
file(WRITE ${OUT}.tmp "// Generated from engines/models.yaml.\n#include \"daemon/store/names.h\"\nnamespace rumbo {\nstd::string_view BuiltInModelNamesYaml() { return R\"rumbo(${models})rumbo\"; }\n}  // namespace rumbo\n")
configure_file(${OUT}.tmp ${OUT} COPYONLY)
