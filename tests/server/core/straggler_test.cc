#include "server/core/straggler.h"

#include <algorithm>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using Cause = Straggler::Cause;

const absl::Time kNow = absl::UnixEpoch() + absl::Hours(1);

// A view whose ranks have all been heard of a moment ago and wait for nobody.
class View {
 public:
  explicit View(int ranks) {
    for (int r = 0; r < ranks; ++r) {
      reports_.push_back(
          {.worker = "w" + std::to_string(r), .heard_at = kNow - absl::Milliseconds(50)});
    }
  }
  // `rank` said 50 ms ago that it had waited so long.
  View& Waits(Rank rank, std::vector<Rank> peers, int waited_ms, bool late = true) {
    reports_[rank].wait = CollectiveWait{.operation = "all-reduce #5",
                                         .label = "bucket 3",
                                         .step = 17,
                                         .waits_for = std::move(peers),
                                         .waited_ms = waited_ms,
                                         .late = late};
    return *this;
  }
  View& Heard(Rank rank, int ms_ago) {
    reports_[rank].heard_at = kNow - absl::Milliseconds(ms_ago);
    return *this;
  }
  std::vector<Straggler> Find() const { return FindStragglers(reports_, {}, kNow); }

 private:
  std::vector<RankReport> reports_;
};

TEST(FindStragglersTest, NobodyIsOneWhereNothingIsLate) {
  EXPECT_THAT(View(4).Find(), IsEmpty());
  EXPECT_THAT(View(4).Waits(0, {1}, 400, /*late=*/false).Find(), IsEmpty());
  EXPECT_THAT(View(4).Heard(2, 10'000).Find(), IsEmpty());  // silent, but nobody waits for it
  EXPECT_THAT(FindStragglers({}, {}, kNow), IsEmpty());
}

// Rank 2 of a ring is stopped: each rank names the one before it.
TEST(FindStragglersTest, AStoppedRankIsTheEndOfTheChain) {
  const auto found =
      View(4).Waits(3, {2}, 1'100).Waits(0, {3}, 1'090).Waits(1, {0}, 1'080).Heard(2, 1'200).Find();
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].rank, 2);
  EXPECT_EQ(found[0].worker, "w2");
  EXPECT_EQ(found[0].cause, Cause::kSilent);
  EXPECT_EQ(found[0].waiter, 3);
  EXPECT_EQ(found[0].held_up, absl::Milliseconds(1'150));
  EXPECT_EQ(found[0].unheard, absl::Milliseconds(1'200));
  EXPECT_THAT(found[0].waiting, ElementsAre(0, 1, 3));
  EXPECT_EQ(found[0].operation, "all-reduce #5");
  EXPECT_EQ(found[0].step, 17);
}

// What it said before it was stopped counts no more: it does not pass the blame on.
TEST(FindStragglersTest, TheLastWordsOfASilentRankAreStale) {
  const auto found = View(3).Waits(0, {1}, 1'100).Waits(1, {2}, 300).Heard(1, 1'300).Find();
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].rank, 1);
  EXPECT_EQ(found[0].cause, Cause::kSilent);
}

TEST(FindStragglersTest, ARankThatComputesIsBusy) {
  const auto found = View(4).Waits(3, {2}, 1'100).Waits(0, {3}, 1'090).Waits(1, {0}, 1'080).Find();
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].rank, 2);
  EXPECT_EQ(found[0].cause, Cause::kBusy);
}

// The end of the chain has not spoken since: it may wait as well, so nobody is named yet.
TEST(FindStragglersTest, NobodyIsNamedBeforeTheEndOfTheChainHasSpoken) {
  View view(4);
  view.Waits(1, {0}, 400).Heard(0, 300);  // rank 0 was heard of 150 ms after the wait began
  EXPECT_THAT(view.Find(), IsEmpty());
  view.Waits(0, {3}, 400).Heard(0, 20);  // it does wait
  ASSERT_EQ(view.Find().size(), 1u);
  EXPECT_EQ(view.Find()[0].rank, 3);
  EXPECT_THAT(view.Find()[0].waiting, ElementsAre(0, 1));
}

// One late rank is enough, wherever it is in the chain: others may have reached the operation
// later.
TEST(FindStragglersTest, WaitsThatAreNotLateYetAreFollowed) {
  const auto found = View(4)
                         .Waits(3, {2}, 700, /*late=*/false)
                         .Waits(0, {3}, 1'000)
                         .Waits(1, {0}, 600, /*late=*/false)
                         .Find();
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].rank, 2);
  EXPECT_EQ(found[0].waiter, 3);
  EXPECT_EQ(found[0].held_up, absl::Milliseconds(750));
}

