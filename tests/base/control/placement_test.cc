#include "base/control/placement.h"

#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/base/control/view_of_hosts.h"

namespace muster {
namespace {

using ::testing::ElementsAre;

View MakeView(const std::vector<std::string>& hosts, int stage, int replicas) {
  return ViewOfHosts({.stage = stage, .replicas = replicas}, hosts);
}

TEST(PlacementTest, OfAStateThatIsNotShardedEveryMemberHoldsTheOneShard) {
  const View view = MakeView({"a", "a", "b"}, 0, 1);
  EXPECT_THAT(ShardOwners(view), ElementsAre(0, 1, 2));
  EXPECT_THAT(ShardHolders(view), ElementsAre(ElementsAre(0, 1, 2)));
  EXPECT_EQ(LeastHolders(view, {Incarnation{2}}), 1);
  EXPECT_EQ(LeastHolders(view, {Incarnation{9}}), 0) << "no member";
}

TEST(PlacementTest, EveryMemberHoldsEquallyMuchAndReplicasLieApart) {
  for (int size = 1; size <= 12; ++size) {
    for (int replicas = 0; replicas <= 4; ++replicas) {
      const View view = MakeView(std::vector<std::string>(size, "here"), 2, replicas);
      const auto holders = ShardHolders(view);
      ASSERT_EQ(holders.size(), static_cast<size_t>(size));
      std::map<Rank, int> load;
      for (int shard = 0; shard < size; ++shard) {
        EXPECT_EQ(holders[shard][0], shard);
        EXPECT_EQ(holders[shard].size(), static_cast<size_t>(std::min(size, 1 + replicas)));
        const std::set<Rank> different(holders[shard].begin(), holders[shard].end());
        EXPECT_EQ(different.size(), holders[shard].size()) << "a shard twice on one rank";
        for (Rank rank : holders[shard]) ++load[rank];
      }
      for (const auto& [rank, count] : load) EXPECT_EQ(count, std::min(size, 1 + replicas));
    }
  }
}

View MakeServedView(int workers, int servers, bool mixed) {
  View view = MakeView(std::vector<std::string>(workers + servers, "here"), 0, 1);
  for (int i = workers; i < workers + servers; ++i) {
    view.members[i].role = MemberRole::kParameterServer;
  }
  view.strategy.sync = SyncPath::kParameterServer;
  view.strategy.servers = servers;
  view.strategy.mixed = mixed;
  return view;
}

TEST(PlacementTest, DedicatedServersOwnEverythingWhileThereAreAny) {
  EXPECT_THAT(ShardOwners(MakeServedView(3, 2, false)), ElementsAre(3, 4));
  EXPECT_THAT(ShardHolders(MakeServedView(3, 2, false)),
              ElementsAre(ElementsAre(3, 4), ElementsAre(4, 3)));
  EXPECT_THAT(ShardOwners(MakeServedView(3, 0, false)), ElementsAre(0, 1, 2));
  View view = MakeServedView(2, 1, false);
  view.leaving = {view.members[2].incarnation};
  EXPECT_THAT(ShardOwners(view), ElementsAre(0, 1)) << "the server gives what it has";
  EXPECT_THAT(ShardOwners(MakeServedView(0, 2, true)), ElementsAre(0, 1)) << "no worker is left";
}

// Then each link carries the same in each direction: a server's n times its part, a worker's all
// the others' parts, and what the others push to its own.
TEST(PlacementTest, MixedPartsKeepAllLinksEquallyBusy) {
  for (int n = 1; n <= 9; ++n) {
    for (int k = 1; k <= 9; ++k) {
      const std::vector<int64_t> weights = ShardWeights(MakeServedView(n, k, true));
      const double server = static_cast<double>(weights[n]);
      const double worker = static_cast<double>(weights[0]);
      const double all = n * worker + k * server;
      if (n <= k) {
        EXPECT_EQ(worker, 0) << n << " " << k;
      } else {
        EXPECT_EQ(n * server, all - worker + (n - 1) * worker) << n << " " << k;
      }
    }
  }
}

TEST(PlacementTest, AReplicaLiesOnAnotherHostWhereThatCanBe) {
  for (const auto& hosts :
       {std::vector<std::string>{"a", "a", "b", "b"}, std::vector<std::string>{"a", "b", "a", "b"},
        std::vector<std::string>{"a", "a", "a", "b", "b", "b"},
        std::vector<std::string>{"a", "b", "c"}}) {
    for (const std::vector<Rank>& shard : ShardHolders(MakeView(hosts, 1, 1))) {
      EXPECT_NE(hosts[shard[0]], hosts[shard[1]]) << "of " << hosts.size();
    }
  }
}

TEST(PlacementTest, WhoLeavesOwnsNothing) {
  View view = MakeView({"a", "b", "c"}, 3, 1);
  view.leaving = {Incarnation{2}};
  EXPECT_THAT(ShardOwners(view), ElementsAre(0, 2));
  EXPECT_THAT(ShardHolders(view), ElementsAre(ElementsAre(0, 2), ElementsAre(2, 0)));
}

TEST(PlacementTest, CountsTheCopiesOfTheShardWithTheFewest) {
  const View view = MakeView({"h", "h", "h", "h"}, 1, 1);  // shard s: s and s + 1
  const auto members = [](std::initializer_list<uint64_t> values) {
    std::vector<Incarnation> list;
    for (uint64_t value : values) list.push_back(Incarnation{value});
    return list;
  };
  EXPECT_EQ(LeastHolders(view, members({1, 2, 3, 4})), 2);
  EXPECT_EQ(LeastHolders(view, members({1, 2, 3})), 1);
  EXPECT_EQ(LeastHolders(view, members({1, 3})), 1) << "every other one will do";
  EXPECT_EQ(LeastHolders(view, members({1, 2})), 0);
}

}  // namespace
}  // namespace muster
