// One data-parallel training step on a modelled network: computing, and reducing gradients
// meanwhile.
#ifndef MUSTER_BENCH_SIMULATE_TRAINING_STEP_H_
#define MUSTER_BENCH_SIMULATE_TRAINING_STEP_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "bench/simulate/network.h"
#include "collectives/schedule/schedule.h"

namespace muster {

struct TrainingStep {
  int64_t parameters = 0;    // f32 gradients
  int64_t bucket_bytes = 0;  // buckets are made equal, of at most about this
  int64_t segment_bytes = 0;
  double compute_s = 0;             // forward and backward
  double backward_share = 2.0 / 3;  // of compute_s; buckets become ready evenly along it
};

struct SimulatedStep {
  double step_s = 0;      // until every rank has every sum
  double reducing_s = 0;  // from the first bucket to the last sum
  double efficiency = 0;  // compute_s / step_s: 1 if all reducing hides behind computing
  int64_t messages = 0;
};

// Messages that all ranks send in the step, before they are cut into segments. INVALID_ARGUMENT as
// MakeSchedule.
absl::StatusOr<int64_t> MessagesOfStep(const NetworkModel& network, int ranks, Algorithm algorithm,
                                       const TrainingStep& step);

// INVALID_ARGUMENT as MakeSchedule. Requires: compute_s, bucket_bytes and segment_bytes above zero.
absl::StatusOr<SimulatedStep> SimulateStep(const NetworkModel& network, int ranks,
                                           Algorithm algorithm, const TrainingStep& step);

}  // namespace muster

#endif  // MUSTER_BENCH_SIMULATE_TRAINING_STEP_H_
