#include "base/random.h"

#include <cmath>

#include "gtest/gtest.h"

namespace muster {
namespace {

// Known answers published with the reference implementation (Random123, kat_vectors).
TEST(PhiloxTest, MatchesTheReferenceImplementation) {
  EXPECT_EQ(Philox({0, 0, 0, 0}, {0, 0}),
            (std::array<uint32_t, 4>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(Philox({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}),
            (std::array<uint32_t, 4>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(Philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (std::array<uint32_t, 4>{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(RandomStreamTest, NormalHasTheRightMoments) {
  const RandomStream stream(7, "test");
  double sum = 0, square = 0;
  constexpr int kCount = 200'000;
  for (int i = 0; i < kCount; ++i) {
    const double x = stream.Normal(i);
    sum += x;
    square += x * x;
  }
  EXPECT_NEAR(sum / kCount, 0, 0.01);
  EXPECT_NEAR(square / kCount, 1, 0.02);
}

TEST(RandomStreamTest, StreamsDifferInEveryPartOfTheirName) {
  const uint64_t reference = RandomStream(1, "a", 2, 3).Bits(0);
  EXPECT_NE(reference, RandomStream(2, "a", 2, 3).Bits(0));
  EXPECT_NE(reference, RandomStream(1, "b", 2, 3).Bits(0));
  EXPECT_NE(reference, RandomStream(1, "a", 3, 3).Bits(0));
  EXPECT_NE(reference, RandomStream(1, "a", 2, 4).Bits(0));
  EXPECT_NE(reference, RandomStream(1, "a", 2, 3).Bits(1));
  EXPECT_EQ(reference, RandomStream(1, "a", 2, 3).Bits(0));
}

TEST(RandomStreamTest, BelowStaysBelowAndReachesEveryValue) {
  const RandomStream stream(11, "below");
  int seen[7] = {};
  for (int i = 0; i < 7000; ++i) {
    const uint64_t value = stream.Below(i, 7);
    ASSERT_LT(value, 7u);
    ++seen[value];
  }
  for (const int count : seen) EXPECT_NEAR(count, 1000, 200);
}

}  // namespace
}  // namespace muster
