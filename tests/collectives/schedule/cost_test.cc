#include "collectives/schedule/cost.h"

#include "gtest/gtest.h"

namespace muster {
namespace {

// Numbers worked out by hand, so that the formulas do not stand on their own: hops, messages,
// elements, scratch, additions.
TEST(CostTest, RingAllReduceSendsTwiceAllButOneChunk) {
  const ScheduleRequest request = {.rank = 3, .size = 4, .count = 400};
  EXPECT_EQ(CostOf(request), (ScheduleCost{6, 6, 600, 0, 300}));
}

TEST(CostTest, DirectAllReduceSendsAsMuchInTwoHops) {
  const ScheduleRequest request = {
      .algorithm = Algorithm::kDirect, .rank = 3, .size = 4, .count = 400};
  EXPECT_EQ(CostOf(request), (ScheduleCost{2, 6, 600, 300, 300}));
}

TEST(CostTest, HalfPrecisionRingReducesDirectly) {
  const ScheduleRequest request = {.rank = 3, .size = 4, .count = 400, .half_precision = true};
  EXPECT_EQ(CostOf(request), (ScheduleCost{4, 6, 600, 300, 300}));
}

TEST(CostTest, OfTwoRanksHalfPrecisionIsAPlainRing) {
  const ScheduleRequest request = {.rank = 1, .size = 2, .count = 400, .half_precision = true};
  EXPECT_EQ(CostOf(request), (ScheduleCost{2, 2, 400, 0, 200}));
}

TEST(CostTest, RecursiveDoublingSendsTheVectorOncePerRound) {
  ScheduleRequest request = {
      .algorithm = Algorithm::kRecursiveDoubling, .rank = 3, .size = 8, .count = 10};
  EXPECT_EQ(CostOf(request), (ScheduleCost{3, 3, 30, 10, 30}));
  request.size = 6;  // 4 in the core; 0 and 2 hand theirs to 1 and 3.
  EXPECT_EQ(CostOf(request), (ScheduleCost{3, 3, 30, 10, 30}));
  request.rank = 2;
  EXPECT_EQ(CostOf(request), (ScheduleCost{3, 1, 10, 0, 0}));
  request.rank = 5;
  EXPECT_EQ(CostOf(request), (ScheduleCost{3, 2, 20, 10, 20}));
}

TEST(CostTest, HalvingDoublingSendsAsMuchAsTheRingInLogarithmicHops) {
  ScheduleRequest request = {
      .algorithm = Algorithm::kHalvingDoubling, .rank = 0, .size = 8, .count = 800};
  EXPECT_EQ(CostOf(request), (ScheduleCost{6, 6, 1400, 0, 700}));
  // Any number of ranks: 6 blocks out of 7 each way, in 3 + 3 rounds.
  request.size = 7;
  request.count = 700;
  EXPECT_EQ(CostOf(request), (ScheduleCost{6, 6, 1200, 0, 600}));
  // From rank 5 runs of 3, 2 and 1 blocks from 6, 2 and 4 on, and of 1, 2, 3 from 5 on, of which
  // the first and the last wrap around.
  request.rank = 5;
  EXPECT_EQ(CostOf(request), (ScheduleCost{6, 8, 1200, 0, 600}));
}

TEST(CostTest, DoubleTreeSendsTheVectorTwiceAtMost) {
  // In order: 4 below 0 (root), 2 and 6 below 4, odd ones below those. Rank 1 is a leaf there, and
  // number 6 of 8 in the mirror image: two children and a parent.
  ScheduleRequest request = {
      .algorithm = Algorithm::kDoubleTree, .rank = 1, .size = 8, .count = 100};
  EXPECT_EQ(CostOf(request), (ScheduleCost{6, 1 + 3, 4 * 50, 0, 2 * 50}));
  request.rank = 0;  // The root with one child; a leaf in the other.
  EXPECT_EQ(CostOf(request), (ScheduleCost{6, 1 + 1, 2 * 50, 0, 1 * 50}));
}

TEST(CostTest, StarLoadsItsServerWithEverything) {
  ScheduleRequest request = {
      .algorithm = Algorithm::kStar, .rank = 2, .size = 5, .count = 100, .root = 2};
  EXPECT_EQ(CostOf(request), (ScheduleCost{2, 4, 400, 400, 400}));
  request.rank = 1;
  EXPECT_EQ(CostOf(request), (ScheduleCost{2, 1, 100, 0, 0}));
}

TEST(CostTest, HierarchicalSendsOneShareBetweenHosts) {
  const ScheduleRequest request = {.algorithm = Algorithm::kHierarchical,
                                   .rank = 5,
                                   .size = 8,
                                   .count = 800,
                                   .hosts = {0, 0, 0, 0, 1, 1, 1, 1}};
  // Inside: 3 chunks of 200 out, and the own one to 3, in halves, the own half first. Between: half
  // of 200 out, half back.
  EXPECT_EQ(CostOf(request), (ScheduleCost{4, 3 + 6 + 2, 600 + 600 + 200, 0, 600 + 100}));
}

TEST(CostTest, UnevenChunks) {
  ScheduleRequest request = {
      .collective = Collective::kReduceScatter, .rank = 1, .size = 4, .counts = {5, 7, 0, 11}};
  // Chunks 2 and 3 pass through rank 1; 5, 0 and 11 leave it.
  EXPECT_EQ(CostOf(request), (ScheduleCost{3, 2, 16, 22, 18}));
  request.algorithm = Algorithm::kDirect;
  EXPECT_EQ(CostOf(request), (ScheduleCost{1, 2, 16, 21, 21}));
  // 0 and 11 go first, 5 then; sums of that and the own chunk are kept.
  request.algorithm = Algorithm::kHalvingDoubling;
  EXPECT_EQ(CostOf(request), (ScheduleCost{2, 2, 16, 12, 12 + 7}));
  request.collective = Collective::kAllGather;
  request.algorithm = Algorithm::kDirect;
  EXPECT_EQ(CostOf(request), (ScheduleCost{1, 3, 21, 0, 0}));
  request.algorithm = Algorithm::kRing;  // all but chunk 2, which rank 2 owns
  EXPECT_EQ(CostOf(request), (ScheduleCost{3, 3, 23, 0, 0}));
  request.algorithm = Algorithm::kBruck;  // 7, then 7 and 0
  EXPECT_EQ(CostOf(request), (ScheduleCost{2, 2, 14, 0, 0}));
}

TEST(CostTest, Broadcast) {
  ScheduleRequest request = {
      .collective = Collective::kBroadcast, .rank = 2, .size = 6, .count = 12, .root = 2};
  EXPECT_EQ(CostOf(request), (ScheduleCost{5, 1, 12, 0, 0}));
  request.algorithm = Algorithm::kDirect;
  EXPECT_EQ(CostOf(request), (ScheduleCost{1, 5, 60, 0, 0}));
  request.algorithm = Algorithm::kBinomialTree;
  EXPECT_EQ(CostOf(request), (ScheduleCost{2, 3, 36, 0, 0}));  // to 4, 2 and 1 from the root
  request.algorithm = Algorithm::kScatterAllGather;
  // Chunks of 2: to 4 (two of them), 2 (two) and 1; then all but that of 1 around.
  EXPECT_EQ(CostOf(request), (ScheduleCost{8, 3 + 5, 10 + 10, 0, 0}));
  request.algorithm = Algorithm::kBinomialTree;
  request.rank = 0;  // 4 from the root: passes on to 5
  EXPECT_EQ(CostOf(request), (ScheduleCost{2, 1, 12, 0, 0}));
  request.rank = 1;  // 5 from the root: a leaf
  EXPECT_EQ(CostOf(request), (ScheduleCost{2, 0, 0, 0, 0}));
}

TEST(CostTest, ReduceGatherAndScatterToTheRoot) {
  ScheduleRequest request = {.collective = Collective::kReduce,
                             .algorithm = Algorithm::kBinomialTree,
                             .rank = 4,
                             .size = 6,
                             .count = 12};
  EXPECT_EQ(CostOf(request), (ScheduleCost{2, 1, 12, 12, 12}));  // one child, 5
  request.algorithm = Algorithm::kRing;
  EXPECT_EQ(CostOf(request), (ScheduleCost{6, 6, 12, 6, 10}));
  request = {.collective = Collective::kGather,
             .algorithm = Algorithm::kBinomialTree,
             .rank = 2,
             .size = 4,
             .counts = {1, 2, 3, 4}};
  EXPECT_EQ(CostOf(request), (ScheduleCost{2, 1, 7, 7, 0}));  // with the chunk of rank 3
  request.collective = Collective::kScatter;
  EXPECT_EQ(CostOf(request), (ScheduleCost{2, 1, 4, 7, 0}));
  request.rank = 0;
  EXPECT_EQ(CostOf(request), (ScheduleCost{2, 2, 9, 0, 0}));
  request.algorithm = Algorithm::kDirect;
  EXPECT_EQ(CostOf(request), (ScheduleCost{1, 3, 9, 0, 0}));
}

TEST(CostTest, AllToAllAndSendReceive) {
  ScheduleRequest request = {.collective = Collective::kAllToAll,
                             .algorithm = Algorithm::kDirect,
                             .rank = 2,
                             .size = 8,
                             .count = 5};
  EXPECT_EQ(CostOf(request), (ScheduleCost{1, 7, 35, 0, 0}));
  request.algorithm = Algorithm::kBruck;  // 4 blocks out and in, three times
  EXPECT_EQ(CostOf(request), (ScheduleCost{3, 3, 60, 120, 0}));
  request = {.collective = Collective::kSendReceive,
             .algorithm = Algorithm::kDirect,
             .rank = 1,
             .size = 3,
             .count = 9,
             .root = 1,
             .destination = 2};
  EXPECT_EQ(CostOf(request), (ScheduleCost{1, 1, 9, 0, 0}));
}

TEST(CostTest, PushAndPullLoadAServerLinkWithItsShareOfEachWorker) {
  // Ranks 0 and 1 are workers, of which 0 owns 3 elements; 2 and 3 are servers.
  ScheduleRequest request = {.collective = Collective::kPush,
                             .algorithm = Algorithm::kDirect,
                             .size = 4,
                             .counts = {3, 0, 10, 7},
                             .contributors = 2,
                             .order_counts = {10, 10}};
  EXPECT_EQ(CostOf(request), (ScheduleCost{1, 2, 17, 3, 3}));
  request.rank = 1;
  EXPECT_EQ(CostOf(request), (ScheduleCost{1, 3, 20, 0, 0}));
  request.rank = 2;
  EXPECT_EQ(CostOf(request), (ScheduleCost{1, 0, 0, 10, 10}));
  request.collective = Collective::kPull;
  request.order_counts.clear();
  EXPECT_EQ(CostOf(request), (ScheduleCost{1, 2, 20, 0, 0}));
  request.rank = 0;
  EXPECT_EQ(CostOf(request), (ScheduleCost{1, 1, 3, 0, 0}));
}

TEST(CostTest, HierarchicalPushesAndPullsCarryTheHostsSums) {
  // Workers 0 and 1 on one host, 2 on another, the server on its own. The first two carry 5 of
  // chunks 2 and 3 each, worker 2 all that is not its own.
  ScheduleRequest request = {.collective = Collective::kPush,
                             .algorithm = Algorithm::kHierarchical,
                             .rank = 0,
                             .size = 4,
                             .counts = {3, 0, 4, 6},
                             .contributors = 3,
                             .order_counts = {13, 0, 0},
                             .hosts = {5, 5, 6, 7}};
  // To 1: 5 of chunk 3. To 2: 4, to 3: 1. Kept: those and 3 of another host.
  EXPECT_EQ(CostOf(request), (ScheduleCost{2, 3, 10, 5 + 3, 5 + 3 + 3}));
  request.rank = 1;  // To 0: 3, 4 and 1. To 3: 5.
  EXPECT_EQ(CostOf(request), (ScheduleCost{2, 4, 13, 5, 5}));
  request.rank = 2;  // Chunks 0 and 3; adds the other host's sum to its own.
  EXPECT_EQ(CostOf(request), (ScheduleCost{2, 2, 9, 4, 4}));
  request.rank = 3;
  EXPECT_EQ(CostOf(request), (ScheduleCost{2, 0, 0, 6, 6}));
  request.collective = Collective::kPull;
  request.order_counts.clear();
  // 3 and 2 pieces to each host.
  EXPECT_EQ(CostOf(request), (ScheduleCost{2, 3, 12, 0, 0}));
  request.rank = 0;  // Own chunk to 2, and with 4 and 1 to 1.
  EXPECT_EQ(CostOf(request), (ScheduleCost{2, 4, 3 + 8, 0, 0}));
  request.rank = 2;  // 4 to the first host, all on 0.
  EXPECT_EQ(CostOf(request), (ScheduleCost{2, 1, 4, 0, 0}));
}

TEST(CostTest, Barrier) {
  const ScheduleRequest request = {.collective = Collective::kBarrier, .size = 9};
  EXPECT_EQ(CostOf(request), (ScheduleCost{4, 4, 4, 5, 4}));
}

TEST(CostTest, OneRankSendsNothing) {
  for (const Algorithm algorithm : AlgorithmsOf(Collective::kAllReduce)) {
    ScheduleRequest request = {.algorithm = algorithm, .size = 1, .count = 10};
    if (algorithm == Algorithm::kHierarchical) request.hosts = {0};
    EXPECT_EQ(CostOf(request), (ScheduleCost{0, 0, 0, 0, 0})) << Name(algorithm);
  }
}

}  // namespace
}  // namespace muster
