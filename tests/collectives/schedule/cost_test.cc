#include "collectives/schedule/cost.h"

#include "gtest/gtest.h"

namespace muster {
namespace {

// Numbers worked out by hand, so that the formulas do not stand on their own.
TEST(CostTest, RingAllReduceSendsTwiceAllButOneChunk) {
  const ScheduleRequest request = {.rank = 3, .size = 4, .count = 400};
  EXPECT_EQ(CostOf(request), (ScheduleCost{6, 6, 600, 0}));
}

TEST(CostTest, DirectAllReduceSendsAsMuchInTwoHops) {
  const ScheduleRequest request = {
      .algorithm = Algorithm::kDirect, .rank = 3, .size = 4, .count = 400};
  EXPECT_EQ(CostOf(request), (ScheduleCost{2, 6, 600, 300}));
}

TEST(CostTest, HalfPrecisionRingReducesDirectly) {
  const ScheduleRequest request = {.rank = 3, .size = 4, .count = 400, .half_precision = true};
  EXPECT_EQ(CostOf(request), (ScheduleCost{4, 6, 600, 300}));
}

TEST(CostTest, UnevenChunks) {
  ScheduleRequest request = {
      .collective = Collective::kReduceScatter, .rank = 1, .size = 4, .counts = {5, 7, 0, 11}};
  // Chunks 2 and 3 pass through rank 1; 5, 0 and 11 leave it.
  EXPECT_EQ(CostOf(request), (ScheduleCost{3, 2, 16, 22}));
  request.algorithm = Algorithm::kDirect;
  EXPECT_EQ(CostOf(request), (ScheduleCost{1, 2, 16, 21}));
  request.collective = Collective::kAllGather;
  EXPECT_EQ(CostOf(request), (ScheduleCost{1, 3, 21, 0}));
  request.algorithm = Algorithm::kRing;  // all but chunk 2, which rank 2 owns
  EXPECT_EQ(CostOf(request), (ScheduleCost{3, 3, 23, 0}));
}

TEST(CostTest, Broadcast) {
  ScheduleRequest request = {
      .collective = Collective::kBroadcast, .rank = 2, .size = 6, .count = 10, .root = 2};
  EXPECT_EQ(CostOf(request), (ScheduleCost{5, 1, 10, 0}));
  request.algorithm = Algorithm::kDirect;
  EXPECT_EQ(CostOf(request), (ScheduleCost{2, 3, 30, 0}));  // to 4, 2 and 1 from the root
  request.rank = 0;                                         // 4 from the root: passes on to 5
  EXPECT_EQ(CostOf(request), (ScheduleCost{2, 1, 10, 0}));
  request.rank = 1;  // 5 from the root: a leaf
  EXPECT_EQ(CostOf(request), (ScheduleCost{2, 0, 0, 0}));
}

TEST(CostTest, Barrier) {
  const ScheduleRequest request = {.collective = Collective::kBarrier, .size = 9};
  EXPECT_EQ(CostOf(request), (ScheduleCost{4, 4, 4, 5}));
}

TEST(CostTest, OneRankSendsNothing) {
  for (const Algorithm algorithm : {Algorithm::kRing, Algorithm::kDirect}) {
    const ScheduleRequest request = {.algorithm = algorithm, .size = 1, .count = 10};
    EXPECT_EQ(CostOf(request), (ScheduleCost{0, 0, 0, 0}));
  }
}

}  // namespace
}  // namespace muster
