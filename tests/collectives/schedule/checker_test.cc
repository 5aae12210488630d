// The checker must be able to fail: schedules are damaged in every way that matters, and each must
// be rejected with a message that names a rank.
#include "collectives/schedule/checker.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/collectives/schedule/request_grid.h"

namespace muster {
namespace {

using ::testing::HasSubstr;

using Schedules = std::vector<Schedule>;

bool Overlap(const Slice& a, const Slice& b) {
  return a.buffer == b.buffer && a.offset < b.offset + b.count && b.offset < a.offset + a.count;
}

std::vector<Slice> Reads(const ScheduleStep& step) {
  if (step.kind == StepKind::kRecv) return {};
  if (step.kind == StepKind::kReduce) return step.sources;
  return {step.source};
}

bool WritesWhatOtherTouches(const ScheduleStep& a, const ScheduleStep& b) {
  if (a.kind == StepKind::kSend) return false;
  if (b.kind != StepKind::kSend && Overlap(a.target, b.target)) return true;
  for (const Slice& source : Reads(b)) {
    if (Overlap(a.target, source)) return true;
  }
  return false;
}

// Exchanging the two changes what is computed.
bool Conflict(const ScheduleStep& a, const ScheduleStep& b) {
  return WritesWhatOtherTouches(a, b) || WritesWhatOtherTouches(b, a);
}

// Reductions of one rank's worth of damage: calls visit(description, schedules) for each.
void ForEachMutant(const World& world, const Schedules& good,
                   const std::function<void(const std::string&, const Schedules&)>& visit) {
  for (size_t rank = 0; rank < good.size(); ++rank) {
    const size_t steps = good[rank].steps.size();
    for (size_t i = 0; i < steps; ++i) {
      const std::string at = absl::StrCat("rank ", rank, " step ", i);
      const auto mutate = [&](const char* what, const std::function<void(ScheduleStep&)>& change) {
        Schedules bad = good;
        change(bad[rank].steps[i]);
        visit(absl::StrCat(what, " at ", at), bad);
      };
      Schedules bad = good;
      bad[rank].steps.erase(bad[rank].steps.begin() + i);
      visit(absl::StrCat("dropped ", at), bad);
      bad = good;
      bad[rank].steps.insert(bad[rank].steps.begin() + i, good[rank].steps[i]);
      if (good[rank].steps[i].kind != StepKind::kCopy &&
          good[rank].steps[i].kind != StepKind::kReduce) {
        visit(absl::StrCat("doubled ", at), bad);
      }
      // Where any order will do, two additions to one sum may change places, as may operands.
      const bool any_order =
          !KeepsCanonicalOrder(world.requests[0].collective, world.requests[0].algorithm);
      const bool both_add = i + 1 < steps && good[rank].steps[i].kind == StepKind::kRecvReduce &&
                            good[rank].steps[i + 1].kind == StepKind::kRecvReduce;
      if (i + 1 < steps && !(both_add && any_order) &&
          Conflict(good[rank].steps[i], good[rank].steps[i + 1])) {
        bad = good;
        std::swap(bad[rank].steps[i], bad[rank].steps[i + 1]);
        visit(absl::StrCat("swapped with next ", at), bad);
      }
      const ScheduleStep& step = good[rank].steps[i];
      const bool has_peer = step.peer >= 0;
      if (has_peer) {
        mutate("own rank as peer", [&](ScheduleStep& s) { s.peer = static_cast<Rank>(rank); });
        mutate("peer out of range", [&](ScheduleStep& s) { s.peer = world.requests[0].size; });
        if (good.size() > 2) {
          mutate("other peer", [&](ScheduleStep& s) {
            do s.peer = (s.peer + 1) % world.requests[0].size;
            while (s.peer == static_cast<Rank>(rank));
          });
        }
      }
      // Which token a barrier sends is free as long as everyone hears from everyone, so a shift
      // there may give another right barrier.
      const bool is_barrier = world.requests[0].collective == Collective::kBarrier;
      const bool has_source =
          !is_barrier && step.kind != StepKind::kRecv && step.kind != StepKind::kReduce;
      if (has_source) {
        mutate("source shifted up", [](ScheduleStep& s) { ++s.source.offset; });
        mutate("source shifted down", [](ScheduleStep& s) { --s.source.offset; });
        mutate("source shorter", [](ScheduleStep& s) { --s.source.count; });
      }
      if (!is_barrier && step.kind != StepKind::kSend) {
        mutate("target shifted up", [](ScheduleStep& s) { ++s.target.offset; });
        mutate("target shifted down", [](ScheduleStep& s) { --s.target.offset; });
        mutate("target longer", [](ScheduleStep& s) { ++s.target.count; });
      }
      if (step.kind == StepKind::kReduce) {
        if (!any_order) {
          mutate("sources reversed",
                 [](ScheduleStep& s) { std::reverse(s.sources.begin(), s.sources.end()); });
        }
        mutate("source dropped", [](ScheduleStep& s) { s.sources.pop_back(); });
        mutate("source doubled", [](ScheduleStep& s) { s.sources.push_back(s.sources[0]); });
      }
      if (step.kind == StepKind::kRecvReduce) {
        mutate("not reduced", [](ScheduleStep& s) { s.kind = StepKind::kRecv; });
      }
      if (step.kind == StepKind::kRecv) {
        mutate("reduced", [](ScheduleStep& s) {
          s.kind = StepKind::kRecvReduce;
          s.source = s.target;
        });
      }
      mutate("completes_sum flipped", [](ScheduleStep& s) { s.completes_sum = !s.completes_sum; });
    }
  }
}

// Worlds whose chunks hold at least three elements, so that a shift is never out of a whole chunk.
World WorldOf(Collective collective, Algorithm algorithm, int size, bool half, InPlace in_place) {
  return WorldOf(collective, algorithm, size, /*per_rank=*/3, half, in_place);
}

TEST(CheckerTest, RejectsEveryMutant) {
  int64_t mutants = 0;
  for (const int size : {2, 3, 4, 5, 8}) {
    for (const Collective collective : kAllCollectives) {
      for (const Algorithm algorithm : AlgorithmsOf(collective)) {
        for (const bool half : {false, true}) {
          if (half && !(Reduces(collective) && KeepsCanonicalOrder(collective, algorithm)))
            continue;
          for (const InPlace in_place : {InPlace::kNone, InPlace::kAll}) {
            if (in_place != InPlace::kNone && !CanBeInPlace(collective)) continue;
            const World world = WorldOf(collective, algorithm, size, half, in_place);
            const Schedules good = MakeSchedules(world);
            ASSERT_EQ(CheckSchedules(world.requests, good), absl::OkStatus()) << world.text;
            ForEachMutant(world, good, [&](const std::string& what, const Schedules& bad) {
              const absl::Status status = CheckSchedules(world.requests, bad);
              EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition)
                  << world.text << ": " << what;
              EXPECT_THAT(std::string(status.message()), HasSubstr("rank ")) << what;
              ++mutants;
            });
          }
        }
      }
    }
  }
  EXPECT_GT(mutants, 10'000);
}

TEST(CheckerTest, FindsTheDeadlockOfEveryoneSendingFirst) {
  const World world = WorldOf(Collective::kAllGather, Algorithm::kRing, 4, false, InPlace::kAll);
  Schedules schedules = MakeSchedules(world);
  for (Schedule& schedule : schedules) {
    std::stable_sort(schedule.steps.begin(), schedule.steps.begin() + 2,
                     [](const ScheduleStep& a, const ScheduleStep& b) {
                       return a.kind == StepKind::kSend && b.kind != StepKind::kSend;
                     });
  }
  const absl::Status status = CheckSchedules(world.requests, schedules);
  EXPECT_THAT(std::string(status.message()), HasSubstr("rank 0 step 0"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("deadlock: rank 1"));
}

TEST(CheckerTest, RejectsAnotherOrderOfTheSum) {
  // A ring that runs backwards sums c-1, c-2, ..., c: every contribution once, the wrong order.
  const World world = WorldOf(Collective::kAllReduce, Algorithm::kDirect, 3, false, InPlace::kNone);
  Schedules schedules = MakeSchedules(world);
  for (Schedule& schedule : schedules) {
    for (ScheduleStep& step : schedule.steps) {
      if (step.kind == StepKind::kReduce) std::swap(step.sources[0], step.sources[1]);
    }
  }
  EXPECT_THAT(std::string(CheckSchedules(world.requests, schedules).message()),
              HasSubstr("((2+1)+0), expected ((1+2)+0)"));
}

TEST(CheckerTest, RejectsAContributionAddedTwiceWhereAnyOrderWillDo) {
  const World world =
      WorldOf(Collective::kAllReduce, Algorithm::kRecursiveDoubling, 4, false, InPlace::kNone);
  Schedules schedules = MakeSchedules(world);
  // Everyone exchanges with the same partner again.
  for (Rank rank = 0; rank < 4; ++rank) {
    for (ScheduleStep& step : schedules[rank].steps) {
      if (step.peer >= 0) step.peer = rank ^ 1;
    }
    if (rank == 1 || rank == 2) std::swap(schedules[rank].steps[2], schedules[rank].steps[3]);
  }
  EXPECT_THAT(std::string(CheckSchedules(world.requests, schedules).message()),
              HasSubstr("to position 0 twice: ("));
}

TEST(CheckerTest, RejectsRanksThatAddInDifferentOrdersWhereAnyOrderWillDo) {
  // All-reduce of four by sending everything to everyone: each rank adds up by itself, from its own
  // contribution on. Every contribution once, but not the same bits.
  World world =
      WorldOf(Collective::kAllReduce, Algorithm::kRecursiveDoubling, 4, false, InPlace::kNone);
  Schedules schedules(4);
  const int64_t count = world.requests[0].count;
  const Slice input = {BufferName::kInput, 0, count};
  const Slice output = {BufferName::kOutput, 0, count};
  for (Rank rank = 0; rank < 4; ++rank) {
    for (int distance = 1; distance < 4; ++distance) {
      const ScheduleStep send = {
          .kind = StepKind::kSend, .peer = (rank + distance) % 4, .source = input};
      const ScheduleStep receive = {.kind = StepKind::kRecvReduce,
                                    .peer = (rank + 4 - distance) % 4,
                                    .source = distance == 1 ? input : output,
                                    .target = output,
                                    .completes_sum = distance == 3};
      const bool receive_first = (rank / distance) % 2 == 1;
      schedules[rank].steps.push_back(receive_first ? receive : send);
      schedules[rank].steps.push_back(receive_first ? send : receive);
    }
  }
  EXPECT_THAT(std::string(CheckSchedules(world.requests, schedules).message()),
              HasSubstr("rank 1 after its last step: output element 0 is"));
}

TEST(CheckerTest, RejectsRoundingAtEveryHop) {
  const World exact = WorldOf(Collective::kAllReduce, Algorithm::kRing, 3, false, InPlace::kNone);
  const World half = WorldOf(Collective::kAllReduce, Algorithm::kRing, 3, true, InPlace::kNone);
  EXPECT_THAT(std::string(CheckSchedules(half.requests, MakeSchedules(exact)).message()),
              HasSubstr("[["));
}

TEST(CheckerTest, RejectsASecondNameForMemoryUsedInPlace) {
  const World apart = WorldOf(Collective::kAllReduce, Algorithm::kRing, 3, false, InPlace::kNone);
  const World in_place = WorldOf(Collective::kAllReduce, Algorithm::kRing, 3, false, InPlace::kAll);
  EXPECT_THAT(std::string(CheckSchedules(in_place.requests, MakeSchedules(apart)).message()),
              HasSubstr("outside the buffer, which has 0 elements under this name"));
}

TEST(CheckerTest, RejectsWritesToTheInput) {
  const World world =
      WorldOf(Collective::kReduceScatter, Algorithm::kRing, 3, false, InPlace::kNone);
  Schedules schedules = MakeSchedules(world);
  ScheduleStep& step = schedules[1].steps[0];
  step.target = step.source;
  EXPECT_THAT(std::string(CheckSchedules(world.requests, schedules).message()),
              HasSubstr("rank 1 step 0 (recv-reduce input[7, 10) into input[7, 10) from 0): "
                        "writes to the input"));
  const World in_place =
      WorldOf(Collective::kReduceScatter, Algorithm::kRing, 3, false, InPlace::kAll);
  EXPECT_THAT(std::string(CheckSchedules(in_place.requests, schedules).message()),
              HasSubstr("outside"));
}

TEST(CheckerTest, RejectsWasteThatTheCostTableDoesNotShow) {
  const World world = WorldOf(Collective::kBroadcast, Algorithm::kRing, 3, false, InPlace::kNone);
  Schedules schedules = MakeSchedules(world);
  ++schedules[2].scratch_count;
  EXPECT_THAT(std::string(CheckSchedules(world.requests, schedules).message()),
              HasSubstr("rank 2 sends 1 messages with 10 elements, needs 1 elements of scratch"));
}

TEST(CheckerTest, RefusesRequestsThatDoNotFitTogether) {
  World world = WorldOf(Collective::kAllReduce, Algorithm::kRing, 3, false, InPlace::kNone);
  const Schedules schedules = MakeSchedules(world);
  world.requests[2].count += 1;
  EXPECT_EQ(CheckSchedules(world.requests, schedules).code(), absl::StatusCode::kInvalidArgument);
  world.requests.pop_back();
  EXPECT_EQ(CheckSchedules(world.requests, schedules).code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace muster
