// What is particular to pushes and pulls; that all of them are right, make_schedule_test proves.
#include "collectives/schedule/push_pull.h"

#include <map>
#include <utility>
#include <vector>

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

// Servers on hosts of their own, or beside the workers of the first one.
class HierarchicalPushPullTest : public testing::TestWithParam<bool> {
 protected:
  ScheduleRequest Request(Collective collective, const std::vector<int>& workers_on, int servers) {
    int workers = 0;
    for (const int count : workers_on) workers += count;
    ScheduleRequest request = Dedicated(collective, workers, servers);
    request.algorithm = Algorithm::kHierarchical;
    for (size_t host = 0; host < workers_on.size(); ++host) {
      request.hosts.insert(request.hosts.end(), static_cast<size_t>(workers_on[host]),
                           static_cast<int32_t>(host));
    }
    for (int server = 0; server < servers; ++server) {
      request.hosts.push_back(GetParam() ? 0 : 100 + server);
    }
    return request;
  }
  // Elements sent between two hosts, by the sender's and the receiver's.
  std::map<std::pair<int32_t, int32_t>, int64_t> Crossing(ScheduleRequest request) {
    std::map<std::pair<int32_t, int32_t>, int64_t> elements;
    for (request.rank = 0; request.rank < request.size; ++request.rank) {
      const Schedule schedule = MakeSchedule(request).value();
      for (const ScheduleStep& step : schedule.steps) {
        if (step.kind != StepKind::kSend) continue;
        elements[{request.hosts[request.rank], request.hosts[step.peer]}] += step.source.count;
      }
    }
    return elements;
  }
};

TEST_P(HierarchicalPushPullTest, EachHostIsCrossedOnceWhateverItsWorkers) {
  for (const std::vector<int>& workers_on : {std::vector<int>{2, 2}, {7, 8}, {1, 3, 4}, {5}}) {
    for (const int servers : {1, 2, 3}) {
      const auto pushed = Crossing(Request(Collective::kPush, workers_on, servers));
      const auto pulled = Crossing(Request(Collective::kPull, workers_on, servers));
      for (int32_t host = GetParam() ? 1 : 0; host < static_cast<int32_t>(workers_on.size());
           ++host) {
        int64_t out = 0;
        int64_t in = 0;
        for (const auto& [hosts, elements] : pushed) {
          if (hosts.first == host && hosts.second != host) out += elements;
          ASSERT_FALSE(hosts.second == host && hosts.first != host) << "pushed to a worker";
        }
        for (const auto& [hosts, elements] : pulled) {
          if (hosts.second == host && hosts.first != host) in += elements;
        }
        EXPECT_EQ(out, 100 * servers) << host << " of " << workers_on.size();
        EXPECT_EQ(in, 100 * servers) << host << " of " << workers_on.size();
      }
    }
  }
}

TEST_P(HierarchicalPushPullTest, AllWorkersOfAHostCarryAlike) {
  ScheduleRequest request = Request(Collective::kPush, {7, 8}, 4);
  for (request.rank = 0; request.rank < 15; ++request.rank) {
    const Schedule schedule = MakeSchedule(request).value();
    int64_t carried = 0;
    for (const ScheduleStep& step : schedule.steps) {
      if (step.kind == StepKind::kSend && step.peer >= 15) carried += step.source.count;
    }
    EXPECT_NEAR(static_cast<double>(carried), request.rank < 7 ? 400.0 / 7 : 400.0 / 8, 1.0)
        << request.rank;
  }
}

// What workers own does not leave their host, and comes from other hosts once each.
TEST_P(HierarchicalPushPullTest, OwnersOnWorkersGetOneSumOfEachOtherHost) {
  ScheduleRequest request = Request(Collective::kPush, {2, 2}, 1);
  request.counts = {40, 20, 10, 30, 0};
  request.order_counts = EvenCounts(100, 4);
  const auto crossing = Crossing(request);
  EXPECT_EQ(crossing.at({0, 1}), 40);
  EXPECT_EQ(crossing.at({1, 0}), 60);
  // Of each host's 2 x 100 elements, half stays where it is.
  EXPECT_EQ(crossing.at({0, 0}), 100);
  EXPECT_EQ(crossing.at({1, 1}), 100);
}

INSTANTIATE_TEST_SUITE_P(Servers, HierarchicalPushPullTest, testing::Bool(),
                         [](const auto& info) { return info.param ? "BesideWorkers" : "Apart"; });

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
