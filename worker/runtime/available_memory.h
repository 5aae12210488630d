// How much memory this process could still take.
#ifndef MUSTER_WORKER_RUNTIME_AVAILABLE_MEMORY_H_
#define MUSTER_WORKER_RUNTIME_AVAILABLE_MEMORY_H_

#include <cstdint>
#include <optional>

#include "absl/strings/string_view.h"

namespace muster {

// Bytes that the kernel could hand out without swapping, of the machine and of the control group
// (version 2) of this process, whichever is less. nullopt where the kernel does not tell.
std::optional<int64_t> AvailableMemory();

// "MemAvailable" of /proc/meminfo, in bytes.
std::optional<int64_t> MemAvailable(absl::string_view meminfo);

}  // namespace muster

#endif  // MUSTER_WORKER_RUNTIME_AVAILABLE_MEMORY_H_
