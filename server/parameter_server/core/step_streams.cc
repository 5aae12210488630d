#include "server/parameter_server/core/step_streams.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace muster {

StepStreams::StepStreams(const Contributions& contributions)
    : contributions_(contributions),
      applied_(static_cast<size_t>(contributions.micro_batches()), 0) {}

void StepStreams::SetApplied(int32_t micro_batch, Step step) {
  MUSTER_CHECK_LT(applied_[micro_batch], step);
  applied_[micro_batch] = step;
}

Step StepStreams::StepOf(int32_t contributor) const {
  const MicroBatchShare share = contributions_.ShareOf(contributor);
  Step step = kNobody;
  for (int32_t m = share.first; m < share.last; ++m) step = std::min(step, applied_[m]);
  return step;
}

Step StepStreams::Slowest(const Contributors& contributors) const {
  Step slowest = kNobody;
  for (int32_t c = 0; c < contributors.count(); ++c) {
    if (contributors.attached(c)) slowest = std::min(slowest, StepOf(c));
  }
  return slowest;
}

void StepStreams::SkipTo(int32_t contributor, Step step) {
  const MicroBatchShare share = contributions_.ShareOf(contributor);
  for (int32_t m = share.first; m < share.last; ++m) applied_[m] = std::max(applied_[m], step);
}

void StepStreams::Restore(std::vector<Step> applied) {
  MUSTER_CHECK_EQ(applied.size(), applied_.size());
  applied_ = std::move(applied);
}

}  // namespace muster
