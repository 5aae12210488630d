// What is particular to pushes and pulls; that all of them are right, make_schedule_test proves.
#include "collectives/schedule/push_pull.h"

#include <map>

#include "collectives/schedule/checker.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/collectives/schedule/request_grid.h"

namespace muster {
namespace {

using ::testing::HasSubstr;

// `workers` ranks, then `servers` that own everything.
ScheduleRequest Dedicated(Collective collective, int workers, int servers) {
  ScheduleRequest request = {.collective = collective,
                             .algorithm = Algorithm::kDirect,
                             .size = workers + servers,
                             .counts = std::vector<int64_t>(workers),
                             .contributors = workers};
  const std::vector<int64_t> owned = EvenCounts(100 * servers, servers);
  request.counts.insert(request.counts.end(), owned.begin(), owned.end());
  if (collective == Collective::kPush) {
    request.order_counts = EvenCounts(100 * servers, workers);
  }
  return request;
}

TEST(PushPullTest, WorkersMeetTheServersInRotation) {
  for (const Collective collective : {Collective::kPush, Collective::kPull}) {
    for (int workers = 1; workers <= 9; ++workers) {
      for (int servers = 1; servers <= 9; ++servers) {
        const World world = MakeWorld(Dedicated(collective, workers, servers), InPlace::kNone);
        const std::vector<Schedule> schedules = MakeSchedules(world);
        for (int round = 0; round < servers; ++round) {
          std::map<Rank, int> busy;
          for (Rank worker = 0; worker < workers; ++worker) {
            ASSERT_EQ(schedules[worker].steps.size(), static_cast<size_t>(servers));
            ++busy[schedules[worker].steps[round].peer];
          }
          // As many links as there can be, and none with two more than another.
          ASSERT_EQ(static_cast<int>(busy.size()), std::min(workers, servers)) << world.text;
          for (const auto& [server, times] : busy) {
            ASSERT_LE(times, (workers + servers - 1) / servers) << world.text;
            ASSERT_GE(times, workers / servers) << world.text;
          }
        }
      }
    }
  }
}

TEST(PushPullTest, APushOfAllRanksInTheirOwnOrderSumsAsTheDirectReduceScatter) {
  for (const int size : {2, 3, 8}) {
    for (const auto& counts : ChunkCountsFor(50, size)) {
      ScheduleRequest push = {.collective = Collective::kPush,
                              .algorithm = Algorithm::kDirect,
                              .size = size,
                              .counts = counts,
                              .contributors = size,
                              .order_counts = counts};
      for (push.rank = 0; push.rank < size; ++push.rank) {
        ScheduleRequest scatter = push;
        scatter.collective = Collective::kReduceScatter;
        scatter.contributors = 0;
        scatter.order_counts.clear();
        // The ranks in the order in which they are added.
        const auto order = [](const ScheduleRequest& request) {
          std::map<int64_t, Rank> rank_of;  // by offset in scratch
          std::vector<Rank> ranks;
          const Schedule schedule = MakeSchedule(request).value();
          for (const ScheduleStep& step : schedule.steps) {
            if (step.kind == StepKind::kRecv) rank_of[step.target.offset] = step.peer;
            if (step.kind != StepKind::kReduce) continue;
            for (const Slice& source : step.sources) {
              ranks.push_back(source.buffer == BufferName::kScratch ? rank_of.at(source.offset)
                                                                    : request.rank);
            }
          }
          return ranks;
        };
        EXPECT_EQ(order(push), order(scatter)) << size << " rank " << push.rank;
      }
    }
  }
}

TEST(PushPullTest, AServersSumIsMadeWhereItsFirstContributionWaits) {
  ScheduleRequest request = Dedicated(Collective::kPush, 2, 1);
  request.rank = 2;
  const Schedule schedule = MakeSchedule(request).value();
  ASSERT_EQ(schedule.steps.size(), 4u);  // 50 elements are summed 1 + 0, the others 0 + 1.
  const Slice in_output = {BufferName::kOutput, 0, 100};
  const Slice in_scratch = {BufferName::kScratch, 0, 100};
  EXPECT_EQ(schedule.scratch_count, 100);
  EXPECT_EQ(schedule.steps[0].peer, 0);
  EXPECT_EQ(schedule.steps[0].target, in_output);
  EXPECT_EQ(schedule.steps[1].target, in_scratch);
  EXPECT_EQ(schedule.steps[2].sources,
            (std::vector<Slice>{{BufferName::kScratch, 0, 50}, {BufferName::kOutput, 0, 50}}));
  EXPECT_EQ(schedule.steps[3].sources,
            (std::vector<Slice>{{BufferName::kOutput, 50, 50}, {BufferName::kScratch, 50, 50}}));
}

TEST(PushPullTest, OfOneWorkerNothingIsAdded) {
  for (const Rank rank : {0, 1}) {
    ScheduleRequest request = Dedicated(Collective::kPush, 1, 1);
    request.counts = {30, 70};
    request.rank = rank;
    const Schedule schedule = MakeSchedule(request).value();
    for (const ScheduleStep& step : schedule.steps) {
      EXPECT_NE(step.kind, StepKind::kReduce);
      EXPECT_FALSE(step.completes_sum);
    }
  }
}

TEST(PushPullTest, TheCheckerRejectsTheOrderOfTheOwnersChunk) {
  // Rank 0 owns all, but elements 5 to 9 are to be summed as a chunk of rank 1.
  ScheduleRequest request = {.collective = Collective::kPush,
                             .algorithm = Algorithm::kDirect,
                             .size = 3,
                             .counts = {10, 0, 0},
                             .contributors = 3,
                             .order_counts = {5, 5, 0}};
  const World asked = MakeWorld(request, InPlace::kNone);
  request.order_counts = {10, 0, 0};
  const World done = MakeWorld(request, InPlace::kNone);
  EXPECT_THAT(std::string(CheckSchedules(asked.requests, MakeSchedules(done)).message()),
              HasSubstr("makes position 5 ((1+2)+0), expected ((2+0)+1)"));
}

}  // namespace
}  // namespace muster
