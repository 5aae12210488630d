#include "state/tensor_sums.h"

#include <cmath>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "base/check.h"
#include "base/status_macros.h"

namespace muster {

void TensorSums::Merge(const TensorSums& other) {
  MUSTER_CHECK_EQ(other.count(), count());
  for (int i = 0; i < count(); ++i) {
    entries_[i].parameters.Merge(other[i].parameters);
    entries_[i].update.Merge(other[i].update);
  }
}

std::vector<int64_t> TensorSums::ToWords() const {
  std::vector<int64_t> words;
  words.reserve(WordCount(count()));
  for (const Entry& entry : entries_) {
    for (const SquaredSum* sum : {&entry.parameters, &entry.update}) {
      const SquaredSum::Words part = sum->ToWords();
      words.insert(words.end(), part.begin(), part.end());
    }
  }
  return words;
}

absl::StatusOr<TensorSums> TensorSums::FromWords(int count, absl::Span<const int64_t> words) {
  if (static_cast<int64_t>(words.size()) != WordCount(count)) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "sums of %d tensors: expected %d words, got %d", count, WordCount(count), words.size()));
  }
  TensorSums sums(count);
  for (Entry& entry : sums.entries_) {
    for (SquaredSum* sum : {&entry.parameters, &entry.update}) {
      MUSTER_ASSIGN_OR_RETURN(*sum, SquaredSum::FromWords(words.subspan(0, SquaredSum::kWords)));
      words.remove_prefix(SquaredSum::kWords);
    }
  }
  return sums;
}

std::vector<double> NormRatios(const TensorSums& sums) {
  std::vector<double> ratios(static_cast<size_t>(sums.count()), 1.0);
  for (int i = 0; i < sums.count(); ++i) {
    const double parameters = sums[i].parameters.Value();
    const double update = sums[i].update.Value();
    // False for a NaN: something is not finite.
    if (parameters > 0 && update > 0) {
      ratios[static_cast<size_t>(i)] = std::sqrt(parameters) / std::sqrt(update);
    }
  }
  return ratios;
}

}  // namespace muster
