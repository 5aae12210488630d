# muster_library(NAME SRCS ... DEPS ... [PRIVATE_DEPS ...])
#   A static library named NAME; with no .cc among SRCS it is an interface library.
# muster_program(NAME SRCS ... DEPS ...)
#   An executable in build/<preset>/bin.
# muster_test(NAME SRCS ... DEPS ... [ARGS ...] [LABELS ...] [TIMEOUT seconds])
#   A GoogleTest program run by ctest as one test. Linked with gtest_main and gmock unless NO_MAIN.
#   Its folder below tests/ is a label, and names a target: tests_collectives_engine builds all tests of
#   collectives/engine.

# The folders that speak gRPC are named for it.
function(muster_precompile name)
  if(CMAKE_CURRENT_SOURCE_DIR MATCHES "/(rpc|grpc)$")
    target_precompile_headers(${name} REUSE_FROM muster_grpc_pch)
  else()
    target_precompile_headers(${name} REUSE_FROM muster_pch)
  endif()
endfunction()

function(muster_library name)
  cmake_parse_arguments(ARG "" "" "SRCS;DEPS;PRIVATE_DEPS" ${ARGN})
  set(compiled ${ARG_SRCS})
  list(FILTER compiled INCLUDE REGEX "\\.(cc|pb\\.cc)$")
  if(compiled)
    add_library(${name} STATIC ${ARG_SRCS})
    target_link_libraries(${name} PUBLIC muster_flags ${ARG_DEPS} PRIVATE ${ARG_PRIVATE_DEPS})
    muster_precompile(${name})
  else()
    add_library(${name} INTERFACE)
    target_link_libraries(${name} INTERFACE muster_flags ${ARG_DEPS})
  endif()
endfunction()

function(muster_program name)
  cmake_parse_arguments(ARG "" "" "SRCS;DEPS" ${ARGN})
  add_executable(${name} ${ARG_SRCS})
  target_link_libraries(${name} PRIVATE muster_flags ${ARG_DEPS})
  muster_precompile(${name})
endfunction()

function(muster_test name)
  cmake_parse_arguments(ARG "NO_MAIN" "TIMEOUT" "SRCS;DEPS;ARGS;LABELS" ${ARGN})
  add_executable(${name} ${ARG_SRCS})
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  target_link_libraries(${name} PRIVATE muster_flags ${ARG_DEPS} GTest::gtest GTest::gmock Threads::Threads)
  if(NOT ARG_NO_MAIN)
    target_link_libraries(${name} PRIVATE GTest::gtest_main)
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 300)
  endif()
  target_precompile_headers(${name} REUSE_FROM muster_test_pch)
  add_test(NAME ${name} COMMAND ${name} ${ARG_ARGS} WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
  file(RELATIVE_PATH folder ${CMAKE_SOURCE_DIR}/tests ${CMAKE_CURRENT_SOURCE_DIR})
  set(labels ${folder} ${ARG_LABELS})
  # A library that libfabric brings along leaves a file behind where a program that links it aborts,
  # as death tests do.
  set_tests_properties(${name} PROPERTIES TIMEOUT ${ARG_TIMEOUT} LABELS "${labels}"
                       ENVIRONMENT "IPATH_NO_BACKTRACE=1")
  string(REPLACE "/" "_" group tests_${folder})
  if(NOT TARGET ${group})
    add_custom_target(${group})
  endif()
  add_dependencies(${group} ${name})
endfunction()
