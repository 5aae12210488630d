// Waiting by giving way: sched_yield, then a look whether what is waited for is there.
//
// Where ranks share cores, the one that is waited for may be meant to run on this very core. Giving
// way to it costs a fraction of a sleep and its wake-up as long as the cores are busy with ranks
// that soon do the same. It ends after kLongest, and is left alone for some waits where another
// kept the core for long: then it is computing, and better woken from.
//
// A GiveWay is not thread-safe.
#ifndef MUSTER_COLLECTIVES_TRANSPORT_GIVE_WAY_H_
#define MUSTER_COLLECTIVES_TRANSPORT_GIVE_WAY_H_

#include <sched.h>

#include <algorithm>
#include <thread>

#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace muster {

// Of so many ranks on this host some have no core to themselves.
inline bool RanksShareCores(int local_ranks) {
  return local_ranks > static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
}

class GiveWay {
 public:
  static constexpr absl::Duration kLongest = absl::Microseconds(100);

  // True: look() was. False: it is time to sleep, or the deadline has passed.
  template <typename Look>
  bool Until(absl::Time deadline, absl::Duration longest, const Look& look) {
    if (waits_to_sleep_ > 0) {
      --waits_to_sleep_;
      return false;
    }
    absl::Time before = absl::Now();
    const absl::Time until = std::min(deadline, before + longest);
    while (before < until) {
      sched_yield();
      const bool is_there = look();
      const absl::Time now = absl::Now();
      if (now - before > kCoreWasKept) waits_to_sleep_ = kWaitsToSleep;
      if (is_there) return true;
      before = now;
    }
    return false;
  }

 private:
  static constexpr absl::Duration kCoreWasKept = absl::Microseconds(200);
  static constexpr int kWaitsToSleep = 32;

  int waits_to_sleep_ = 0;
};

}  // namespace muster

#endif  // MUSTER_COLLECTIVES_TRANSPORT_GIVE_WAY_H_
