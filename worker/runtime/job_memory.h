// What a job takes of this worker's memory.
#ifndef MUSTER_WORKER_RUNTIME_JOB_MEMORY_H_
#define MUSTER_WORKER_RUNTIME_JOB_MEMORY_H_

#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "base/control/messages.h"
#include "base/control/resources.h"
#include "worker/runtime/job_context.h"

namespace muster {

StateSize StateSizeOf(const JobContext& job);

// RESOURCE_EXHAUSTED if a strategy that the job's description names, for its beginning or for later
// steps, takes more than `available` bytes of a member in that role, once the members that the job
// starts with are there; the message names it. None: nothing is known. What the coordinator chooses
// it has compared itself.
absl::Status CheckMemory(const JobContext& job, MemberRole role, std::optional<int64_t> available);

}  // namespace muster

#endif  // MUSTER_WORKER_RUNTIME_JOB_MEMORY_H_
