#include "state/reshard_plan.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/state/random_layout.h"
#include "tests/state/strategy_maps.h"

namespace muster {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr StateTag kTag = {.branch = 2, .step = 7, .epoch = 3};
constexpr StateTag kOlder = {.branch = 2, .step = 6, .epoch = 3};

std::vector<std::optional<Rank>> Everyone(int size) {
  std::vector<std::optional<Rank>> all;
  for (Rank rank = 0; rank < size; ++rank) all.emplace_back(rank);
  return all;
}

std::vector<Rank> RanksFrom(Rank first, int size) {
  std::vector<Rank> ranks(size);
  std::iota(ranks.begin(), ranks.end(), first);
  return ranks;
}

// The map of any strategy with `size` members.
ShardMap RandomMap(const Layout& layout, int size, std::mt19937& random) {
  const int replicas = static_cast<int>(Draw(random, 0, 2));
  switch (Draw(random, 0, 3)) {
    case 0:
      return ShardMap::Replicated(layout.padded_count(), size).value();
    case 1: {
      const int servers = static_cast<int>(Draw(random, 0, size - 1));
      return Served(layout, size - servers, servers, Draw(random, 0, 1) == 0, replicas);
    }
    default:
      return Sharded(layout, size, replicas);
  }
}

// What each participant holds at kTag, element by element.
std::vector<std::set<Rank>> HoldersByElement(int64_t element_count,
                                             const std::vector<Holding>& holdings) {
  std::vector<std::set<Rank>> holders(element_count);
  for (const Holding& holding : holdings) {
    if (holding.tag != kTag) continue;
    for (int64_t i = holding.range.offset; i < holding.range.end(); ++i) {
      holders[i].insert(holding.participant);
    }
  }
  return holders;
}

// The least that the busiest source can send: what only a set of them can send, over their number.
int64_t LeastMaximum(const std::map<std::set<Rank>, int64_t>& demands, int participants) {
  std::vector<int64_t> by_set(size_t{1} << participants);
  for (const auto& [sources, count] : demands) {
    size_t set = 0;
    for (const Rank source : sources) set |= size_t{1} << source;
    by_set[set] += count;
  }
  // Sums over subsets.
  for (int bit = 0; bit < participants; ++bit) {
    for (size_t set = 0; set < by_set.size(); ++set) {
      if (((set >> bit) & 1) != 0) by_set[set] += by_set[set ^ (size_t{1} << bit)];
    }
  }
  int64_t most = 0;
  for (size_t set = 1; set < by_set.size(); ++set) {
    const int size = __builtin_popcountll(set);
    most = std::max(most, (by_set[set] + size - 1) / size);
  }
  return most;
}

// Holds a plan to everything its header promises, element by element.
void CheckPlan(const ReshardPlan& plan, const std::vector<Holding>& holdings,
               const ShardMap& target, const std::vector<Rank>& participant_of) {
  const int64_t size = target.element_count();
  const std::vector<std::set<Rank>> holders = HoldersByElement(size, holdings);
  // Who has to get each element.
  std::vector<std::set<Rank>> lacking(size);
  std::map<std::set<Rank>, int64_t> demands;
  for (int64_t i = 0; i < size; ++i) {
    for (const Rank rank : target.ShardOf(i).holders) {
      const Rank participant = participant_of[rank];
      if (holders[i].count(participant) > 0) continue;
      lacking[i].insert(participant);
      ++demands[holders[i]];
    }
  }
  std::vector<int64_t> sent(plan.participants);
  for (size_t t = 0; t < plan.transfers.size(); ++t) {
    const Transfer& transfer = plan.transfers[t];
    ASSERT_GT(transfer.range.count, 0);
    if (t > 0) {
      const Transfer& before = plan.transfers[t - 1];
      ASSERT_LT(std::pair(before.from, before.to) < std::pair(transfer.from, transfer.to)
                    ? -1
                    : before.range.end(),
                transfer.range.offset)
          << "order, or neighbours that are not merged";
    }
    sent[transfer.from] += transfer.range.count;
    for (int64_t i = transfer.range.offset; i < transfer.range.end(); ++i) {
      ASSERT_EQ(holders[i].count(transfer.from), 1u) << "element " << i << " from who lacks it";
      ASSERT_EQ(lacking[i].erase(transfer.to), 1u) << "element " << i << " twice, or in place";
    }
  }
  for (int64_t i = 0; i < size; ++i) ASSERT_THAT(lacking[i], IsEmpty()) << "element " << i;
  for (Rank p = 0; p < plan.participants; ++p) {
    ASSERT_EQ(plan.SentBy(p), sent[p]);
    // Nobody gets more than what it is to hold.
    const auto rank = std::find(participant_of.begin(), participant_of.end(), p);
    ASSERT_LE(plan.ReceivedBy(p),
              rank == participant_of.end()
                  ? 0
                  : target.CountHeldBy(static_cast<Rank>(rank - participant_of.begin())));
  }
  const int64_t least = LeastMaximum(demands, plan.participants);
  ASSERT_LE(*std::max_element(sent.begin(), sent.end()),
            least + static_cast<int64_t>(demands.size()));
}

TEST(PlanReshardTest, AnyStrategyToAnyOtherWithDeathsAndJoins) {
  int plans = 0;
  int refusals = 0;
  for (int before = 1; before <= 12; ++before) {
    for (int after = 1; after <= 12; ++after) {
      const auto seed = static_cast<uint32_t>(before * 100 + after);
      SCOPED_TRACE(absl::StrCat("seed ", seed));
      std::mt19937 random(seed);
      const Layout layout = RandomLayout(seed);
      const ShardMap old_map = RandomMap(layout, before, random);
      const ShardMap new_map = RandomMap(layout, after, random);
      // Some of the old die; participants are the others, and newcomers, in any order.
      std::vector<std::optional<Rank>> old_participants(before);
      std::vector<size_t> alive;
      for (size_t rank = 0; rank < old_participants.size(); ++rank) {
        if (Draw(random, 0, 4) > 0) alive.push_back(rank);
      }
      const int participants = std::max<int>(after, static_cast<int>(alive.size())) +
                               static_cast<int>(Draw(random, 0, 1));
      std::vector<Rank> numbers = RanksFrom(0, participants);
      std::shuffle(numbers.begin(), numbers.end(), random);
      for (size_t i = 0; i < alive.size(); ++i) old_participants[alive[i]] = numbers[i];
      std::shuffle(numbers.begin(), numbers.end(), random);
      const std::vector<Rank> new_participants(numbers.begin(), numbers.begin() + after);

      std::vector<Holding> holdings = HoldingsOf(old_map, old_participants, kTag);
      // Some are behind, and one holds a stray range more.
      for (Holding& holding : holdings) {
        if (Draw(random, 0, 40) == 0) holding.tag = kOlder;
      }
      const int64_t stray = Draw(random, 0, layout.padded_count() - 1);
      holdings.push_back(
          {numbers[0], kTag, {stray, Draw(random, 0, layout.padded_count() - stray)}});

      const auto plan = PlanReshard(kTag, holdings, new_map, new_participants, participants);
      const std::vector<std::set<Rank>> holders = HoldersByElement(layout.padded_count(), holdings);
      const auto hole = std::find(holders.begin(), holders.end(), std::set<Rank>());
      if (hole != holders.end()) {
        ++refusals;
        EXPECT_EQ(plan.status().code(), absl::StatusCode::kFailedPrecondition);
        EXPECT_THAT(
            std::string(plan.status().message()),
            HasSubstr(absl::StrCat("nobody holds elements ", hole - holders.begin(), " to ")));
        continue;
      }
      ++plans;
      ASSERT_TRUE(plan.ok()) << plan.status();
      CheckPlan(*plan, holdings, new_map, new_participants);
      if (HasFatalFailure()) return;
    }
  }
  EXPECT_GT(plans, 40);
  EXPECT_GT(refusals, 10);
}

TEST(PlanReshardTest, WhatIsInPlaceStays) {
  const Layout layout = RandomLayout(5);
  const ShardMap map = Sharded(layout, 4, 1);
  const auto holdings = HoldingsOf(map, Everyone(4), kTag);
  EXPECT_THAT(PlanReshard(kTag, holdings, map, RanksFrom(0, 4), 4)->transfers, IsEmpty());
}

TEST(PlanReshardTest, AJoinerIsServedByAllReplicasAlike) {
  const ShardMap before = ShardMap::Replicated(300, 3).value();
  const ShardMap after = ShardMap::Replicated(300, 4).value();
  const auto plan =
      PlanReshard(kTag, HoldingsOf(before, Everyone(3), kTag), after, RanksFrom(0, 4), 4).value();
  EXPECT_THAT(plan.transfers, ElementsAre(Transfer{0, 3, {0, 100}}, Transfer{1, 3, {100, 100}},
                                          Transfer{2, 3, {200, 100}}));
}

TEST(PlanReshardTest, ADeathOnlyPromotesWhereReplicasAre) {
  const Layout layout = RandomLayout(6);
  const ShardMap before = Sharded(layout, 3, 1);
  // Rank 1 died. Its replica, rank 2, owns its slices now.
  std::vector<Shard> promoted;
  for (Shard shard : before.shards()) {
    Holders& holders = shard.holders;
    holders.erase(std::remove(holders.begin(), holders.end(), 1), holders.end());
    promoted.push_back(std::move(shard));
  }
  const ShardMap after = ShardMap::Create(layout.padded_count(), 3, promoted).value();
  const auto plan =
      PlanReshard(kTag, HoldingsOf(before, {0, std::nullopt, 2}, kTag), after, RanksFrom(0, 3), 3);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_THAT(plan->transfers, IsEmpty());
}

TEST(PlanReshardTest, NamesWhatNobodyHolds) {
  const ShardMap target = ShardMap::Replicated(100, 2).value();
  const auto plan_of = [&target](std::vector<Holding> holdings) {
    return PlanReshard(kTag, holdings, target, RanksFrom(1, 2), 4).status();
  };
  absl::Status status = plan_of({{0, kTag, {0, 40}}, {3, kTag, {50, 50}}});
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("nobody holds elements 40 to 50 at step 7 of branch 2 (epoch 3)"),
                    HasSubstr("participant 1 needs"), HasSubstr("checkpoint")));
  status = plan_of({{0, kTag, {0, 40}}, {3, kTag, {50, 50}}, {2, kOlder, {30, 15}}});
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("participant 2 holds some of it at step 6 of branch 2"));
  EXPECT_THAT(std::string(plan_of({}).message()), HasSubstr("elements 0 to 100"));
}

