#include "server/parameter_server/core/interval_set.h"

#include <random>

#include "gtest/gtest.h"
#include "tests/state/random_layout.h"

namespace muster {
namespace {

constexpr int64_t kEnd = 60;

TEST(IntervalSetTest, IsTheSetOfItsNumbers) {
  for (uint32_t seed = 0; seed < 300; ++seed) {
    std::mt19937 random(seed);
    IntervalSet set;
    std::vector<bool> oracle(kEnd, false);
    for (int i = 0; i < 20; ++i) {
      const int64_t begin = Draw(random, 0, kEnd);
      const Range range = {begin, Draw(random, 0, std::min<int64_t>(12, kEnd - begin))};
      // What is missing, number by number.
      std::vector<bool> missing(kEnd, false);
      set.ForEachMissing(range, [&](Range part) {
        ASSERT_GT(part.count, 0);
        for (int64_t n = part.offset; n < part.end(); ++n) missing[n] = true;
      });
      bool any = false;
      for (int64_t n = 0; n < kEnd; ++n) {
        const bool wanted = n >= range.offset && n < range.end();
        ASSERT_EQ(missing[n], wanted && !oracle[n]) << "seed " << seed << ", number " << n;
        any |= missing[n];
      }
      ASSERT_EQ(set.Contains(range), !any);
      set.Add(range);
      for (int64_t n = range.offset; n < range.end(); ++n) oracle[n] = true;
      ASSERT_EQ(set.size(), std::count(oracle.begin(), oracle.end(), true));
      for (size_t k = 1; k < set.intervals().size(); ++k) {
        ASSERT_LT(set.intervals()[k - 1].end(), set.intervals()[k].offset) << "seed " << seed;
      }
    }
  }
}

}  // namespace
}  // namespace muster
