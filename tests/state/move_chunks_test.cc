#include "state/move_chunks.h"

#include <deque>
#include <map>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/state/random_layout.h"

namespace muster {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(MoveChunksTest, FillsMessagesWithRangesOfOnePairAndTakesTurns) {
  ReshardPlan plan;
  plan.participants = 3;
  plan.transfers = {{0, 1, {0, 10}}, {0, 1, {20, 15}}, {0, 2, {50, 5}}, {2, 0, {60, 4}}};
  EXPECT_THAT(ChunksOf(plan, 0, 12),
              ElementsAre(MoveChunk{1, true, {{0, 10}, {20, 2}}, 12},
                          MoveChunk{2, false, {{60, 4}}, 4}, MoveChunk{2, true, {{50, 5}}, 5},
                          MoveChunk{1, true, {{22, 12}}, 12}, MoveChunk{1, true, {{34, 1}}, 1}));
  EXPECT_THAT(ChunksOf(plan, 1, 100), ElementsAre(MoveChunk{0, false, {{0, 10}, {20, 15}}, 25}));
  plan.transfers.clear();
  EXPECT_THAT(ChunksOf(plan, 1, 100), IsEmpty());
}

// Executes the chunks of all participants, each of which does only the first of its list, and only
// when its peer does the other half: the strictest executor there is.
TEST(MoveChunksTest, NobodyWaitsInACircleAndAllArrives) {
  for (uint32_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    std::mt19937 random(seed);
    const int participants = static_cast<int>(Draw(random, 2, 9));
    ReshardPlan plan;
    plan.participants = participants;
    int64_t offset = 0;
    for (Rank from = 0; from < participants; ++from) {
      for (Rank to = 0; to < participants; ++to) {
        for (int64_t i = from == to ? 0 : Draw(random, 0, 3); i > 0; --i) {
          plan.transfers.push_back({from, to, {offset, Draw(random, 1, 200)}});
          offset += 300;
        }
      }
    }
    std::vector<std::deque<MoveChunk>> left(participants);
    for (Rank rank = 0; rank < participants; ++rank) {
      const std::vector<MoveChunk> chunks = ChunksOf(plan, rank, 64);
      left[rank].assign(chunks.begin(), chunks.end());
    }
    std::map<std::pair<Rank, Rank>, std::vector<Range>> arrived;
    bool moved = true;
    while (moved) {
      moved = false;
      for (Rank rank = 0; rank < participants; ++rank) {
        if (left[rank].empty() || !left[rank].front().is_sent) continue;
        const MoveChunk sent = left[rank].front();
        auto& peer = left[sent.peer];
        if (peer.empty() || peer.front().peer != rank || peer.front().is_sent) continue;
        ASSERT_EQ(peer.front().ranges, sent.ranges);
        ASSERT_LE(sent.element_count, 64);
        for (const Range range : sent.ranges) arrived[{rank, sent.peer}].push_back(range);
        left[rank].pop_front();
        peer.pop_front();
        moved = true;
      }
    }
    for (const auto& chunks : left) ASSERT_TRUE(chunks.empty()) << "participants wait in a circle";
    // Every element of every transfer, in order.
    for (const Transfer& transfer : plan.transfers) {
      int64_t next = transfer.range.offset;
      for (const Range range : arrived[{transfer.from, transfer.to}]) {
        if (!transfer.range.Contains(range)) continue;
        ASSERT_EQ(range.offset, next);
        next = range.end();
      }
      ASSERT_EQ(next, transfer.range.end());
    }
  }
}

}  // namespace
}  // namespace muster
