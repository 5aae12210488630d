#include "base/control/shard_groups.h"

#include <numeric>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/control/placement.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/base/control/view_of_hosts.h"

namespace muster {
namespace {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::IsEmpty;

constexpr Strategy kByHost{.stage = 2, .host_groups = true};

Strategy InGroupsOf(int32_t size) { return {.stage = 2, .group_size = size}; }

ShardGroups Form(const Strategy& strategy, const std::vector<std::string>& hosts) {
  std::vector<Rank> ranks(hosts.size());
  std::iota(ranks.begin(), ranks.end(), 0);
  return FormShardGroups(strategy, ranks, hosts);
}

TEST(ShardGroupsTest, EverybodyIsOneGroupUnlessTheStrategyAsksForMore) {
  for (const Strategy& strategy : {Strategy{}, Strategy{.stage = 3}}) {
    const ShardGroups all = Form(strategy, {"a", "b", "a"});
    EXPECT_THAT(all.groups, ElementsAre(ElementsAre(0, 1, 2)));
    EXPECT_THAT(all.obstacle, IsEmpty());
  }
}

TEST(ShardGroupsTest, AreTheMembersOfEachHost) {
  EXPECT_THAT(Form(kByHost, {"a", "b", "b", "a"}).groups,
              ElementsAre(ElementsAre(0, 3), ElementsAre(1, 2)));
  EXPECT_THAT(Form(kByHost, {"a", "a"}).groups, ElementsAre(ElementsAre(0, 1)));
  EXPECT_THAT(Form(kByHost, {"a", "b"}).groups, ElementsAre(ElementsAre(0), ElementsAre(1)));
  EXPECT_THAT(Form(kByHost, {"a", "b"}).obstacle, IsEmpty());
}

TEST(ShardGroupsTest, OfASizeKeepNeighboursOfAHostTogether) {
  EXPECT_THAT(Form(InGroupsOf(2), {"a", "b", "a", "b"}).groups,
              ElementsAre(ElementsAre(0, 2), ElementsAre(1, 3)));
  EXPECT_THAT(Form(InGroupsOf(2), {"a", "a", "a", "a"}).groups,
              ElementsAre(ElementsAre(0, 1), ElementsAre(2, 3)));
  // One spans both; ranks rise within it.
  EXPECT_THAT(Form(InGroupsOf(2), {"b", "a", "a", "a", "b", "b"}).groups,
              ElementsAre(ElementsAre(0, 4), ElementsAre(1, 5), ElementsAre(2, 3)));
  EXPECT_THAT(Form(InGroupsOf(3), {"a", "b", "c"}).groups, ElementsAre(ElementsAre(0, 1, 2)));
  EXPECT_THAT(Form(InGroupsOf(1), {"a", "b"}).groups, ElementsAre(ElementsAre(0), ElementsAre(1)));
}

TEST(ShardGroupsTest, WhatCannotBePartedEvenlyIsOneGroupWithTheReason) {
  ShardGroups uneven = Form(kByHost, {"a", "b", "b"});
  EXPECT_THAT(uneven.groups, ElementsAre(ElementsAre(0, 1, 2)));
  EXPECT_EQ(uneven.obstacle,
            "host a has 1 workers and host b 2, so shards are of all 3 workers instead of each "
            "host's");
  for (const int32_t size : {2, 4}) {
    uneven = Form(InGroupsOf(size), {"a", "b", "b"});
    EXPECT_THAT(uneven.groups, ElementsAre(ElementsAre(0, 1, 2)));
    EXPECT_EQ(uneven.obstacle, absl::StrCat("3 workers cannot be parted into groups of ", size,
                                            ", so shards are of all of them"));
  }
}

TEST(ShardGroupsTest, EachGroupHoldsEverythingAndTheFirstOwnsIt) {
  View view = ViewOfHosts(kByHost, {"a", "b", "b", "a"});
  EXPECT_THAT(ShardOwners(view), ElementsAre(0, 3));
  EXPECT_THAT(ShardHolders(view), ElementsAre(ElementsAre(0, 1), ElementsAre(3, 2)));
  // A whole host may go, or one of each whose places differ.
  EXPECT_EQ(LeastHolders(view, {Incarnation{1}, Incarnation{4}}), 1);
  EXPECT_EQ(LeastHolders(view, {Incarnation{1}, Incarnation{3}}), 1);
  EXPECT_EQ(LeastHolders(view, {Incarnation{1}, Incarnation{2}}), 0);
  // The other one is beside the first now, in one group.
  view.leaving = {Incarnation{4}};
  view.strategy.replicas = 0;
  EXPECT_THAT(ShardHolders(view), ElementsAre(ElementsAre(0), ElementsAre(1), ElementsAre(2)));
  view.leaving = {Incarnation{4}, Incarnation{2}};
  EXPECT_THAT(ShardHolders(view), ElementsAre(ElementsAre(0, 2)));
}

// With one group nothing is different from a strategy without groups.
TEST(ShardGroupsTest, OneGroupIsPlacedAsIfThereWereNone) {
  const std::vector<std::string> hosts = {"a", "b", "a", "b", "a"};
  Strategy plain{.stage = 1, .replicas = 2};
  Strategy grouped = plain;
  grouped.group_size = 5;
  EXPECT_THAT(ShardHolders(ViewOfHosts(grouped, hosts)),
              ElementsAreArray(ShardHolders(ViewOfHosts(plain, hosts))));
  grouped.group_size = 2;
  EXPECT_THAT(ShardHolders(ViewOfHosts(grouped, hosts)),
              ElementsAreArray(ShardHolders(ViewOfHosts(plain, hosts))));
}

}  // namespace
}  // namespace muster
