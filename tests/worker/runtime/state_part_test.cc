#include "worker/runtime/state_part.h"

#include <algorithm>
#include <numeric>
#include <random>
#include <vector>

#include "gtest/gtest.h"

namespace muster {
namespace {

constexpr int64_t kElements = 200;

// Ranges with gaps between them.
std::vector<Range> RandomRanges(std::mt19937& random) {
  std::vector<Range> ranges;
  for (int64_t at = static_cast<int64_t>(random() % 20); at < kElements;) {
    const auto count = std::min<int64_t>(1 + static_cast<int64_t>(random() % 30), kElements - at);
    ranges.push_back({at, count});
    at += count + 1 + static_cast<int64_t>(random() % 20);
  }
  return ranges;
}

bool In(const std::vector<Range>& ranges, int64_t element) {
  for (const Range& range : ranges) {
    if (range.Contains({element, 1})) return true;
  }
  return false;
}

TEST(StatePartTest, KeepsWhatIsPutWhereItHoldsIt) {
  std::mt19937 random(3);
  for (int round = 0; round < 100; ++round) {
    StatePart part(RandomRanges(random), 2);
    std::vector<float> expected(kElements, 0.0f);
    for (int put = 0; put < 8; ++put) {
      const auto offset = static_cast<int64_t>(random() % kElements);
      std::vector<float> values(1 + random() % static_cast<unsigned>(kElements - offset));
      std::iota(values.begin(), values.end(), static_cast<float>(1000 * put));
      part.Put(1, offset, values);
      std::copy(values.begin(), values.end(), expected.begin() + offset);
    }
    for (int64_t element = 0; element < kElements; ++element) {
      const Range one{element, 1};
      ASSERT_EQ(part.Holds(one), In(part.ranges(), element));
      if (!part.Holds(one)) continue;
      EXPECT_EQ(part.Of(1, one)[0], expected[static_cast<size_t>(element)]);
      EXPECT_EQ(part.Of(0, one)[0], 0.0f) << "another array";
    }
  }
}

TEST(StatePartTest, GivesOfARangeWhatItHolds) {
  std::mt19937 random(5);
  for (int round = 0; round < 100; ++round) {
    StatePart part(RandomRanges(random), 1);
    std::vector<float> values(kElements);
    std::iota(values.begin(), values.end(), 1.0f);
    part.Put(0, 0, values);
    const auto offset = static_cast<int64_t>(random() % kElements);
    std::vector<float> got(1 + random() % static_cast<unsigned>(kElements - offset), -1.0f);
    part.Get(0, offset, absl::MakeSpan(got));
    for (size_t i = 0; i < got.size(); ++i) {
      const int64_t element = offset + static_cast<int64_t>(i);
      const bool held = part.Holds({element, 1});
      EXPECT_EQ(got[i], held ? static_cast<float>(element + 1) : -1.0f);
    }
  }
}

TEST(StatePartTest, APoolServesPartsOneAfterTheOther) {
  ArrayPool pool(1 << 20);
  const float* before = nullptr;
  {
    StatePart part({{0, 5000}}, 1, &pool);
    std::ranges::fill(part.Array(0), 1.0f);
    before = part.Array(0).data();
  }
  StatePart unset = StatePart::Unset({{100, 4000}}, 1, &pool);
  EXPECT_EQ(unset.Array(0).data(), before);
  unset = StatePart();
  const StatePart zeros({{0, 5000}}, 1, &pool);
  EXPECT_EQ(zeros.Array(0).data(), before);
  for (const float value : zeros.Array(0)) ASSERT_EQ(value, 0.0f);
}

TEST(StatePartTest, ShrinksInPlace) {
  std::mt19937 random(6);
  for (int round = 0; round < 200; ++round) {
    const std::vector<Range> ranges = RandomRanges(random);
    StatePart part(ranges, 2);
    std::vector<float> values(kElements);
    std::iota(values.begin(), values.end(), 1.0f);
    part.Put(0, 0, values);
    std::iota(values.begin(), values.end(), 1001.0f);
    part.Put(1, 0, values);
    // Some of what is held: pieces from anywhere in some of the ranges.
    std::vector<Range> kept;
    int64_t count = 0;
    for (const Range& range : ranges) {
      if (random() % 3 == 0) continue;
      const auto skipped = static_cast<int64_t>(random() % static_cast<unsigned>(range.count));
      const int64_t most = range.count - skipped;
      kept.push_back({range.offset + skipped,
                      1 + static_cast<int64_t>(random() % static_cast<unsigned>(most))});
      count += kept.back().count;
    }
    const float* const memory = part.Array(0).data();
    part.ShrinkTo(kept);
    EXPECT_EQ(part.ranges(), kept);
    EXPECT_EQ(part.element_count(), count);
    EXPECT_EQ(part.Array(0).data(), memory);
    for (int64_t element = 0; element < kElements; ++element) {
      const Range one{element, 1};
      ASSERT_EQ(part.Holds(one), In(kept, element));
      if (!part.Holds(one)) continue;
      EXPECT_EQ(part.Of(0, one)[0], static_cast<float>(element + 1));
      EXPECT_EQ(part.Of(1, one)[0], static_cast<float>(element + 1001));
    }
  }
}

TEST(StatePartTest, CopiesWhatBothHold) {
  std::mt19937 random(4);
  for (int round = 0; round < 100; ++round) {
    StatePart from(RandomRanges(random), 1);
    std::vector<float> values(kElements);
    std::iota(values.begin(), values.end(), 1.0f);
    from.Put(0, 0, values);
    StatePart to(RandomRanges(random), 1);
    to.CopyFrom(from);
    for (int64_t element = 0; element < kElements; ++element) {
      const Range one{element, 1};
      if (!to.Holds(one)) continue;
      EXPECT_EQ(to.Of(0, one)[0], from.Holds(one) ? static_cast<float>(element + 1) : 0.0f);
    }
  }
}

TEST(StatePartTest, WhatIsPackedUnpacksWhereItBelongs) {
  const Range whole{0, 3000};
  StatePart from({whole}, 2);
  std::iota(from.Array(0).begin(), from.Array(0).end(), 0.0f);
  std::iota(from.Array(1).begin(), from.Array(1).end(), 0.5f);
  const Range range{1003, 1001};
  std::vector<std::byte> bytes(2 * 1001 * sizeof(float) + 1);
  const auto at = absl::MakeSpan(bytes).subspan(1);  // aligned to nothing
  from.Pack(range, at);
  StatePart to({{range.offset - 5, range.count + 5}}, 2);
  to.Unpack(range, at);
  for (int array : {0, 1}) {
    EXPECT_EQ(to.Of(array, range), from.Of(array, range));
    EXPECT_EQ(to.Array(array)[4], 0.0f);
  }
}

TEST(StatePartTest, NothingIsHeldOfNothing) {
  const StatePart nothing;
  EXPECT_EQ(nothing.element_count(), 0);
  EXPECT_FALSE(nothing.Holds({0, 1}));
}

}  // namespace
}  // namespace muster
