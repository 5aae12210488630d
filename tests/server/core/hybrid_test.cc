// Hybrid sharding: groups hold replicas for each other, and whoever asks learns why there are none.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/control/placement.h"
#include "tests/server/core/fleet_script.h"

namespace muster {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Workers 1 to 4 have taken step 7 in view 1, in groups of two without further replicas: 1 and 3
// hold one shard, 2 and 4 the other.
void StartGroups(FleetScript& fleet) {
  fleet.Submit(1, 4, 100, 8, {.stage = 2, .replicas = 0, .group_size = 2});
  for (uint64_t i : {1, 2, 3, 4}) fleet.Join(i);
  for (uint64_t i : {1, 2, 3, 4}) fleet.Answer(i, 1);
  for (uint64_t i : {1, 2, 3, 4}) fleet.RunPart(i, 1, {1, 7, 1});
}

// `dead` are given up, and `left` answer; what comes of it.
Lines GoOnWithout(FleetScript& fleet, const std::vector<uint64_t>& dead,
                  const std::vector<uint64_t>& left) {
  for (uint64_t i : dead) fleet.Close(i);
  fleet.Suspect(left.front(), dead.front(), 1);
  for (uint64_t i : left) fleet.Answer(i, 2);
  for (uint64_t i : dead) fleet.Fire(coordinator::TimerKind::kReattach, i);
  return fleet.Fire(coordinator::TimerKind::kCollect);
}

std::string Reason(FleetScript& fleet) { return fleet.core().FindJob("j")->strategy_reason; }

TEST(HybridTest, TheOtherGroupGoesOnFromItsReplicas) {
  FleetScript fleet;
  StartGroups(fleet);
  EXPECT_EQ(GroupsOf(*fleet.core().CurrentView()).count(), 2);
  EXPECT_THAT(Reason(fleet), IsEmpty());
  EXPECT_THAT(GoOnWithout(fleet, {1, 2}, {3, 4}),
              Contains(HasSubstr("activate view 2 [#3 #4] from 1.7@1 stage 2 within groups of 2 "
                                 "move from view 1: #3 #4")));
  EXPECT_THAT(Reason(fleet), IsEmpty()) << "one group of two is what was asked for";
}

TEST(HybridTest, OneGroupTakesOverWhereWorkersCannotBeParted) {
  FleetScript fleet;
  StartGroups(fleet);
  EXPECT_THAT(GoOnWithout(fleet, {4}, {1, 2, 3}),
              Contains(HasSubstr("activate view 2 [#1 #2 #3] from 1.7@1")));
  const View& view = *fleet.core().CurrentView();
  EXPECT_EQ(GroupsOf(view).count(), 1);
  EXPECT_EQ(Reason(fleet),
            "3 workers cannot be parted into groups of 2, so shards are of all of them");
}

// Of a shard all holders are gone: one of each group, at the same place.
TEST(HybridTest, BeyondTheGroupsTheStateIsGone) {
  FleetScript fleet;
  StartGroups(fleet);
  EXPECT_THAT(GoOnWithout(fleet, {1, 3}, {2, 4}), Contains(HasSubstr("persist dissolved")));
}

}  // namespace
}  // namespace muster
