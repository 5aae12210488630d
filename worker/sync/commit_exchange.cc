#include "worker/sync/commit_exchange.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace muster {
namespace {

constexpr double kLossUnit = 0x1p-24;
constexpr double kLossLimit = 0x1p39;

// Positions after the words of the squared norm.
enum Position : int { kLoss = SquaredSum::kWords, kLossNonfinite, kSamples, kCorrect, kPause };

}  // namespace

std::vector<int64_t> EncodeCommit(const CommitContribution& contribution) {
  std::vector<int64_t> words(kCommitWords);
  const SquaredSum::Words squared = contribution.squared_gradient.ToWords();
  for (int i = 0; i < SquaredSum::kWords; ++i) words[i] = squared[i];
  if (std::isfinite(contribution.loss_sum) && std::fabs(contribution.loss_sum) < kLossLimit) {
    words[kLoss] = std::llround(contribution.loss_sum / kLossUnit);
  } else {
    words[kLossNonfinite] = 1;
  }
  words[kSamples] = contribution.samples;
  words[kCorrect] = contribution.correct;
  words[kPause] = contribution.pause ? 1 : 0;
  const std::vector<int64_t> sums = contribution.tensor_sums.ToWords();
  words.insert(words.end(), sums.begin(), sums.end());
  return words;
}

double MeanGradientNorm(const SquaredSum& squared_gradient, int64_t samples) {
  return std::sqrt(squared_gradient.Value()) / static_cast<double>(samples);
}

absl::StatusOr<CommitRecord> DecodeCommit(absl::Span<const int64_t> words, Step step, Epoch epoch,
                                          int tensors) {
  if (static_cast<int64_t>(words.size()) != CommitWordCount(tensors)) {
    return absl::InternalError(absl::StrCat("commit of step ", step, ": expected ",
                                            CommitWordCount(tensors), " words, got ",
                                            words.size()));
  }
  MUSTER_ASSIGN_OR_RETURN(const SquaredSum squared,
                          SquaredSum::FromWords(words.subspan(0, SquaredSum::kWords)));
  const int64_t samples = words[kSamples];
  if (samples <= 0 || words[kCorrect] < 0 || words[kCorrect] > samples || words[kPause] < 0 ||
      words[kLossNonfinite] < 0) {
    return absl::InternalError(absl::StrCat("commit of step ", step, ": impossible counts (",
                                            samples, " samples, ", words[kCorrect], " correct)"));
  }
  CommitRecord record;
  record.step = step;
  record.epoch = epoch;
  record.samples = samples;
  record.correct = words[kCorrect];
  record.pause = words[kPause] > 0;
  record.finite = squared.finite() && words[kLossNonfinite] == 0;
  record.loss_sum =
      words[kLossNonfinite] == 0 ? static_cast<double>(words[kLoss]) * kLossUnit : std::nan("");
  record.gradient_norm = MeanGradientNorm(squared, samples);
  // Read even where it is not needed, so that nonsense is found.
  MUSTER_ASSIGN_OR_RETURN(const TensorSums sums,
                          TensorSums::FromWords(tensors, words.subspan(kCommitWords)));
  if (record.finite) record.tensor_factors = NormRatios(sums);
  return record;
}

}  // namespace muster
