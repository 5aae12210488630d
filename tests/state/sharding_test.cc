#include "state/sharding.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "state/bucket_slices.h"
#include "tests/state/random_layout.h"

namespace muster {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr ReplicaOptions kNoReplicas = {};

// By element.
std::vector<Holders> HoldersByElement(const ShardMap& map) {
  std::vector<Holders> all;
  for (const Shard& shard : map.shards()) all.insert(all.end(), shard.range.count, shard.holders);
  return all;
}

std::vector<Rank> OwnersByElement(const Layout& layout, const BucketSlices& slices) {
  std::vector<Rank> all;
  for (const OwnedRange& piece : slices.PiecesOf({0, layout.padded_count()})) {
    all.insert(all.end(), piece.range.count, piece.owner);
  }
  return all;
}

// Elements owned by each rank.
std::vector<int64_t> Owned(const ShardMap& map) {
  std::vector<int64_t> owned(map.world_size());
  for (const Holders& holders : HoldersByElement(map)) ++owned[holders[0]];
  return owned;
}

int64_t Spread(const std::vector<int64_t>& values) {
  const auto [least, most] = std::minmax_element(values.begin(), values.end());
  return *most - *least;
}

TEST(ReplicatedStateTest, EveryWorkerKeepsEverything) {
  const Layout layout = RandomLayout(1);
  const StateMaps maps = ReplicatedState(layout, 3).value();
  const ShardMap all = ShardMap::Replicated(layout.padded_count(), 3).value();
  EXPECT_EQ(maps.parameters, all);
  EXPECT_EQ(maps.masters, all);
  EXPECT_EQ(maps.gradients, all);
}

TEST(ShardedStateTest, EachStageShardsOneKindMore) {
  for (uint32_t seed = 0; seed < 20; ++seed) {
    const Layout layout = RandomLayout(seed);
    const int workers = static_cast<int>(seed % 9) + 1;
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    const ShardMap all = ShardMap::Replicated(layout.padded_count(), workers).value();
    const StateMaps one = ShardedState(layout, workers, 1, kNoReplicas).value();
    const StateMaps two = ShardedState(layout, workers, 2, kNoReplicas).value();
    const StateMaps three = ShardedState(layout, workers, 3, kNoReplicas).value();
    EXPECT_EQ(one, (StateMaps{all, three.masters, all}));
    EXPECT_EQ(two, (StateMaps{all, three.masters, three.masters}));
    EXPECT_EQ(three, (StateMaps{three.masters, three.masters, three.masters}));
    // Slice i of every bucket is rank i's.
    const std::vector<Rank> owners =
        OwnersByElement(layout, BucketSlices::Even(layout, workers).value());
    const std::vector<Holders> holders = HoldersByElement(three.masters);
    for (size_t i = 0; i < owners.size(); ++i) ASSERT_EQ(holders[i], Holders{owners[i]});
    EXPECT_LE(Spread(Owned(three.masters)), 1);
  }
}

TEST(ShardedStateTest, ReplicasAreTheNextRanksOnOtherHostsFirst) {
  const Layout layout = RandomLayout(2);
  // Of five ranks, 0 to 2 are on one host and 3 and 4 on another.
  const ReplicaOptions placed = {.count = 1, .hosts = {7, 7, 7, 9, 9}};
  const ShardMap map = ShardedState(layout, 5, 2, placed).value().masters;
  const ShardMap bare = ShardedState(layout, 5, 2, kNoReplicas).value().masters;
  const std::vector<Rank> expected = {3, 3, 3, 0, 0};
  const std::vector<Holders> holders = HoldersByElement(map);
  for (int64_t i = 0; i < map.element_count(); ++i) {
    const Rank owner = bare.OwnerOf(i);
    ASSERT_THAT(holders[i], ElementsAre(owner, expected[owner]));
  }
  // More than the other hosts have: the rest on the same one.
  const ReplicaOptions three = {.count = 3, .hosts = {7, 7, 7, 9, 9}};
  const ShardMap thrice = ShardedState(layout, 5, 2, three).value().masters;
  for (const Shard& shard : thrice.shards()) {
    if (shard.holders[0] == 1) {
      EXPECT_THAT(shard.holders, ElementsAre(1, 3, 4, 2));
    }
  }
  // As many as there are others.
  const ReplicaOptions many = {.count = 100, .hosts = {}};
  EXPECT_EQ(ShardedState(layout, 3, 1, many).value().masters.CountHeldBy(2), layout.padded_count());
  EXPECT_EQ(ShardedState(layout, 1, 1, many).value().masters,
            ShardMap::Replicated(layout.padded_count(), 1).value());
}

TEST(HybridShardedStateTest, EachGroupKeepsEverythingOnceAndOwnersAreBalanced) {
  for (uint32_t seed = 0; seed < 20; ++seed) {
    const Layout layout = RandomLayout(seed);
    for (const auto& [workers, group_size] :
         {std::pair(1, 1), {4, 2}, {6, 3}, {6, 2}, {8, 8}, {8, 1}}) {
      SCOPED_TRACE(absl::StrCat("seed ", seed, ": ", workers, " in groups of ", group_size));
      const ShardMap map = HybridShardedState(layout, workers, group_size, 3).value().masters;
      const int groups = workers / group_size;
      for (const Holders& holders : HoldersByElement(map)) {
        ASSERT_EQ(holders.size(), static_cast<size_t>(groups));
        std::set<Rank> seen;
        for (const Rank rank : holders) {
          seen.insert(rank / group_size);
          ASSERT_EQ(rank % group_size, holders[0] % group_size) << "positions differ";
        }
        ASSERT_EQ(seen.size(), static_cast<size_t>(groups)) << "a group keeps it twice";
      }
      EXPECT_LE(Spread(Owned(map)), 1);
      std::vector<int64_t> held(workers);
      for (Rank rank = 0; rank < workers; ++rank) held[rank] = map.CountHeldBy(rank);
      EXPECT_LE(Spread(held), groups);
    }
    // One group is plain sharding.
    EXPECT_EQ(HybridShardedState(layout, 8, 8, 2).value(),
              ShardedState(layout, 8, 2, kNoReplicas).value());
  }
}

TEST(ServedStateTest, DedicatedServersOwnAllAndWorkersKeepParameters) {
  const Layout layout = RandomLayout(3);
  const ReplicaOptions replicas = {.count = 1, .hosts = {}};
  const StateMaps maps = ServedState(layout, 3, 2, ServerPlacement::kDedicated, replicas).value();
  EXPECT_EQ(maps.masters.world_size(), 5);
  EXPECT_EQ(maps.masters, maps.gradients);
  const std::vector<Rank> owners = OwnersByElement(layout, BucketSlices::Even(layout, 2).value());
  const std::vector<Holders> holders = HoldersByElement(maps.masters);
  for (size_t i = 0; i < owners.size(); ++i) {
    ASSERT_THAT(holders[i], ElementsAre(3 + owners[i], 4 - owners[i]));
  }
  ASSERT_EQ(maps.parameters.shards().size(), 1u);
  EXPECT_THAT(maps.parameters.shards()[0].holders, ElementsAre(0, 1, 2));
}

TEST(ServedStateTest, MixedServersOwnByTheFormula) {
  for (uint32_t seed = 0; seed < 20; ++seed) {
    const Layout layout = RandomLayout(seed);
    for (int n = 1; n <= 6; ++n) {
      for (int k = 0; k <= 7; ++k) {
        SCOPED_TRACE(absl::StrCat("seed ", seed, " n ", n, " k ", k));
        const StateMaps maps =
            ServedState(layout, n, k, ServerPlacement::kMixed, kNoReplicas).value();
        const std::vector<int64_t> owned = Owned(maps.masters);
        const auto size = static_cast<double>(layout.padded_count());
        for (Rank rank = 0; rank < n + k; ++rank) {
          double share = 0;
          if (k >= n) {
            share = rank < n ? 0 : size / k;
          } else {
            const double parts = n * n + k * n - 2 * k;
            share = size * (rank < n ? n - k : 2 * (n - 1)) / parts;
          }
          ASSERT_LT(static_cast<double>(owned[rank]), share + 1) << "rank " << rank;
          if (share == 0) {
            ASSERT_EQ(owned[rank], 0);
          }
        }
      }
    }
    // Without servers, those co-located with workers: the shards of stage 1.
    EXPECT_EQ(ServedState(layout, 4, 0, ServerPlacement::kMixed, kNoReplicas).value().masters,
              ShardedState(layout, 4, 1, kNoReplicas).value().masters);
  }
}

TEST(MixedWeightsTest, AreThePublishedOnes) {
  EXPECT_THAT(MixedWeights(4, 1), ElementsAre(3, 3, 3, 3, 6));
  EXPECT_THAT(MixedWeights(4, 2), ElementsAre(2, 2, 2, 2, 6, 6));
  EXPECT_THAT(MixedWeights(2, 2), ElementsAre(0, 0, 1, 1));
  EXPECT_THAT(MixedWeights(2, 0), ElementsAre(2, 2));
  EXPECT_THAT(MixedWeights(1, 1), ElementsAre(0, 1));
  for (int n = 2; n < 20; ++n) {
    for (int k = 0; k < n; ++k) {
      const std::vector<int64_t> weights = MixedWeights(n, k);
      EXPECT_EQ(std::accumulate(weights.begin(), weights.end(), 0), n * n + k * n - 2 * k);
    }
  }
}

TEST(ShardingTest, RefusesWhatHasNoMeaning) {
  const Layout layout = RandomLayout(4);
  const auto text = [](const absl::StatusOr<StateMaps>& maps) {
    EXPECT_EQ(maps.status().code(), absl::StatusCode::kInvalidArgument);
    return std::string(maps.status().message());
  };
  EXPECT_THAT(text(ReplicatedState(layout, 0)), HasSubstr("world size"));
  EXPECT_THAT(text(ShardedState(layout, 0, 1, {})), HasSubstr("got 0"));
  EXPECT_THAT(text(ShardedState(layout, 2, 0, {})), HasSubstr("expected 1, 2 or 3, got 0"));
  EXPECT_THAT(text(ShardedState(layout, 2, 4, {})), HasSubstr("got 4"));
  EXPECT_THAT(text(ShardedState(layout, 2, 1, {.count = -1, .hosts = {}})), HasSubstr("got -1"));
  EXPECT_THAT(text(ShardedState(layout, 2, 1, {.count = 1, .hosts = {1}})), HasSubstr("1 entries"));
  EXPECT_THAT(text(HybridShardedState(layout, 6, 4, 1)), HasSubstr("groups of 4"));
  EXPECT_THAT(text(HybridShardedState(layout, 6, 0, 1)), HasSubstr("groups of 0"));
  EXPECT_THAT(text(ServedState(layout, 2, 0, ServerPlacement::kDedicated, {})),
              HasSubstr("2 workers and 0 servers"));
  EXPECT_THAT(text(ServedState(layout, 0, 1, ServerPlacement::kMixed, {})), HasSubstr("0 workers"));
  EXPECT_THAT(text(ServedState(layout, 1, 5000, ServerPlacement::kMixed, {})),
              HasSubstr("5000 servers"));
}

}  // namespace
}  // namespace muster
