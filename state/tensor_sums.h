// Sums of squares per tensor, of its parameters and of the update a rule would make: what a
// layer-wise rule (LAMB) must know of whole tensors before it can update any part of them.
//
// The sums are exact (state/gradient_norm.h), so parts that different ranks made of any cut of a
// tensor combine to the same bits. They travel as int64 words that are added word by word.
//
// A value; thread-compatible.
#ifndef MUSTER_STATE_TENSOR_SUMS_H_
#define MUSTER_STATE_TENSOR_SUMS_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "state/gradient_norm.h"

namespace muster {

class TensorSums {
 public:
  struct Entry {
    SquaredSum parameters;
    SquaredSum update;
  };

  // Zero for each of `count` tensors (UpdateRule::factor_count()).
  explicit TensorSums(int count) : entries_(count) {}

  int count() const { return static_cast<int>(entries_.size()); }
  Entry& operator[](int index) { return entries_[index]; }
  const Entry& operator[](int index) const { return entries_[index]; }

  // Adds what `other`, of the same count, holds.
  void Merge(const TensorSums& other);

  // The exchange form: WordCount(count()) words, of which up to 2^30 arrays may be added word by
  // word before FromWords.
  static constexpr int64_t WordCount(int count) { return int64_t{2} * SquaredSum::kWords * count; }
  std::vector<int64_t> ToWords() const;

  // INVALID_ARGUMENT if `words` is no sum of ToWords() results for `count` tensors.
  static absl::StatusOr<TensorSums> FromWords(int count, absl::Span<const int64_t> words);

 private:
  std::vector<Entry> entries_;
};

// Of each tensor |parameters| / |update|, in f64 from the exact sums; 1 where one of the two is
// zero or not finite.
std::vector<double> NormRatios(const TensorSums& sums);

}  // namespace muster

#endif  // MUSTER_STATE_TENSOR_SUMS_H_
