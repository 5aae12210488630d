#include "state/source_balance.h"

#include <algorithm>
#include <numeric>
#include <random>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster {
namespace {

using ::testing::ElementsAre;

// The least that the busiest rank can give: whatever only ranks of a set can give, one of them
// gives at least its share of. There is always a set that attains it.
int64_t LeastMaximum(const std::vector<Demand>& demands, int ranks) {
  int64_t most = 0;
  for (uint32_t set = 1; set < (1u << ranks); ++set) {
    int64_t count = 0;
    for (const Demand& demand : demands) {
      const bool inside = std::all_of(demand.sources.begin(), demand.sources.end(),
                                      [set](Rank rank) { return ((set >> rank) & 1) != 0; });
      if (inside) count += demand.count;
    }
    const int size = __builtin_popcount(set);
    most = std::max(most, (count + size - 1) / size);
  }
  return most;
}

// Fails if shares don't add up to the demands.
int64_t Maximum(const std::vector<Demand>& demands, int ranks,
                const std::vector<std::vector<int64_t>>& shares) {
  std::vector<int64_t> load(ranks);
  EXPECT_EQ(shares.size(), demands.size());
  for (size_t i = 0; i < demands.size(); ++i) {
    EXPECT_EQ(shares[i].size(), demands[i].sources.size());
    EXPECT_EQ(std::accumulate(shares[i].begin(), shares[i].end(), int64_t{0}), demands[i].count);
    for (size_t j = 0; j < shares[i].size(); ++j) {
      EXPECT_GE(shares[i][j], 0);
      load[demands[i].sources[j]] += shares[i][j];
    }
  }
  return *std::max_element(load.begin(), load.end());
}

TEST(SourceBalanceTest, TheBusiestGivesAsLittleAsCanBe) {
  for (uint32_t seed = 0; seed < 500; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    std::mt19937 random(seed);
    const int ranks = 1 + static_cast<int>(random() % 9);
    std::vector<Demand> demands(1 + random() % 12);
    for (Demand& demand : demands) {
      demand.count = static_cast<int64_t>(random() % 100'000);
      for (Rank rank = 0; rank < ranks; ++rank) {
        if (random() % 3 == 0) demand.sources.push_back(rank);
      }
      if (demand.sources.empty()) demand.sources.push_back(static_cast<Rank>(random() % ranks));
      std::shuffle(demand.sources.begin(), demand.sources.end(), random);
    }
    const int64_t maximum = Maximum(demands, ranks, BalanceSources(demands, ranks));
    const int64_t least = LeastMaximum(demands, ranks);
    ASSERT_GE(maximum, least);
    ASSERT_LE(maximum, least + static_cast<int64_t>(demands.size()));
  }
}

TEST(SourceBalanceTest, GivesAwayWhatOthersCanGive) {
  // Rank 0 must give 100, so rank 1 gives all of what both could.
  EXPECT_THAT(BalanceSources({{{0, 1}, 60}, {{0}, 100}}, 2),
              ElementsAre(ElementsAre(0, 60), ElementsAre(100)));
  EXPECT_THAT(BalanceSources({{{2, 0, 1}, 10}}, 3), ElementsAre(ElementsAre(4, 3, 3)));
  // A chain: each shares with the next.
  const std::vector<Demand> chain = {{{0}, 90}, {{0, 1}, 90}, {{1, 2}, 90}, {{2, 3}, 90}};
  EXPECT_LE(Maximum(chain, 4, BalanceSources(chain, 4)), 92);
  EXPECT_THAT(BalanceSources({}, 3), ElementsAre());
}

}  // namespace
}  // namespace muster
