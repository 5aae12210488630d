// The summed words of the small all-reduce, from which each member reads the commit record.
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "tests/fuzz/targets.h"
#include "worker/sync/commit_exchange.h"

namespace muster {
namespace {

// With the sums of as many tensors as there are words for.
constexpr int kMostTensors = 2;
constexpr size_t kBytes = static_cast<size_t>(CommitWordCount(kMostTensors)) * sizeof(int64_t);

FuzzOutcome Run(absl::string_view bytes) {
  std::vector<int64_t> words(bytes.size() / sizeof(int64_t));
  if (!words.empty()) std::memcpy(words.data(), bytes.data(), words.size() * sizeof(int64_t));
  int tensors = 0;
  while (CommitWordCount(tensors) < static_cast<int64_t>(words.size())) ++tensors;
  const absl::StatusOr<CommitRecord> record = DecodeCommit(words, 3, 4, tensors);
  if (!record.ok()) {
    return Refused(record.status(),
                   {absl::StatusCode::kInternal, absl::StatusCode::kInvalidArgument});
  }
  MUSTER_CHECK(record->step == 3 && record->epoch == 4);
  MUSTER_CHECK(record->samples > 0 && record->correct >= 0 && record->correct <= record->samples);
  // What decides whether the update is applied agrees with what it is applied with.
  if (record->finite) {
    MUSTER_CHECK(std::isfinite(record->loss_sum));
    MUSTER_CHECK(std::isfinite(record->gradient_norm) && record->gradient_norm >= 0);
    MUSTER_CHECK(static_cast<int>(record->tensor_factors.size()) == tensors);
    for (const double factor : record->tensor_factors) {
      MUSTER_CHECK(std::isfinite(factor) && factor > 0);
    }
  }
  return FuzzOutcome::kAccepted;
}

std::string Encoded(const CommitContribution& contribution) {
  const std::vector<int64_t> words = EncodeCommit(contribution);
  return std::string(reinterpret_cast<const char*>(words.data()), words.size() * sizeof(int64_t));
}

std::vector<std::string> Seeds() {
  CommitContribution plain = {.loss_sum = 12.5, .samples = 32, .correct = 20};
  plain.squared_gradient.Add({1.0f, -2.5f, 1e-20f, 1e20f});
  CommitContribution nonfinite = {
      .loss_sum = std::nan(""), .samples = 32, .correct = 0, .pause = true};
  nonfinite.squared_gradient.Add({std::nanf("")});
  CommitContribution layers = plain;
  layers.tensor_sums = TensorSums(kMostTensors);
  layers.tensor_sums[0].parameters.Add({3.0f, 1e-30f});
  layers.tensor_sums[0].update.Add({-0.5f});
  layers.tensor_sums[1].update.Add({std::nanf("")});
  return {Encoded(plain), Encoded(nonfinite), Encoded(layers)};
}

}  // namespace

const FuzzTarget kCommitRecordTarget = {"commit_record", Run, Seeds, kBytes};

}  // namespace muster
