#include "state/view_map.h"

#include <algorithm>
#include <random>
#include <vector>

#include "base/control/placement.h"
#include "gtest/gtest.h"
#include "tests/state/random_layout.h"

namespace muster {
namespace {

// With the last `servers` of them parameter servers that own the state, `stage` is 0.
View MakeView(Epoch epoch, const std::vector<uint64_t>& members, int stage, int replicas,
              int servers = 0, bool mixed = false) {
  View view;
  if (servers > 0) {
    view.strategy.sync = SyncPath::kParameterServer;
    view.strategy.servers = servers;
    view.strategy.mixed = mixed;
    stage = 0;
  }
  view.epoch = epoch;
  view.strategy.stage = stage;
  view.strategy.replicas = replicas;
  view.resume = StateTag{1, 5, 2};
  for (uint64_t member : members) {
    view.members.emplace_back();
    view.members.back().incarnation = Incarnation{member};
    if (view.members.size() + static_cast<size_t>(servers) > members.size()) {
      view.members.back().role = MemberRole::kParameterServer;
    }
  }
  return view;
}

// Whether a rank holds an element.
using Held = std::vector<std::vector<bool>>;

// By asking for each.
Held HeldBy(const ShardMap& map) {
  const auto count = static_cast<size_t>(map.element_count());
  Held held(static_cast<size_t>(map.world_size()), std::vector<bool>(count));
  for (size_t element = 0; element < count; ++element) {
    for (Rank rank : map.ShardOf(static_cast<int64_t>(element)).holders) {
      held[static_cast<size_t>(rank)][element] = true;
    }
  }
  return held;
}

TEST(ViewMapTest, ShardsAreSlicesOfEveryBucket) {
  for (int size = 1; size <= 7; ++size) {
    std::vector<uint64_t> members(static_cast<size_t>(size));
    for (size_t i = 0; i < members.size(); ++i) members[i] = i + 1;
    const Layout layout = RandomLayout(static_cast<uint32_t>(size));
    const ViewMap map = MapOf(MakeView(3, members, 2, 1), layout).value();
    for (int bucket = 0; bucket < map.slices.bucket_count(); ++bucket) {
      for (Rank rank = 0; rank < size; ++rank) {
        const Range slice = map.slices.SliceOf(bucket, rank);
        if (slice.count == 0) continue;
        EXPECT_EQ(map.map.OwnerOf(slice.offset), rank);
        EXPECT_TRUE(map.map.Holds(rank, slice));
      }
    }
  }
}

// Every group holds everything, cut as if its members were alone.
TEST(ViewMapTest, GroupsHoldTheSameShards) {
  const Layout layout = RandomLayout(5);
  const ViewMap alone = MapOf(MakeView(3, {1, 2, 3}, 2, 0), layout).value();
  View view = MakeView(3, {1, 2, 3, 4, 5, 6}, 2, 1);
  view.strategy.host_groups = true;
  for (size_t i = 0; i < view.members.size(); ++i) view.members[i].host = i % 2 == 0 ? "a" : "b";
  const ViewMap map = MapOf(view, layout).value();
  for (int bucket = 0; bucket < map.slices.bucket_count(); ++bucket) {
    EXPECT_EQ(map.slices.CountsOf(bucket), alone.slices.CountsOf(bucket));
    EXPECT_EQ(map.order.CountsOf(bucket), alone.order.CountsOf(bucket));
  }
  for (Rank rank = 0; rank < 6; ++rank) {
    EXPECT_EQ(map.map.RangesHeldBy(rank), alone.map.RangesHeldBy(rank / 2)) << rank;
    EXPECT_EQ(map.map.RangesOwnedBy(rank).empty(), rank % 2 == 1) << "counted once";
  }
}

// Sums go by the workers' cut, whoever owns them; servers own nothing of it.
TEST(ViewMapTest, TheOrderOfSumsIsThatOfTheWorkersAlone) {
  const Layout layout = RandomLayout(3);
  const ViewMap replicated = MapOf(MakeView(3, {1, 2, 3}, 0, 0), layout).value();
  for (const bool mixed : {false, true}) {
    const ViewMap served = MapOf(MakeView(3, {1, 2, 3, 4, 5}, 0, 0, 2, mixed), layout).value();
    ASSERT_EQ(served.order.owners(), 3);
    ASSERT_EQ(served.slices.owners(), 5);
    for (int bucket = 0; bucket < served.order.bucket_count(); ++bucket) {
      EXPECT_EQ(served.order.CountsOf(bucket), replicated.slices.CountsOf(bucket));
    }
    EXPECT_EQ(served.slices.OwnedBy(0) > 0, mixed);
    EXPECT_GT(served.slices.OwnedBy(4), served.slices.OwnedBy(0));
  }
}

// From any view to any other, with any givers that hold every shard: afterwards each rank holds
// what the new view gives it, and every range came from one that held it.
TEST(ViewMapTest, AMoveLeavesEveryRankWithItsPart) {
  std::mt19937 random(7);
  const auto below = [&random](int n) {
    return static_cast<int>(random() % static_cast<unsigned>(n));
  };
  int moves = 0;
  for (int round = 0; round < 160; ++round) {
    const Layout layout = RandomLayout(static_cast<uint32_t>(round));
    std::vector<uint64_t> old_members;
    for (int i = 1 + below(6); i > 0; --i) old_members.push_back(static_cast<uint64_t>(i));
    const auto servers_among = [&](const std::vector<uint64_t>& members) {
      return below(3) == 0 ? below(static_cast<int>(members.size()) + 1) : 0;
    };
    const auto grouped = [&](View view) {
      if (view.strategy.stage == 0) return view;
      view.strategy.group_size = below(4);
      view.strategy.host_groups = below(3) == 0;
      for (Member& member : view.members) member.host = below(2) == 0 ? "a" : "b";
      return view;
    };
    const View from = grouped(
        MakeView(3, old_members, below(3), below(3), servers_among(old_members), below(2) == 0));
    // Some of them, and others.
    std::vector<uint64_t> new_members;
    std::vector<Incarnation> givers;
    for (uint64_t member : old_members) {
      if (below(4) == 0) continue;
      new_members.push_back(member);
      if (below(6) != 0) givers.push_back(Incarnation{member});
    }
    for (int i = below(3); i > 0; --i) new_members.push_back(100 + static_cast<uint64_t>(i));
    std::shuffle(new_members.begin(), new_members.end(), random);
    Activate activate;
    activate.view = grouped(
        MakeView(4, new_members, below(3), below(3), servers_among(new_members), below(2) == 0));
    if (new_members.empty() || LeastHolders(from, givers) == 0) continue;
    activate.move = MoveSource{from, givers};
    ++moves;
    const auto plan = PlanMove(activate, layout);
    ASSERT_TRUE(plan.ok()) << plan.status();

    const Held before = HeldBy(MapOf(from, layout)->map);
    const Held after = HeldBy(MapOf(activate.view, layout)->map);
    Held held(new_members.size(), std::vector<bool>(after[0].size()));
    for (Incarnation giver : givers) {
      held[static_cast<size_t>(activate.view.RankOf(giver))] =
          before[static_cast<size_t>(from.RankOf(giver))];
    }
    Held got = held;
    for (const Transfer& transfer : plan->transfers) {
      for (auto e = static_cast<size_t>(transfer.range.offset);
           e < static_cast<size_t>(transfer.range.end()); ++e) {
        ASSERT_TRUE(held[static_cast<size_t>(transfer.from)][e]) << "gives what it has not";
        ASSERT_FALSE(got[static_cast<size_t>(transfer.to)][e]) << "moved for nothing";
        got[static_cast<size_t>(transfer.to)][e] = true;
      }
    }
    for (size_t rank = 0; rank < after.size(); ++rank) {
      for (size_t e = 0; e < after[rank].size(); ++e) {
        ASSERT_TRUE(got[rank][e] || !after[rank][e]) << "rank " << rank << " lacks element " << e;
      }
    }
  }
  EXPECT_GT(moves, 30);
}

}  // namespace
}  // namespace muster
