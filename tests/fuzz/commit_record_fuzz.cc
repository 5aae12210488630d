// The summed words of the small all-reduce, from which each member reads the commit record.
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "tests/fuzz/targets.h"
#include "worker/sync/commit_exchange.h"

namespace muster {
namespace {

constexpr size_t kBytes = kCommitWords * sizeof(int64_t);

FuzzOutcome Run(absl::string_view bytes) {
  std::vector<int64_t> words(bytes.size() / sizeof(int64_t));
  if (!words.empty()) std::memcpy(words.data(), bytes.data(), words.size() * sizeof(int64_t));
  const absl::StatusOr<CommitRecord> record = DecodeCommit(words, 3, 4);
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
  }
  return FuzzOutcome::kAccepted;
}

std::string Encoded(const CommitContribution& contribution) {
  const CommitWords words = EncodeCommit(contribution);
  return std::string(reinterpret_cast<const char*>(words.data()), sizeof(words));
}

std::vector<std::string> Seeds() {
  CommitContribution plain = {.loss_sum = 12.5, .samples = 32, .correct = 20};
  plain.squared_gradient.Add({1.0f, -2.5f, 1e-20f, 1e20f});
  CommitContribution nonfinite = {
      .loss_sum = std::nan(""), .samples = 32, .correct = 0, .pause = true};
  nonfinite.squared_gradient.Add({std::nanf("")});
  return {Encoded(plain), Encoded(nonfinite)};
}

}  // namespace

const FuzzTarget kCommitRecordTarget = {"commit_record", Run, Seeds, kBytes};

}  // namespace muster
