# Third-party packages. Each is a Debian 12 package listed in deploy/packages/.

find_package(Threads REQUIRED)
find_package(absl REQUIRED)
find_package(Protobuf REQUIRED)
find_package(gRPC CONFIG REQUIRED)
# dnnl's own package file asks for OpenCL, which the CPU engine does not need.
find_library(MUSTER_DNNL_LIBRARY dnnl REQUIRED)
find_path(MUSTER_DNNL_INCLUDE dnnl.hpp PATH_SUFFIXES oneapi/dnnl REQUIRED)
add_library(muster_dnnl UNKNOWN IMPORTED)
set_target_properties(muster_dnnl PROPERTIES IMPORTED_LOCATION ${MUSTER_DNNL_LIBRARY}
                      INTERFACE_INCLUDE_DIRECTORIES "${MUSTER_DNNL_INCLUDE}")
find_package(hwy REQUIRED CONFIG)
# 1.17 or 2.x; it has no CMake package file.
find_library(MUSTER_FABRIC_LIBRARY fabric REQUIRED)
find_path(MUSTER_FABRIC_INCLUDE rdma/fabric.h REQUIRED)
add_library(muster_fabric UNKNOWN IMPORTED)
set_target_properties(muster_fabric PROPERTIES IMPORTED_LOCATION ${MUSTER_FABRIC_LIBRARY}
                      INTERFACE_INCLUDE_DIRECTORIES "${MUSTER_FABRIC_INCLUDE}")
# It has no CMake package file either.
find_library(MUSTER_HWLOC_LIBRARY hwloc REQUIRED)
find_path(MUSTER_HWLOC_INCLUDE hwloc.h REQUIRED)
add_library(muster_hwloc UNKNOWN IMPORTED)
set_target_properties(muster_hwloc PROPERTIES IMPORTED_LOCATION ${MUSTER_HWLOC_LIBRARY}
                      INTERFACE_INCLUDE_DIRECTORIES "${MUSTER_HWLOC_INCLUDE}")
find_package(spdlog REQUIRED)
find_package(yaml-cpp REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(prometheus-cpp REQUIRED CONFIG)
find_package(CLI11 REQUIRED)
find_package(ZLIB REQUIRED)
find_package(OpenSSL REQUIRED)
if(MUSTER_BUILD_TESTS)
  find_package(GTest REQUIRED)
endif()
