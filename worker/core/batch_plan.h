// Which samples each micro-batch of each step sees, and which rank computes which micro-batch.
//
// The samples of micro-batch m of step k are a pure function of (seed, k, m): they do not depend on
// the world size, on ranks, or on what happened before. So a fleet that grows, shrinks or redoes a
// step neither skips nor repeats a sample.
//
// The stream of samples is the concatenation of one random permutation of all samples per data
// epoch 0, 1, 2, ... Step k (from 1), micro-batch m (from 0) takes the positions
// [((k-1)*M + m)*B, ((k-1)*M + m + 1)*B) of the stream, with M micro-batches a step of B samples
// each. A micro-batch may straddle two data epochs, so that every sample is seen exactly once per
// data epoch and every micro-batch is full.
//
// Pure and immutable, so thread-safe.
#ifndef MUSTER_WORKER_CORE_BATCH_PLAN_H_
#define MUSTER_WORKER_CORE_BATCH_PLAN_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "base/ids.h"
#include "base/random.h"

namespace muster {

// A random permutation of [0, size) with random access and no table.
//
// A generalised Feistel network on pairs (left, right) below ceil(sqrt(size)), with a counter-based
// random function in each round, and cycle walking to stay below `size`: Black and Rogaway,
// "Ciphers with Arbitrary Finite Domains", CT-RSA 2002, sections 4 and 5.
class SamplePermutation {
 public:
  // Requires: 0 < size <= kMaxSize.
  static constexpr int64_t kMaxSize = int64_t{1} << 40;
  SamplePermutation(uint64_t seed, int64_t data_epoch, int64_t size);

  // The sample at `position`. Requires: 0 <= position < size.
  int64_t operator[](int64_t position) const;

 private:
  int64_t size_;
  int64_t side_;  // the least number whose square is at least size_
  std::vector<RandomStream> rounds_;
};

// Micro-batches [first, last) of a step.
struct MicroBatchRange {
  int32_t first = 0;
  int32_t last = 0;
  int32_t count() const { return last - first; }
  bool operator==(const MicroBatchRange&) const = default;
};

struct BatchPlan {
  uint64_t seed = 0;
  int64_t sample_count = 0;
  int32_t micro_batch_size = 0;
  int32_t micro_batches_per_step = 0;

  // Steps beyond this are a check failure; it keeps stream positions within 64 bits.
  static constexpr Step kMaxStep = int64_t{1} << 31;
  static constexpr int64_t kMaxSamplesPerStep = int64_t{1} << 31;

  // INVALID_ARGUMENT names the field that is out of range. The functions below require a valid
  // plan.
  absl::Status Validate() const;

  int64_t samples_per_step() const { return int64_t{micro_batch_size} * micro_batches_per_step; }

  // The micro_batch_size samples, in the order of the stream. Requires: 1 <= step <= kMaxStep,
  // 0 <= micro_batch < micro_batches_per_step.
  std::vector<int64_t> SamplesOf(Step step, int32_t micro_batch) const;

  // The micro-batches that `rank` of `size` ranks computes: contiguous, in rank order, counts that
  // differ by at most one. With more ranks than micro-batches some get none. Over all ranks of any
  // size every micro-batch comes exactly once. Requires: 0 <= rank < size.
  MicroBatchRange MicroBatchesOf(Rank rank, int32_t size) const;

  // Passes over the data that are complete after `step` steps, with the fraction of the current
  // one.
  double DataEpochsAfter(Step step) const;
};

}  // namespace muster

#endif  // MUSTER_WORKER_CORE_BATCH_PLAN_H_
