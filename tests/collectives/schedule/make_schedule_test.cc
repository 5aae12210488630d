#include "collectives/schedule/make_schedule.h"

#include "collectives/schedule/checker.h"
#include "gtest/gtest.h"
#include "tests/collectives/schedule/request_grid.h"

namespace muster {
namespace {

class MakeScheduleTest : public testing::TestWithParam<int> {};

TEST_P(MakeScheduleTest, EveryScheduleIsProved) {
  int64_t worlds = 0;
  ForEachWorld(GetParam(), [&](const World& world) {
    const absl::Status status = CheckSchedules(world.requests, MakeSchedules(world));
    ASSERT_TRUE(status.ok()) << world.text << ": " << status.message();
    ++worlds;
  });
  // 3 in-place uses x 2 algorithms x (barrier + 6 totals x (roots + 2 precisions x 7)).
  EXPECT_EQ(worlds, 3 * 2 * (1 + 6 * (GetParam() + 2 * 7)));
}

INSTANTIATE_TEST_SUITE_P(WorldSizes, MakeScheduleTest, testing::Range(1, 18));

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
  for (const Algorithm algorithm : kAlgorithms) {
    for (const Collective collective :
         {Collective::kAllReduce, Collective::kReduceScatter, Collective::kAllGather,
          Collective::kBroadcast, Collective::kBarrier}) {
      ScheduleRequest request = {.collective = collective, .algorithm = algorithm, .size = 100};
      if (collective == Collective::kBroadcast) request.root = 63;
      if (collective == Collective::kAllReduce || collective == Collective::kBroadcast) {
        request.count = 130;
      } else if (collective != Collective::kBarrier) {
        request.counts = EvenCounts(130, 100);
      }
      const World world = MakeWorld(request, InPlace::kNone);
      EXPECT_EQ(CheckSchedules(world.requests, MakeSchedules(world)), absl::OkStatus())
          << world.text;
    }
  }
}

TEST(MakeScheduleTest, HalfPrecisionReducesInOneStep) {
  for (const Algorithm algorithm : kAlgorithms) {
    const ScheduleRequest request = {
        .algorithm = algorithm, .rank = 2, .size = 5, .count = 50, .half_precision = true};
    int reductions = 0;
    const Schedule schedule = MakeSchedule(request).value();
    for (const ScheduleStep& step : schedule.steps) {
      EXPECT_NE(step.kind, StepKind::kRecvReduce);
      if (step.kind == StepKind::kReduce) ++reductions;
    }
    EXPECT_EQ(reductions, 1);
  }
}

TEST(ChooseAlgorithmTest, SmallGoesDirectAndLargeAroundTheRing) {
  constexpr int64_t kLimit = 1000;
  for (const Collective collective : {Collective::kAllReduce, Collective::kReduceScatter,
                                      Collective::kAllGather, Collective::kBroadcast}) {
    EXPECT_EQ(ChooseAlgorithm(collective, false, 0, 4, kLimit), Algorithm::kDirect);
    EXPECT_EQ(ChooseAlgorithm(collective, false, 1000, 4, kLimit), Algorithm::kDirect);
    EXPECT_EQ(ChooseAlgorithm(collective, false, 1001, 4, kLimit), Algorithm::kRing);
  }
  EXPECT_EQ(ChooseAlgorithm(Collective::kReduceScatter, true, 1 << 30, 4, kLimit),
            Algorithm::kDirect);
  EXPECT_EQ(ChooseAlgorithm(Collective::kAllReduce, true, 1 << 30, 4, kLimit), Algorithm::kRing);
  EXPECT_EQ(ChooseAlgorithm(Collective::kBarrier, false, 0, 4, kLimit), Algorithm::kDirect);
}

}  // namespace
}  // namespace muster
