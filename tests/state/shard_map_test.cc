#include "state/shard_map.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(ShardMapTest, ReplicatedGivesEverythingToEveryRank) {
  const ShardMap map = ShardMap::Replicated(1000, 3).value();
  EXPECT_EQ(map.element_count(), 1000);
  EXPECT_EQ(map.world_size(), 3);
  for (Rank rank = 0; rank < 3; ++rank) {
    EXPECT_THAT(map.RangesHeldBy(rank), ElementsAre(Range{0, 1000}));
    EXPECT_TRUE(map.Holds(rank, {0, 1000}));
    EXPECT_TRUE(map.Holds(rank, {999, 1}));
    EXPECT_FALSE(map.Holds(rank, {999, 2}));
  }
  EXPECT_THAT(map.RangesHeldBy(3), IsEmpty());
  EXPECT_FALSE(map.Holds(3, {0, 1}));
  for (const int64_t element : {0, 500, 999}) {
    EXPECT_EQ(map.OwnerOf(element), 0);
    EXPECT_THAT(map.ShardOf(element).holders, ElementsAre(0, 1, 2));
  }
  EXPECT_EQ(map.ToString(), "replicated over ranks 0..2");
  EXPECT_EQ(map, ShardMap::Replicated(1000, 3).value());
  EXPECT_FALSE(map == ShardMap::Replicated(1000, 4).value());
}

TEST(ShardMapTest, RejectsEmptySpacesAndWorlds) {
  EXPECT_THAT(std::string(ShardMap::Replicated(0, 1).status().message()), HasSubstr("got 0"));
  EXPECT_THAT(std::string(ShardMap::Replicated(1, 0).status().message()), HasSubstr("world size"));
  EXPECT_EQ(ShardMap::Replicated(-1, 1).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(ShardMapDeathTest, AnElementOutsideIsABug) {
  const ShardMap map = ShardMap::Replicated(10, 1).value();
  EXPECT_DEATH(map.ShardOf(10), "element 10");
}

}  // namespace
}  // namespace muster
