#include "server/rpc/timer_queue.h"

#include "gtest/gtest.h"

namespace muster {
namespace {

using coordinator::TimerId;
using coordinator::TimerKind;

absl::Time At(int64_t ms) { return absl::FromUnixMillis(ms); }
TimerId Lease(uint64_t worker) { return {TimerKind::kLease, Incarnation{worker}}; }

TEST(TimerQueue, FiresInOrderOfTimeAndOnce) {
  TimerQueue timers;
  EXPECT_EQ(timers.NextDue(), absl::InfiniteFuture());
  timers.Set(Lease(1), At(30));
  timers.Set(Lease(2), At(10));
  timers.Set({TimerKind::kStart, {}}, At(20));
  EXPECT_EQ(timers.NextDue(), At(10));
  EXPECT_EQ(timers.PopDue(At(9)), std::nullopt);
  EXPECT_EQ(timers.PopDue(At(25)), Lease(2));
  EXPECT_EQ(timers.PopDue(At(25)), (TimerId{TimerKind::kStart, {}}));
  EXPECT_EQ(timers.PopDue(At(25)), std::nullopt);
  EXPECT_EQ(timers.PopDue(At(30)), Lease(1));
  EXPECT_EQ(timers.size(), 0u);
}

TEST(TimerQueue, SetReplacesAndCancelUnsets) {
  TimerQueue timers;
  timers.Set(Lease(1), At(10));
  timers.Set(Lease(1), At(50));
  EXPECT_EQ(timers.size(), 1u);
  EXPECT_EQ(timers.PopDue(At(10)), std::nullopt);
  timers.Cancel(Lease(1));
  timers.Cancel(Lease(2));  // never set
  EXPECT_EQ(timers.PopDue(absl::InfiniteFuture()), std::nullopt);
}

TEST(TimerQueue, SameTimeKeepsEveryTimer) {
  TimerQueue timers;
  for (uint64_t worker = 1; worker <= 100; ++worker) timers.Set(Lease(worker), At(10));
  int fired = 0;
  while (timers.PopDue(At(10))) ++fired;
  EXPECT_EQ(fired, 100);
}

}  // namespace
}  // namespace muster
