#include "state/gradient_norm.h"

#include <bit>
#include <cmath>
#include <limits>

#include "base/random.h"
#include "gtest/gtest.h"

namespace muster {
namespace {

// Floats over the whole range of exponents, subnormals and zeros of both signs included.
std::vector<float> WildFloats(int64_t count, uint64_t seed) {
  const RandomStream stream(seed, "wild");
  std::vector<float> values(count);
  for (int64_t i = 0; i < count; ++i) {
    float value = std::bit_cast<float>(static_cast<uint32_t>(stream.Bits(i)));
    if (!std::isfinite(value)) value = 0;
    values[i] = value;
  }
  return values;
}

SquaredSum SumOf(absl::Span<const float> values) {
  SquaredSum sum;
  sum.Add(values);
  return sum;
}

TEST(SquaredSumTest, SmallSumsAreExact) {
  EXPECT_EQ(SquaredSum().Value(), 0);
  EXPECT_EQ(SumOf({3, -4}).Value(), 25);
  EXPECT_EQ(SumOf({0.5f, 0.0f, -0.0f}).Value(), 0.25);
  EXPECT_EQ(SumOf({std::numeric_limits<float>::denorm_min()}).Value(), 0x1p-298);
  const double largest = std::numeric_limits<float>::max();
  EXPECT_EQ(SumOf({std::numeric_limits<float>::max()}).Value(), largest * largest);
  const double smallest_normal = std::numeric_limits<float>::min();
  EXPECT_EQ(SumOf({std::numeric_limits<float>::min()}).Value(), smallest_normal * smallest_normal);
}

TEST(SquaredSumTest, RoundsOnceAndToNearestEven) {
  // 2^60 + 2^6 (2^60 has an ulp of 256): below half, a tie, and a tie with dust 2^-298 above it.
  const float big = 0x1p30f, eight = 0x1p3f, dust = std::numeric_limits<float>::denorm_min();
  EXPECT_EQ(SumOf({big, eight}).Value(), 0x1p60);
  EXPECT_EQ(SumOf({big, eight, eight}).Value(), 0x1p60);
  EXPECT_EQ(SumOf({big, eight, eight, dust}).Value(), 0x1p60 + 256);
  EXPECT_EQ(SumOf({dust, eight, big, eight}).Value(), 0x1p60 + 256);
}

TEST(SquaredSumTest, AgreesWithExtendedPrecision) {
  const RandomStream stream(3, "gradient");
  std::vector<float> values(300'001);  // more than one block of the table, and a tail
  long double expected = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<float>(1e-3 * stream.Normal(i));
    expected += static_cast<long double>(values[i]) * values[i];
  }
  EXPECT_NEAR(SumOf(values).Value() / static_cast<double>(expected), 1, 1e-15);
}

TEST(SquaredSumTest, ManyEqualLargeValuesDoNotOverflowTheTables) {
  // The largest significand, in more values than one table entry holds.
  const float value = 0x1.fffffep0f;
  const std::vector<float> values(1 << 19, value);
  EXPECT_EQ(SumOf(values).Value(), double{value} * value * (1 << 19));
}

TEST(SquaredSumTest, DoesNotDependOnTheCutTheOrderOrTheExchange) {
  const std::vector<float> values = WildFloats(10'000, 5);
  const SquaredSum whole = SumOf(values);
  const RandomStream stream(6, "cuts");
  for (int round = 0; round < 20; ++round) {
    // Cut into pieces of random sizes and combine them backwards, through summed words.
    std::vector<SquaredSum> pieces;
    for (size_t begin = 0, i = 0; begin < values.size(); ++i) {
      const size_t count = 1 + stream.Below(round * 1000 + i, 3000);
      pieces.push_back(SumOf(absl::MakeConstSpan(values).subspan(begin, count)));
      begin += count;
    }
    SquaredSum merged;
    SquaredSum::Words words = {};
    for (auto piece = pieces.rbegin(); piece != pieces.rend(); ++piece) {
      merged.Merge(*piece);
      const SquaredSum::Words part = piece->ToWords();
      for (int i = 0; i < SquaredSum::kWords; ++i) words[i] += part[i];
    }
    EXPECT_EQ(merged.ToWords(), whole.ToWords());
    EXPECT_EQ(SquaredSum::FromWords(words).value().ToWords(), whole.ToWords());
    EXPECT_EQ(merged.Value(), whole.Value());
  }
}

TEST(SquaredSumTest, ReportsAnythingThatIsNotFinite) {
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::signaling_NaN(),
        std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity()}) {
    for (const size_t position : {0, 3, 500, 998}) {
      std::vector<float> values(999, 1.0f);
      values[position] = bad;
      SquaredSum sum = SumOf(values);
      EXPECT_FALSE(sum.finite());
      EXPECT_TRUE(std::isnan(sum.Value()));
      EXPECT_FALSE(SquaredSum::FromWords(sum.ToWords()).value().finite());
      SquaredSum clean = SumOf({1});
      clean.Merge(sum);
      EXPECT_FALSE(clean.finite());
    }
  }
  EXPECT_TRUE(SumOf({std::numeric_limits<float>::max()}).finite());
}

TEST(SquaredSumTest, FromWordsRejectsWhatIsNoSum) {
  const auto rejects = [](absl::Span<const int64_t> words) {
    return SquaredSum::FromWords(words).status().code() == absl::StatusCode::kInvalidArgument;
  };
  SquaredSum::Words words = {};
  EXPECT_FALSE(rejects(words));
  EXPECT_TRUE(rejects(absl::MakeConstSpan(words).subspan(1)));
  words[4] = -1;
  EXPECT_TRUE(rejects(words));
  words[4] = 0;
  words[SquaredSum::kDigits - 1] = int64_t{1} << 40;
  EXPECT_TRUE(rejects(words));
}

}  // namespace
}  // namespace muster
