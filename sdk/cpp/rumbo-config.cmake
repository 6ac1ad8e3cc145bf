# find_package(rumbo) gives rumbo::sdk.
include(CMakeFindDependencyMacro)
find_dependency(Threads)
find_dependency(absl CONFIG)
find_dependency(Protobuf)
find_dependency(gRPC CONFIG)
find_dependency(Boost 1.81 COMPONENTS json)
include("${CMAKE_CURRENT_LIST_DIR}/rumbo-targets.cmake")