TEST(FindStragglersTest, SeveralStandNextToEachOtherLongestFirst) {
  const auto found =
      View(5).Waits(0, {1, 3}, 1'000).Waits(2, {3}, 2'000).Waits(4, {1, 3}, 1'500).Find();
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].rank, 3);
  EXPECT_EQ(found[0].waiter, 2);
  EXPECT_THAT(found[0].waiting, ElementsAre(0, 2, 4));
  EXPECT_EQ(found[1].rank, 1);
  EXPECT_EQ(found[1].waiter, 4);
  EXPECT_THAT(found[1].waiting, ElementsAre(0, 4));
}

// All live and all wait: a link has swallowed something. Rank 2 began to wait first.
TEST(FindStragglersTest, ACircleIsALink) {
  const auto found = View(4)
                         .Waits(0, {3}, 1'000)
                         .Waits(1, {0}, 990)
                         .Waits(2, {1}, 1'060)
                         .Waits(3, {2}, 1'010)
                         .Find();
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].rank, 1);
  EXPECT_EQ(found[0].waiter, 2);
  EXPECT_EQ(found[0].cause, Cause::kLink);
}

TEST(FindStragglersTest, ACircleThatLeadsToASilentRankIsNoLink) {
  const auto found = View(3).Waits(0, {1}, 1'000).Waits(1, {0, 2}, 1'000).Heard(2, 5'000).Find();
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].rank, 2);
}

