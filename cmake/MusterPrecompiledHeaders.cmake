# Precompiled headers: half of what a compiler reads here is Abseil, gRPC or GoogleTest. Each header
# is built once and reused by every target of its kind (MusterTargets.cmake); sources still include
# all they use, so that -DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON builds the same programs.

set(muster_common_headers
  <algorithm> <atomic> <cstdint> <functional> <map> <memory> <optional> <string> <thread> <utility>
  <vector> <absl/status/status.h> <absl/status/statusor.h> <absl/strings/str_cat.h>
  <absl/strings/str_format.h> <absl/synchronization/mutex.h> <absl/time/clock.h> <absl/time/time.h>)

# A precompiled header belongs to a target with a source.
file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/precompiled.cc CONTENT "")

# muster_precompiled(NAME DEPS ... HEADERS ...)
function(muster_precompiled name)
  cmake_parse_arguments(ARG "" "" "DEPS;HEADERS" ${ARGN})
  add_library(${name} STATIC ${CMAKE_BINARY_DIR}/precompiled.cc)
  target_link_libraries(${name} PUBLIC muster_flags absl::status absl::statusor absl::strings
                        absl::str_format absl::synchronization absl::time ${ARG_DEPS})
  target_precompile_headers(${name} PRIVATE ${muster_common_headers} ${ARG_HEADERS})
endfunction()

muster_precompiled(muster_pch)
muster_precompiled(muster_grpc_pch DEPS gRPC::grpc++ HEADERS <grpcpp/grpcpp.h>)
if(MUSTER_BUILD_TESTS)
  muster_precompiled(muster_test_pch DEPS GTest::gtest GTest::gmock
                     HEADERS <gtest/gtest.h> <gmock/gmock.h>)
endif()
