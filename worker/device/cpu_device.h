// The CPU backend: oneDNN for GEMM and convolutions, Highway for the rest. Internal to
// worker/device/: programs use the registry.
#ifndef MUSTER_WORKER_DEVICE_CPU_DEVICE_H_
#define MUSTER_WORKER_DEVICE_CPU_DEVICE_H_

#include <memory>

#include "absl/status/statusor.h"
#include "worker/device/registry.h"

namespace muster {

// Kernel calls set the calling thread's OpenMP thread count to options.threads, which is what
// oneDNN goes by. INVALID_ARGUMENT names a wrong option.
absl::StatusOr<std::unique_ptr<Device>> CreateCpuDevice(const CpuDeviceOptions& options);

}  // namespace muster

#endif  // MUSTER_WORKER_DEVICE_CPU_DEVICE_H_
