// One issued collective: its arguments, and its outcome as Work shows it.
#ifndef MUSTER_COLLECTIVES_ENGINE_OPERATION_H_
#define MUSTER_COLLECTIVES_ENGINE_OPERATION_H_

#include <atomic>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/dtype.h"
#include "base/ids.h"
#include "collectives/engine/fingerprint.h"
#include "collectives/engine/plan.h"
#include "collectives/engine/window_plan.h"
#include "collectives/reduce/reduce_op.h"

namespace muster {

struct Operation {
  // Set at issue, constant since.
  Fingerprint fingerprint;
  // One of the two: messages, or shared memory.
  std::shared_ptr<const Plan> plan;
  std::shared_ptr<const WindowPlan> window_plan;
  ReduceOp op = ReduceOp::kSum;
  const std::byte* input = nullptr;
  std::byte* output = nullptr;
  absl::Time deadline;
  std::string label;
  Step step = 0;
  absl::Time issued_at;

  // Written and read by the communicator under its lock.
  absl::Time started_at = absl::InfiniteFuture();
  absl::Time ended_at = absl::InfiniteFuture();

  // Written once by the communicator under its lock, before `done`; read after it.
  absl::Status status;
  std::optional<Rank> culprit;
  std::atomic<bool> done{false};

  // "all-reduce #5 (...) 'bucket-3' of step 17".
  std::string Describe() const;
};

}  // namespace muster

#endif  // MUSTER_COLLECTIVES_ENGINE_OPERATION_H_
