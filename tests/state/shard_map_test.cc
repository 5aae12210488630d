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

TEST(ShardMapTest, MergesNeighboursAndKnowsWhatRanksHoldAndOwn) {
  const ShardMap map =
      ShardMap::Create(
          100, 4,
          {{{0, 10}, {1}}, {{10, 20}, {1}}, {{30, 0}, {3}}, {{30, 30}, {1, 2}}, {{60, 40}, {2}}})
          .value();
  EXPECT_THAT(map.shards(),
              ElementsAre(Shard{{0, 30}, {1}}, Shard{{30, 30}, {1, 2}}, Shard{{60, 40}, {2}}));
  EXPECT_THAT(map.RangesHeldBy(1), ElementsAre(Range{0, 60}));
  EXPECT_THAT(map.RangesOwnedBy(1), ElementsAre(Range{0, 60}));
  EXPECT_THAT(map.RangesHeldBy(2), ElementsAre(Range{30, 70}));
  EXPECT_THAT(map.RangesOwnedBy(2), ElementsAre(Range{60, 40}));
  EXPECT_THAT(map.RangesHeldBy(0), IsEmpty());
  EXPECT_EQ(map.CountHeldBy(2), 70);
  EXPECT_EQ(map.CountHeldBy(3), 0);
  EXPECT_TRUE(map.Holds(1, {29, 2}));
  EXPECT_FALSE(map.Holds(2, {29, 2}));
  EXPECT_EQ(map.OwnerOf(59), 1);
  EXPECT_EQ(map.OwnerOf(60), 2);
}

TEST(ShardMapTest, RefusesWhatIsNoMap) {
  const auto refusal = [](std::vector<Shard> shards) {
    const absl::Status status = ShardMap::Create(10, 3, std::move(shards)).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  EXPECT_THAT(refusal({}), HasSubstr("end at element 0; expected 10"));
  EXPECT_THAT(refusal({{{0, 4}, {0}}, {{5, 5}, {0}}}),
              HasSubstr("from 5 on; expected it to begin at 4"));
  EXPECT_THAT(refusal({{{0, 4}, {0}}, {{3, 7}, {0}}}),
              HasSubstr("from 3 on; expected it to begin at 4"));
  EXPECT_THAT(refusal({{{0, 11}, {0}}}), HasSubstr("11 elements from 0 on"));
  EXPECT_THAT(refusal({{{0, -1}, {0}}}), HasSubstr("-1 elements from 0 on"));
  EXPECT_THAT(refusal({{{0, 10}, {}}}), HasSubstr("nobody holds elements 0 to 10"));
  EXPECT_THAT(refusal({{{0, 10}, {3}}}), HasSubstr("held by rank 3; expected 0 to 2"));
  EXPECT_THAT(refusal({{{0, 10}, {0, -1}}}), HasSubstr("held by rank -1"));
  EXPECT_THAT(refusal({{{0, 10}, {1, 2, 1}}}), HasSubstr("rank 1 is named twice"));
}

TEST(ShardMapDeathTest, AnElementOutsideIsABug) {
  const ShardMap map = ShardMap::Replicated(10, 1).value();
  EXPECT_DEATH(map.ShardOf(10), "element 10");
}

}  // namespace
}  // namespace muster
