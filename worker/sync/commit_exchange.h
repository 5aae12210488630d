// The commit record's wire form: what each rank contributes to the small all-reduce of a step, and
// what the sum means.
//
// All words are int64 and are summed, so the record is exact: it does not depend on the order of
// summation nor on how samples and gradient ranges are spread over ranks, and it is bit-identical
// on every member. Pure; thread-safe.
#ifndef MUSTER_WORKER_SYNC_COMMIT_EXCHANGE_H_
#define MUSTER_WORKER_SYNC_COMMIT_EXCHANGE_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/control/messages.h"
#include "base/ids.h"
#include "state/gradient_norm.h"
#include "state/tensor_sums.h"

namespace muster {

// One rank's part.
struct CommitContribution {
  double loss_sum = 0;  // over the rank's samples of the step
  int64_t samples = 0;
  int64_t correct = 0;
  bool pause = false;           // someone asked for a pause, or this is the last step
  SquaredSum squared_gradient;  // of the rank's range of the reduced (summed) gradient,
                                // what is frozen left out (state/clip_norm.h)
  // Of the rank's range, with a layer-wise rule; nothing of an update that is to be skipped.
  TensorSums tensor_sums{0};
};

// Loss in units of 2^-24, of magnitude below 2^39 (5e11). A larger or non-finite loss counts as
// non-finite.
constexpr int kCommitWords = SquaredSum::kWords + 5;
// So many words, and those of the sums of `tensors` tensors.
constexpr int64_t CommitWordCount(int tensors) {
  return kCommitWords + TensorSums::WordCount(tensors);
}

std::vector<int64_t> EncodeCommit(const CommitContribution& contribution);

// The record of `step` from the summed words, the contributions having sums of `tensors` tensors.
// INTERNAL if the words can't be such a sum.
absl::StatusOr<CommitRecord> DecodeCommit(absl::Span<const int64_t> words, Step step, Epoch epoch,
                                          int tensors = 0);

// A record's gradient_norm: that of the mean gradient, before clipping; NaN if it is not finite.
double MeanGradientNorm(const SquaredSum& squared_gradient, int64_t samples);

}  // namespace muster

#endif  // MUSTER_WORKER_SYNC_COMMIT_EXCHANGE_H_
