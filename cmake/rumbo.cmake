# One target per folder, explicit sources, declared dependencies.
#
#   rumbo_library(NAME SOURCES a.cpp b.cpp DEPS x y)      target rumbo_NAME
#   rumbo_binary(NAME SOURCES main.cpp DEPS x y)          target NAME, in bin/
#   rumbo_test(NAME SOURCES a_test.cpp DEPS x y [LABELS slow] [TIMEOUT s])
#
# Warnings are errors for our own code only; dependencies are included as system headers.

# -Wrestrict is off: g++ 12 cries wolf at std::string's own code when it optimises (GCC bug 105329).
set(RUMBO_WARNINGS -Wall -Wextra -Werror -Wno-missing-field-initializers -Wno-tsan -Wno-restrict -Wno-stringop-overflow)

add_library(rumbo_flags INTERFACE)
target_compile_options(rumbo_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:${RUMBO_WARNINGS}>)
target_include_directories(rumbo_flags INTERFACE $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>)
if(RUMBO_SANITIZE)
  # GCC's UBSan instrumentation makes -Wmaybe-uninitialized and -Wstringop-* cry wolf.
  add_compile_options(-fsanitize=${RUMBO_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all
                      -Wno-maybe-uninitialized -Wno-stringop-overflow -Wno-stringop-overread -Wno-restrict -Wno-stringop-overflow)
  add_link_options(-fsanitize=${RUMBO_SANITIZE})
endif()

function(rumbo_library name)
  cmake_parse_arguments(A "" "" "SOURCES;DEPS" ${ARGN})
  if(A_SOURCES)
    add_library(rumbo_${name} STATIC ${A_SOURCES})
    target_link_libraries(rumbo_${name} PRIVATE $<BUILD_INTERFACE:rumbo_flags> PUBLIC ${A_DEPS})
    target_include_directories(rumbo_${name} PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>)
  else()
    add_library(rumbo_${name} INTERFACE)
    target_link_libraries(rumbo_${name} INTERFACE ${A_DEPS})
    target_include_directories(rumbo_${name} INTERFACE $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>)
  endif()
endfunction()

function(rumbo_binary name)
  cmake_parse_arguments(A "" "" "SOURCES;DEPS" ${ARGN})
  add_executable(${name} ${A_SOURCES})
  target_link_libraries(${name} PRIVATE rumbo_flags ${A_DEPS})
endfunction()

function(rumbo_test name)
  cmake_parse_arguments(A "" "TIMEOUT" "SOURCES;DEPS;LABELS" ${ARGN})
  add_executable(${name} ${A_SOURCES})
  target_link_libraries(${name} PRIVATE rumbo_flags ${A_DEPS} GTest::gtest GTest::gtest_main GTest::gmock)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  target_compile_definitions(${name} PRIVATE RUMBO_SOURCE_DIR="${PROJECT_SOURCE_DIR}" RUMBO_BIN_DIR="${CMAKE_BINARY_DIR}/bin")
  add_test(NAME ${name} COMMAND ${name} WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
  if(NOT A_TIMEOUT)
    set(A_TIMEOUT 120)
  endif()
  set_tests_properties(${name} PROPERTIES TIMEOUT ${A_TIMEOUT} LABELS "${A_LABELS}")
endfunction()
