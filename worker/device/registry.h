// The one list of device backends that this binary was built with. Thread-safe.
#ifndef MUSTER_WORKER_DEVICE_REGISTRY_H_
#define MUSTER_WORKER_DEVICE_REGISTRY_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "worker/device/device.h"

namespace muster {

struct CpuDeviceOptions {
  // Threads that GEMM and convolutions run on, 1 .. 1024. One by default: several workers usually
  // share a machine.
  int threads = 1;
};

struct DeviceOptions {
  CpuDeviceOptions cpu;
};

// Names that CreateDevice accepts.
std::vector<std::string> DeviceNames();

// NOT_FOUND for an unknown name lists those there are; INVALID_ARGUMENT names a wrong option.
absl::StatusOr<std::unique_ptr<Device>> CreateDevice(absl::string_view name,
                                                     const DeviceOptions& options);

}  // namespace muster

#endif  // MUSTER_WORKER_DEVICE_REGISTRY_H_
