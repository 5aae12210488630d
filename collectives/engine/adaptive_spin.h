// Whether to spin before blocking, learnt from whether spinning has paid of late.
//
// Spinning saves a sleep and a wake-up where each rank has a core to itself, and starves the very
// rank it waits for where ranks share one, which no count of cores tells (other programs run, too).
// Each wait that ends within its spin earns a credit, each that outlasts it costs two; without
// credit only every kRetryAfter-th wait spins. A spin is always as long as it may be: where all
// ranks sleep, a wait lasts as long as a wake-up takes, and a shorter spin would never find out
// that it pays. Not thread-safe.
#ifndef MUSTER_COLLECTIVES_ENGINE_ADAPTIVE_SPIN_H_
#define MUSTER_COLLECTIVES_ENGINE_ADAPTIVE_SPIN_H_

#include <algorithm>

#include "absl/time/time.h"

namespace muster {

class AdaptiveSpin {
 public:
  static constexpr absl::Duration kNoWait = absl::Nanoseconds(1500);
  static constexpr int kMostCredit = 16;
  static constexpr int kRetryAfter = 50;

  // Of `longest` zero it never spins.
  explicit AdaptiveSpin(absl::Duration longest) : longest_(longest) {}

  absl::Duration longest() const { return longest_; }

  // For the next wait: the longest or none.
  absl::Duration Next() {
    if (credit_ > 0) return longest_;
    if (++without_ < kRetryAfter) return absl::ZeroDuration();
    without_ = 0;
    return longest_;
  }

  // A wait that was allowed `spin` took `took`.
  void Report(absl::Duration spin, absl::Duration took) {
    if (spin == absl::ZeroDuration()) return;
    if (took < kNoWait) return;  // What it would have waited for was there: says nothing.
    credit_ = took <= spin ? std::min(kMostCredit, credit_ + 1) : std::max(0, credit_ - 2);
  }

 private:
  const absl::Duration longest_;
  int credit_ = kMostCredit;
  int without_ = 0;  // waits in a row that did not spin
};

}  // namespace muster

#endif  // MUSTER_COLLECTIVES_ENGINE_ADAPTIVE_SPIN_H_
