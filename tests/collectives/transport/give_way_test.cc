#include "collectives/transport/give_way.h"

#include "gtest/gtest.h"

namespace muster {
namespace {

TEST(GiveWayTest, EndsWhenItIsThereOrTheTimeIsOver) {
  GiveWay give_way;
  int looks = 0;
  EXPECT_TRUE(give_way.Until(absl::InfiniteFuture(), absl::InfiniteDuration(),
                             [&] { return ++looks == 3; }));
  EXPECT_EQ(looks, 3);
  EXPECT_FALSE(give_way.Until(absl::InfiniteFuture(), absl::Nanoseconds(1), [] { return false; }));
  // Past its deadline it does not even look.
  EXPECT_FALSE(give_way.Until(absl::InfinitePast(), absl::InfiniteDuration(), [&] {
    ++looks;
    return true;
  }));
  EXPECT_EQ(looks, 3);
}

TEST(GiveWayTest, IsLeftAloneForSomeWaitsWhereTheCoreWasKept) {
  GiveWay give_way;
  int looks = 0;
  const auto look = [&] {
    // As if another had run all the while.
    const absl::Time until = absl::Now() + absl::Milliseconds(1);
    while (absl::Now() < until) {
    }
    return ++looks > 0;
  };
  EXPECT_TRUE(give_way.Until(absl::InfiniteFuture(), GiveWay::kLongest, look));
  int slept = 0;
  while (looks == 1 && slept < 1000) {
    if (!give_way.Until(absl::InfiniteFuture(), GiveWay::kLongest, look)) ++slept;
  }
  EXPECT_GT(slept, 1);
  EXPECT_LT(slept, 1000);
}

}  // namespace
}  // namespace muster
