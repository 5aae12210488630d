#include "worker/core/batch_plan.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace muster {
namespace {

// Four rounds make a Feistel network indistinguishable for large domains; small ones need more.
constexpr int kRounds = 8;

int64_t CeilSquareRoot(int64_t value) {
  int64_t root = static_cast<int64_t>(std::sqrt(static_cast<double>(value)));
  while (root * root < value) ++root;
  while (root > 1 && (root - 1) * (root - 1) >= value) --root;
  return root;
}

}  // namespace

SamplePermutation::SamplePermutation(uint64_t seed, int64_t data_epoch, int64_t size)
    : size_(size), side_(CeilSquareRoot(size)) {
  MUSTER_CHECK(size > 0 && size <= kMaxSize) << size;
  rounds_.reserve(kRounds);
  for (int round = 0; round < kRounds; ++round) {
    rounds_.emplace_back(seed, "sample permutation", static_cast<uint64_t>(data_epoch), round);
  }
}

int64_t SamplePermutation::operator[](int64_t position) const {
  MUSTER_CHECK(position >= 0 && position < size_) << position << " of " << size_;
  int64_t value = position;
  // The network permutes [0, side^2), which is less than size + 2 sqrt(size) + 1. Walking its cycle
  // from a point below size returns below size at the latest at that point itself.
  do {
    int64_t left = value / side_;
    int64_t right = value % side_;
    for (const RandomStream& round : rounds_) {
      const int64_t shift = static_cast<int64_t>(
          round.Below(static_cast<uint64_t>(right), static_cast<uint64_t>(side_)));
      const int64_t sum = left + shift;
      left = right;
      right = sum < side_ ? sum : sum - side_;
    }
    value = left * side_ + right;
  } while (value >= size_);
  return value;
}

absl::Status BatchPlan::Validate() const {
  if (sample_count < 1 || sample_count > SamplePermutation::kMaxSize) {
    return absl::InvalidArgumentError(absl::StrCat(
        "sample_count: expected 1 to ", SamplePermutation::kMaxSize, ", got ", sample_count));
  }
  if (micro_batch_size < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("micro_batch_size: expected at least 1, got ", micro_batch_size));
  }
  if (micro_batches_per_step < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("micro_batches_per_step: expected at least 1, got ", micro_batches_per_step));
  }
  if (samples_per_step() > kMaxSamplesPerStep) {
    return absl::InvalidArgumentError(
        absl::StrCat("micro_batch_size * micro_batches_per_step: expected at most ",
                     kMaxSamplesPerStep, " samples a step, got ", samples_per_step()));
  }
  return absl::OkStatus();
}

std::vector<int64_t> BatchPlan::SamplesOf(Step step, int32_t micro_batch) const {
  MUSTER_CHECK(step >= 1 && step <= kMaxStep) << step;
  MUSTER_CHECK(micro_batch >= 0 && micro_batch < micro_batches_per_step)
      << micro_batch << " of " << micro_batches_per_step;
  const int64_t begin = ((step - 1) * micro_batches_per_step + micro_batch) * micro_batch_size;
  const int64_t end = begin + micro_batch_size;
  std::vector<int64_t> samples;
  samples.reserve(static_cast<size_t>(micro_batch_size));
  for (int64_t position = begin; position < end;) {
    const int64_t data_epoch = position / sample_count;
    const int64_t epoch_begin = data_epoch * sample_count;
    const SamplePermutation permutation(seed, data_epoch, sample_count);
    for (; position < end && position - epoch_begin < sample_count; ++position) {
      samples.push_back(permutation[position - epoch_begin]);
    }
  }
  return samples;
}

MicroBatchRange BatchPlan::MicroBatchesOf(Rank rank, int32_t size) const {
  MUSTER_CHECK(rank >= 0 && rank < size) << rank << " of " << size;
  const auto boundary = [&](int64_t r) {
    return static_cast<int32_t>(r * micro_batches_per_step / size);
  };
  return {boundary(rank), boundary(int64_t{rank} + 1)};
}

double BatchPlan::DataEpochsAfter(Step step) const {
  return static_cast<double>(step) * static_cast<double>(samples_per_step()) /
         static_cast<double>(sample_count);
}

}  // namespace muster
