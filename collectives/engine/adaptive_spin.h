// How long to spin before blocking, learnt from whether spinning has paid of late.
//
// Spinning saves a sleep and a wake-up where each rank has a core to itself, and starves the very
// rank it waits for where ranks share one, which no count of cores tells (other programs run, too).
// A wait that outlasts its spin halves the next one's, down to none; one that ends within it
// lengthens it by a quarter. While there is none, every kRetryAfter-th wait tries a short one. Not
// thread-safe.
#ifndef MUSTER_COLLECTIVES_ENGINE_ADAPTIVE_SPIN_H_
#define MUSTER_COLLECTIVES_ENGINE_ADAPTIVE_SPIN_H_

#include <algorithm>

#include "absl/time/time.h"

namespace muster {

class AdaptiveSpin {
 public:
  static constexpr absl::Duration kShortest = absl::Microseconds(20);
  static constexpr absl::Duration kNoWait = absl::Nanoseconds(1500);
  static constexpr int kRetryAfter = 50;

  // Of `longest` zero it never spins.
  explicit AdaptiveSpin(absl::Duration longest) : longest_(longest), spin_(longest) {}

  absl::Duration longest() const { return longest_; }

  // For the next wait.
  absl::Duration Next() {
    if (spin_ > absl::ZeroDuration() || longest_ == absl::ZeroDuration()) return spin_;
    return ++without_ % kRetryAfter == 0 ? std::min(kShortest, longest_) : absl::ZeroDuration();
  }

  // A wait that was allowed `spin` took `took`.
  void Report(absl::Duration spin, absl::Duration took) {
    if (spin == absl::ZeroDuration()) return;
    if (took < kNoWait) return;  // What it would have waited for was there: says nothing.
    if (took <= spin) {
      spin_ = std::min(longest_, std::max(kShortest, spin * 5 / 4));
    } else {
      spin_ = spin / 2 < kShortest ? absl::ZeroDuration() : spin / 2;
    }
  }

 private:
  const absl::Duration longest_;
  absl::Duration spin_;
  int without_ = 0;
};

}  // namespace muster

#endif  // MUSTER_COLLECTIVES_ENGINE_ADAPTIVE_SPIN_H_