TEST(FindStragglersTest, NonsenseIsIgnored) {
  EXPECT_THAT(View(2).Waits(0, {0}, 5'000).Find(), IsEmpty());  // for itself
  EXPECT_THAT(View(2).Waits(0, {7}, 5'000).Find(), IsEmpty());  // for a rank of no view
  EXPECT_THAT(View(2).Waits(0, {-1}, 5'000).Find(), IsEmpty());
}

// Whatever the graph: somebody is named where a rank is late and all have spoken, who is named
// waits for nobody (or in a circle), and is waited for by those that are shown.
TEST(FindStragglersTest, HoldsForRandomGraphs) {
  std::mt19937_64 random(7);
  int links = 0;
  for (int round = 0; round < 3'000; ++round) {
    const int ranks = 2 + static_cast<int>(random() % 8);
    std::vector<RankReport> reports(static_cast<size_t>(ranks));
    bool late = false;
    for (RankReport& report : reports) {
      const bool silent = random() % 5 == 0;
      report.heard_at = kNow - absl::Milliseconds(silent ? 2'000 : 10);
      if (random() % 3 == 0) continue;
      const Rank peer = static_cast<Rank>((&report - reports.data() + 1 + random() % (ranks - 1)) %
                                          static_cast<uint64_t>(ranks));
      report.wait = CollectiveWait{.operation = "o",
                                   .waits_for = {peer},
                                   .waited_ms = 500 + static_cast<int64_t>(random() % 1'000),
                                   .late = random() % 2 == 0};
      late = late || (report.wait->late && !silent);
    }
    const std::vector<Straggler> found = FindStragglers(reports, {}, kNow);
    EXPECT_EQ(found.empty(), !late) << round;
    std::set<Rank> named;
    for (const Straggler& straggler : found) {
      EXPECT_TRUE(named.insert(straggler.rank).second) << round;
      const RankReport& report = reports[static_cast<size_t>(straggler.rank)];
      const bool silent = report.heard_at < kNow - absl::Seconds(1);
      links += straggler.cause == Cause::kLink;
      EXPECT_EQ(straggler.cause == Cause::kSilent, silent) << round;
      EXPECT_EQ(straggler.cause == Cause::kLink, !silent && report.wait.has_value()) << round;
      EXPECT_THAT(straggler.waiting, Contains(straggler.waiter)) << round;
      EXPECT_THAT(straggler.waiting, Not(Contains(straggler.rank))) << round;
      EXPECT_TRUE(std::is_sorted(straggler.waiting.begin(), straggler.waiting.end())) << round;
    }
  }
  EXPECT_GT(links, 0);
}

TEST(DescribeStragglerTest, SaysWhoWhatHowLongAndWhy) {
  Straggler straggler{.rank = 2,
                      .worker = "w2",
                      .cause = Cause::kSilent,
                      .operation = "all-reduce #5 (f32)",
                      .label = "bucket 3",
                      .step = 17,
                      .waiter = 3,
                      .held_up = absl::Milliseconds(1'240),
                      .unheard = absl::Milliseconds(1'300),
                      .waiting = {0, 1, 3}};
  EXPECT_EQ(Describe(straggler),
            "w2 (rank 2) holds up 3 ranks: 'bucket 3' of step 17 has waited 1.2 s for it on rank 3 "
            "(all-reduce #5 (f32)); nothing has been heard of it for 1.3 s: it is stopped, or its "
            "host or network is");
  straggler.cause = Cause::kBusy;
  EXPECT_THAT(Describe(straggler), HasSubstr("waits for nobody"));
  straggler.cause = Cause::kLink;
  EXPECT_THAT(Describe(straggler), HasSubstr("to rank 3 does not arrive"));
  straggler.label.clear();
  straggler.waiting = {3};
  EXPECT_THAT(Describe(straggler),
              AllOf(HasSubstr("holds up 1 rank: all-reduce #5 (f32) of step 17")));
}

Straggler Named(const std::string& worker, int held_up_ms) {
  return {.rank = 0, .worker = worker, .held_up = absl::Milliseconds(held_up_ms)};
}

TEST(StragglerWatchTest, OneEventWhenItBeginsAndOneWhenItIsOver) {
  StragglerWatch watch;
  EXPECT_THAT(watch.Update({}, kNow), IsEmpty());
  auto events = watch.Update({Named("a", 1'000)}, kNow);
  ASSERT_EQ(events.size(), 1u);
  EXPECT_FALSE(events[0].over);
  EXPECT_TRUE(events[0].has_line);
  EXPECT_THAT(watch.Update({Named("a", 1'100)}, kNow + absl::Milliseconds(100)), IsEmpty());
  ASSERT_EQ(watch.current().size(), 1u);
  EXPECT_EQ(watch.current()[0].held_up, absl::Milliseconds(1'100));
  events = watch.Update({}, kNow + absl::Milliseconds(300));
  ASSERT_EQ(events.size(), 1u);
  EXPECT_TRUE(events[0].over);
  EXPECT_TRUE(events[0].has_line);
  EXPECT_EQ(events[0].lasted, absl::Milliseconds(1'300));
  EXPECT_EQ(events[0].straggler.held_up, absl::Milliseconds(1'100));
  EXPECT_THAT(watch.current(), IsEmpty());
}

TEST(StragglerWatchTest, AWorkerThatIsOneAgainAndAgainHasFewLines) {
  StragglerWatch watch;
  int lines = 0, ends = 0;
  absl::Time now = kNow;
  for (int i = 0; i < 40; ++i) {
    for (const auto& event : watch.Update({Named("a", 100)}, now)) lines += event.has_line;
    for (const auto& event : watch.Update({}, now + absl::Milliseconds(50))) ends += event.has_line;
    now += absl::Milliseconds(200);
  }
  EXPECT_EQ(lines, 1);
  EXPECT_EQ(ends, 1);
  // Another worker is news.
  EXPECT_TRUE(watch.Update({Named("b", 100)}, now)[0].has_line);
  watch.Update({}, now);
  const auto events = watch.Update({Named("a", 100)}, kNow + StragglerWatch::kLineInterval);
  ASSERT_EQ(events.size(), 1u);
  EXPECT_TRUE(events[0].has_line);
  EXPECT_EQ(events[0].without_line, 39);
}

}  // namespace
}  // namespace muster
