#include "server/rpc/fleet_clock.h"

#include "gtest/gtest.h"

namespace muster {
namespace {

const absl::Time kWall = absl::UnixEpoch() + absl::Hours(1);

TEST(FleetClock, FollowsTheMonotonicClock) {
  FleetClock clock(kWall, absl::Seconds(100));
  EXPECT_EQ(clock.Observe(absl::Seconds(100)), kWall);
  EXPECT_EQ(clock.Observe(absl::Milliseconds(100'250)), kWall + absl::Milliseconds(250));
  EXPECT_EQ(clock.Observe(absl::Milliseconds(100'251)), kWall + absl::Milliseconds(251));
}

TEST(FleetClock, StandsStillWhileTheProcessIsStopped) {
  FleetClock clock(kWall, absl::ZeroDuration());
  EXPECT_EQ(clock.Observe(absl::Seconds(60)), kWall + FleetClock::kLongestGap);
  EXPECT_EQ(clock.Observe(absl::Seconds(60) + absl::Milliseconds(10)),
            kWall + FleetClock::kLongestGap + absl::Milliseconds(10));
}

TEST(FleetClock, NeverGoesBack) {
  FleetClock clock(kWall, absl::Seconds(10));
  EXPECT_EQ(clock.Observe(absl::Seconds(9)), kWall);
}

}  // namespace
}  // namespace muster
