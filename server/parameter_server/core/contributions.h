// Which micro-batches of a step are whose: contiguous, in the order of contributors, numbers that
// differ by one at most. The same cut as workers make (worker/core/batch_plan.h), so that servers
// sum in their order. Pure.
#ifndef MUSTER_SERVER_PARAMETER_SERVER_CORE_CONTRIBUTIONS_H_
#define MUSTER_SERVER_PARAMETER_SERVER_CORE_CONTRIBUTIONS_H_

#include <cstdint>

namespace muster {

// Micro-batches [first, last).
struct MicroBatchShare {
  int32_t first = 0;
  int32_t last = 0;
  int32_t count() const { return last - first; }
  bool operator==(const MicroBatchShare&) const = default;
};

class Contributions {
 public:
  // Requires: both above zero.
  Contributions(int32_t contributors, int32_t micro_batches)
      : contributors_(contributors), micro_batches_(micro_batches) {}

  int32_t contributors() const { return contributors_; }
  int32_t micro_batches() const { return micro_batches_; }

  // May be empty, if there are fewer micro-batches than contributors.
  MicroBatchShare ShareOf(int32_t contributor) const {
    return {Boundary(contributor), Boundary(int64_t{contributor} + 1)};
  }
  // The last contributor whose share begins at or before the micro-batch.
  int32_t ContributorOf(int32_t micro_batch) const {
    return static_cast<int32_t>(((int64_t{micro_batch} + 1) * contributors_ - 1) / micro_batches_);
  }

 private:
  int32_t Boundary(int64_t contributor) const {
    return static_cast<int32_t>(contributor * micro_batches_ / contributors_);
  }
  int32_t contributors_;
  int32_t micro_batches_;
};

}  // namespace muster

#endif  // MUSTER_SERVER_PARAMETER_SERVER_CORE_CONTRIBUTIONS_H_
