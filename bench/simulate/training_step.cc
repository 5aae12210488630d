#include "bench/simulate/training_step.h"

#include <algorithm>
#include <memory>

#include "base/status_macros.h"
#include "bench/simulate/simulator.h"
#include "collectives/schedule/cost.h"

namespace muster {
namespace {

constexpr int64_t kGradientBytes = sizeof(float);

int64_t BucketsOf(const TrainingStep& step) {
  const int64_t bytes = step.parameters * kGradientBytes;
  return std::max<int64_t>(1, (bytes + step.bucket_bytes - 1) / step.bucket_bytes);
}

ScheduleRequest RequestOf(const NetworkModel& network, int ranks, Algorithm algorithm,
                          const TrainingStep& step) {
  const int64_t buckets = BucketsOf(step);
  ScheduleRequest request;
  request.collective = Collective::kAllReduce;
  request.algorithm = algorithm;
  request.size = ranks;
  request.count = (step.parameters + buckets - 1) / buckets;
  request.in_place = true;
  if (algorithm == Algorithm::kHierarchical) {
    for (Rank rank = 0; rank < ranks; ++rank) request.hosts.push_back(network.HostOf(rank));
  }
  return request;
}

}  // namespace

absl::StatusOr<int64_t> MessagesOfStep(const NetworkModel& network, int ranks, Algorithm algorithm,
                                       const TrainingStep& step) {
  ScheduleRequest request = RequestOf(network, ranks, algorithm, step);
  MUSTER_RETURN_IF_ERROR(ValidateRequest(request));
  int64_t messages = 0;
  for (request.rank = 0; request.rank < ranks; ++request.rank) {
    messages += CostOf(request).messages_sent;
  }
  return messages * BucketsOf(step);
}

absl::StatusOr<SimulatedStep> SimulateStep(const NetworkModel& network, int ranks,
                                           Algorithm algorithm, const TrainingStep& step) {
  MUSTER_ASSIGN_OR_RETURN(const std::shared_ptr<const SimulatedCollective> bucket,
                          SimulatedCollective::Create(RequestOf(network, ranks, algorithm, step),
                                                      DType::kF32, step.segment_bytes));
  Simulator simulator(network, ranks);
  const int64_t buckets = BucketsOf(step);
  const double backward_s = step.compute_s * step.backward_share;
  const double forward_s = step.compute_s - backward_s;
  const auto ready_at = [&](int64_t i) {
    return forward_s + backward_s * static_cast<double>(i + 1) / static_cast<double>(buckets);
  };
  double done_at = step.compute_s;
  for (int64_t i = 0; i < buckets; ++i) simulator.Launch(bucket, ready_at(i));
  simulator.Run();
  for (int64_t i = 0; i < buckets; ++i) {
    done_at = std::max(done_at, simulator.DoneAt(static_cast<int>(i)));
  }
  return SimulatedStep{.step_s = done_at,
                       .reducing_s = done_at - ready_at(0),
                       .efficiency = step.compute_s / done_at,
                       .messages = simulator.messages()};
}

}  // namespace muster
