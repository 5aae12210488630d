#include "collectives/schedule/make_schedule.h"

#include "collectives/schedule/checker.h"
#include "collectives/schedule/cost.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/collectives/schedule/request_grid.h"

namespace muster {
namespace {

class MakeScheduleTest : public testing::TestWithParam<int> {};

TEST_P(MakeScheduleTest, EveryScheduleIsProved) {
  const int size = GetParam();
  for (const Collective collective : kAllCollectives) {
    if (collective == Collective::kSendReceive && size == 1) continue;
    for (const Algorithm algorithm : AlgorithmsOf(collective)) {
      int64_t worlds = 0;
      ForEachWorld(collective, algorithm, size, [&](const World& world) {
        const absl::Status status = CheckSchedules(world.requests, MakeSchedules(world));
        ASSERT_TRUE(status.ok()) << world.text << ": " << status.message();
        ++worlds;
      });
      // Every total, except in a barrier, which has none.
      const size_t least = collective == Collective::kBarrier ? 3 : TotalsFor(size).size();
      EXPECT_GE(worlds, static_cast<int64_t>(least)) << Name(collective) << Name(algorithm);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(WorldSizes, MakeScheduleTest, testing::Range(1, 34));

TEST(MakeScheduleTest, RingOfThreeReadsAsInTheDocument) {
  const ScheduleRequest request = {.rank = 1, .size = 3, .count = 6};
  const Schedule schedule = MakeSchedule(request).value();
  ASSERT_EQ(schedule.steps.size(), 8u);
  // Rank 1 is odd, so it receives first: chunk 2 on its way from rank 0 to its owner.
  EXPECT_EQ(schedule.steps[0].kind, StepKind::kRecvReduce);
  EXPECT_EQ(schedule.steps[0].peer, 0);
  EXPECT_EQ(schedule.steps[0].source, (Slice{BufferName::kInput, 4, 2}));
  EXPECT_EQ(schedule.steps[0].target, (Slice{BufferName::kOutput, 4, 2}));
  EXPECT_FALSE(schedule.steps[0].completes_sum);
  EXPECT_EQ(schedule.steps[1].kind, StepKind::kSend);
  EXPECT_EQ(schedule.steps[1].peer, 2);
  EXPECT_EQ(schedule.steps[1].source, (Slice{BufferName::kInput, 0, 2}));
  EXPECT_EQ(schedule.steps[2].target, (Slice{BufferName::kOutput, 2, 2}));
  EXPECT_TRUE(schedule.steps[2].completes_sum);
}

TEST(MakeScheduleTest, LargeWorldsAreProvedToo) {
  for (const Collective collective : kAllCollectives) {
    for (const Algorithm algorithm : AlgorithmsOf(collective)) {
      const World world = WorldOf(collective, algorithm, 100, 1, false, InPlace::kNone);
      EXPECT_EQ(CheckSchedules(world.requests, MakeSchedules(world)), absl::OkStatus())
          << world.text;
    }
  }
}

TEST(MakeScheduleTest, HalfPrecisionReducesInOneStepOrIsRefused) {
  for (const Collective collective : kAllCollectives) {
    if (!Reduces(collective)) continue;
    for (const Algorithm algorithm : AlgorithmsOf(collective)) {
      World world = WorldOf(collective, algorithm, 5, 10, true, InPlace::kNone);
      for (const ScheduleRequest& request : world.requests) {
        const absl::StatusOr<Schedule> schedule = MakeSchedule(request);
        ASSERT_EQ(schedule.ok(), KeepsCanonicalOrder(collective, algorithm)) << world.text;
        if (!schedule.ok()) {
          EXPECT_THAT(std::string(schedule.status().message()),
                      testing::HasSubstr("would round 16-bit floats at every hop"));
          continue;
        }
        for (const ScheduleStep& step : schedule->steps) {
          EXPECT_NE(step.kind, StepKind::kRecvReduce) << world.text;
        }
      }
    }
  }
}

TEST(MakeScheduleTest, RanksOutsideThePairTakeNoPartInASendReceive) {
  const World world =
      WorldOf(Collective::kSendReceive, Algorithm::kDirect, 5, 3, false, InPlace::kNone);
  const std::vector<Schedule> schedules = MakeSchedules(world);
  for (Rank rank = 0; rank < 5; ++rank) {
    EXPECT_EQ(schedules[rank].steps.empty(), rank != 2 && rank != 4) << rank;
  }
}

// Messages that cross hosts carry each element once per host and direction of the lane's exchange:
// no rank of a host sends to another host what a neighbour has sent.
TEST(MakeScheduleTest, HierarchicalCrossesHostsWithTheShareOfOneRank) {
  ScheduleRequest request = {.algorithm = Algorithm::kHierarchical, .size = 15, .count = 56 * 8};
  for (Rank rank = 0; rank < 15; ++rank) request.hosts.push_back(rank < 7 ? 0 : 1);
  for (request.rank = 0; request.rank < 15; ++request.rank) {
    int64_t crossing = 0;
    const Schedule schedule = MakeSchedule(request).value();
    for (const ScheduleStep& step : schedule.steps) {
      if (step.kind == StepKind::kSend && request.hosts[step.peer] != request.hosts[request.rank]) {
        crossing += step.source.count;
      }
    }
    // Half of the own part goes to be reduced, and half of it back.
    EXPECT_NEAR(static_cast<double>(crossing), request.rank < 7 ? 64.0 : 56.0, 2.0) << request.rank;
  }
}

TEST(ChooseAlgorithmTest, SmallGoesDirectAndLargeAroundTheRing) {
  constexpr int64_t kLimit = 1000;
  for (const Collective collective :
       {Collective::kReduceScatter, Collective::kAllGather, Collective::kReduce}) {
    EXPECT_EQ(ChooseAlgorithm(collective, false, 0, 4, kLimit), Algorithm::kDirect);
    EXPECT_EQ(ChooseAlgorithm(collective, false, 1000, 4, kLimit), Algorithm::kDirect);
    EXPECT_EQ(ChooseAlgorithm(collective, false, 1001, 4, kLimit), Algorithm::kRing);
  }
  EXPECT_EQ(ChooseAlgorithm(Collective::kBroadcast, false, 1000, 4, kLimit),
            Algorithm::kBinomialTree);
  EXPECT_EQ(ChooseAlgorithm(Collective::kBroadcast, false, 1001, 4, kLimit), Algorithm::kRing);
  EXPECT_EQ(ChooseAlgorithm(Collective::kReduceScatter, true, 1 << 30, 4, kLimit),
            Algorithm::kDirect);
  EXPECT_EQ(ChooseAlgorithm(Collective::kAllReduce, true, 1 << 30, 4, kLimit), Algorithm::kRing);
  EXPECT_EQ(ChooseAlgorithm(Collective::kBarrier, false, 0, 4, kLimit), Algorithm::kDirect);
}

TEST(ChooseAlgorithmTest, AShortAllReduceTakesOneHop) {
  const auto choose = [](int64_t bytes, int size, int64_t limit) {
    return ChooseAlgorithm(Collective::kAllReduce, false, bytes, size, limit);
  };
  constexpr int64_t kLimit = 64 << 10;
  EXPECT_EQ(choose(0, 1, kLimit), Algorithm::kOneShot);
  EXPECT_EQ(choose(48 << 10, 2, kLimit), Algorithm::kOneShot);
  EXPECT_EQ(choose((48 << 10) + 1, 2, kLimit), Algorithm::kDirect);
  EXPECT_EQ(choose(16 << 10, 4, kLimit), Algorithm::kOneShot);
  EXPECT_EQ(choose((16 << 10) + 1, 4, kLimit), Algorithm::kDirect);
  EXPECT_EQ(choose((64 << 10) + 1, 4, kLimit), Algorithm::kRing);
  // Where nothing may go directly, neither.
  EXPECT_EQ(choose(1, 4, 0), Algorithm::kRing);
}

TEST(ChooseAlgorithmTest, ChoosesOnlyWhatExistsAndKeepsTheOrder) {
  for (const Collective collective : kAllCollectives) {
    for (const bool half : {false, true}) {
      for (const int64_t bytes : {0, 100, 10'000}) {
        const Algorithm algorithm = ChooseAlgorithm(collective, half, bytes, 6, 1000);
        EXPECT_THAT(AlgorithmsOf(collective), testing::Contains(algorithm)) << Name(collective);
        EXPECT_TRUE(KeepsCanonicalOrder(collective, algorithm)) << Name(collective);
      }
    }
  }
}

}  // namespace
}  // namespace muster
