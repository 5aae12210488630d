// A communicator's recorded operations as a file for people and scripts.
#ifndef MUSTER_WORKER_METRICS_OPERATION_LOG_H_
#define MUSTER_WORKER_METRICS_OPERATION_LOG_H_

#include <string>

#include "absl/time/time.h"
#include "absl/types/span.h"
#include "collectives/engine/operation_record.h"

namespace muster {

// One JSON object a line, oldest first: number, what, label, step, state, issued (RFC 3339),
// queued_us and running_us (until `now` where that is not over; running_us only of what has
// started), error.
std::string OperationsAsJsonLines(absl::Span<const OperationRecord> records, absl::Time now);

}  // namespace muster

#endif  // MUSTER_WORKER_METRICS_OPERATION_LOG_H_
