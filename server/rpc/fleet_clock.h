// The time by which the coordinator measures silence.
//
// It starts at the wall clock and then follows the monotonic clock, so that a change of the wall
// clock lapses no lease. It also stands still while the process is stopped or starved: words of
// workers that came meanwhile are still unread then, and would otherwise be taken for silence.
//
// Not thread-safe. Observe must be called at least every kLongestGap for time to go on.
#ifndef MUSTER_SERVER_RPC_FLEET_CLOCK_H_
#define MUSTER_SERVER_RPC_FLEET_CLOCK_H_

#include "absl/time/time.h"

namespace muster {

class FleetClock {
 public:
  static constexpr absl::Duration kLongestGap = absl::Milliseconds(500);

  FleetClock(absl::Time wall, absl::Duration monotonic) : now_(wall), last_(monotonic) {}

  // `monotonic` is the time since any fixed point. Returns the fleet's time, which never goes back.
  absl::Time Observe(absl::Duration monotonic) {
    const absl::Duration gap = monotonic - last_;
    last_ = monotonic;
    if (gap > absl::ZeroDuration()) now_ += gap < kLongestGap ? gap : kLongestGap;
    return now_;
  }

 private:
  absl::Time now_;
  absl::Duration last_;
};

}  // namespace muster

#endif  // MUSTER_SERVER_RPC_FLEET_CLOCK_H_
