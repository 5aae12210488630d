#include "worker/runtime/wait_reporter.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace muster {
namespace {

constexpr double kMedians = 5;
constexpr absl::Duration kLeastLimit = absl::Seconds(1);
// Until so many steps are measured, whose median says something. First steps are slow.
constexpr int64_t kLeastSteps = 10;
constexpr absl::Duration kFirstLimit = absl::Seconds(5);
constexpr size_t kNamedRanks = 8;

std::string WhoOf(const View& view, const std::vector<Rank>& ranks) {
  std::vector<std::string> names;
  for (const Rank rank : ranks) {
    if (names.size() == kNamedRanks) {
      names.push_back(absl::StrCat("and ", ranks.size() - kNamedRanks, " more"));
      break;
    }
    const bool known = rank >= 0 && static_cast<size_t>(rank) < view.members.size();
    names.push_back(absl::StrCat(known ? view.members[static_cast<size_t>(rank)].name : "?",
                                 " (rank ", rank, ")"));
  }
  return absl::StrJoin(names, ", ");
}

std::string WhatOf(const OperationWait& wait) {
  std::string text = wait.what;
  if (!wait.label.empty()) absl::StrAppend(&text, " '", wait.label, "'");
  if (wait.step != 0) absl::StrAppend(&text, " of step ", wait.step);
  return text;
}

}  // namespace

void WaitReporter::SetMedianStep(absl::Duration median, int64_t steps) {
  median_us_ = steps < kLeastSteps ? 0 : std::max<int64_t>(1, absl::ToInt64Microseconds(median));
}

absl::Duration WaitReporter::limit() const {
  if (limit_ > absl::ZeroDuration()) return limit_;
  const int64_t median_us = median_us_;
  if (median_us == 0) return kFirstLimit;
  return std::max(kLeastLimit, kMedians * absl::Microseconds(median_us));
}

std::optional<CollectiveWait> WaitReporter::Take(const View& view, const OperationWait& wait,
                                                 absl::Time now) {
  MutexLock lock(&mutex_);
  const bool late = !wait.waits_for.empty() && wait.waited >= limit();
  if (gauges_ != nullptr) {
    gauges_->SetWaiting(wait.over ? absl::ZeroDuration() : wait.waited);
    if (late || late_) {
      for (const Rank rank : wait.waits_for) gauges_->CountStraggler(rank, wait.waited - counted_);
    }
  }
  if (late || late_) counted_ = wait.waited;
  if (late && !late_ && !wait.over) {
    late_ = true;
    if (now - last_line_ < kLogInterval) {
      ++unlogged_;
    } else {
      const std::string others =
          unlogged_ == 0 ? ""
                         : absl::StrCat("; so had ", unlogged_, " more since the last such line");
      logger_.Warning(
          "collective_late",
          absl::StrFormat("%s has stood still for %.1f s, waiting for %s%s", WhatOf(wait),
                          absl::ToDoubleSeconds(wait.waited), WhoOf(view, wait.waits_for), others),
          {{"waits_for", WhoOf(view, wait.waits_for)},
           {"bucket", wait.label},
           {"waiting_step", wait.step},
           {"waited_ms", absl::ToDoubleMilliseconds(wait.waited)}});
      logged_ = true;
      last_line_ = now;
      unlogged_ = 0;
    }
  }
  if (wait.over) {
    if (logged_) {
      logger_.Info("collective_resumed",
                   absl::StrFormat("%s no longer waits for %s, after %.1f s", WhatOf(wait),
                                   WhoOf(view, wait.waits_for), absl::ToDoubleSeconds(wait.waited)),
                   {{"waits_for", WhoOf(view, wait.waits_for)},
                    {"waited_ms", absl::ToDoubleMilliseconds(wait.waited)}});
    }
    late_ = logged_ = false;
    counted_ = absl::ZeroDuration();
    return std::nullopt;
  }
  if (wait.waits_for.empty()) return std::nullopt;  // local work takes its time
  return CollectiveWait{.operation = wait.what,
                        .label = wait.label,
                        .step = wait.step,
                        .waits_for = wait.waits_for,
                        .waited_ms = absl::ToInt64Milliseconds(wait.waited),
                        .late = late_};
}

}  // namespace muster