TEST(PlanReshardTest, RefusesBadArguments) {
  const ShardMap target = ShardMap::Replicated(100, 2).value();
  const auto text = [&target](std::vector<Holding> holdings, std::vector<Rank> participant_of) {
    const absl::Status status = PlanReshard(kTag, holdings, target, participant_of, 3).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  const std::vector<Holding> good = {{0, kTag, {0, 100}}};
  EXPECT_THAT(text({{0, kTag, {-1, 2}}}, {0, 1}), HasSubstr("2 elements from -1 on"));
  EXPECT_THAT(text({{0, kTag, {50, 51}}}, {0, 1}), HasSubstr("51 elements from 50 on"));
  EXPECT_THAT(text({{3, kTag, {0, 1}}}, {0, 1}), HasSubstr("participant 3; expected 0 to 2"));
  EXPECT_THAT(text(good, {0}), HasSubstr("which has 2"));
  EXPECT_THAT(text(good, {0, 0}), HasSubstr("rank 1 is to be participant 0"));
  EXPECT_THAT(text(good, {0, 3}), HasSubstr("rank 1 is to be participant 3"));
}

TEST(PlanReshardTest, TheFingerprintTellsPlansApart) {
  const ShardMap before = ShardMap::Replicated(300, 3).value();
  const ShardMap after = ShardMap::Replicated(300, 4).value();
  const auto holdings = HoldingsOf(before, Everyone(3), kTag);
  const auto plan = PlanReshard(kTag, holdings, after, RanksFrom(0, 4), 4).value();
  EXPECT_EQ(plan, PlanReshard(kTag, holdings, after, RanksFrom(0, 4), 4).value());
  const auto older = HoldingsOf(before, Everyone(3), kOlder);
  EXPECT_NE(plan.fingerprint, PlanReshard(kOlder, older, after, RanksFrom(0, 4), 4)->fingerprint);
  const auto without = HoldingsOf(before, {0, 1, std::nullopt}, kTag);
  EXPECT_NE(plan.fingerprint, PlanReshard(kTag, without, after, RanksFrom(0, 4), 4)->fingerprint);
}

}  // namespace
}  // namespace muster
