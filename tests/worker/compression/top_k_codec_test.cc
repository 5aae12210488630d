#include "worker/compression/top_k_codec.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <vector>

#include "base/float16.h"
#include "base/random.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster {
namespace {

using testing::ElementsAre;

struct Coded {
  std::vector<std::byte> bytes;
  std::vector<float> lacks;
};

Coded Encode(std::vector<float> values, double fraction) {
  Coded coded;
  coded.bytes.resize(
      static_cast<size_t>(TopKBytesOf(static_cast<int64_t>(values.size()), fraction)));
  EncodeTopK(absl::MakeSpan(values), fraction, absl::MakeSpan(coded.bytes));
  coded.lacks = std::move(values);
  return coded;
}

std::vector<float> Decoded(const Coded& coded, double fraction) {
  std::vector<float> values(coded.lacks.size(), -1);
  const absl::Status status = AddTopK(coded.bytes, static_cast<int64_t>(values.size()), fraction, 0,
                                      /*starts=*/true, absl::MakeSpan(values));
  EXPECT_TRUE(status.ok()) << status;
  return values;
}

// By the definition: sorted by magnitude, the first of equals first.
std::vector<float> Oracle(const std::vector<float>& values, int64_t count) {
  std::vector<size_t> order(values.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return std::fabs(values[a]) > std::fabs(values[b]); });
  std::vector<float> sent(values.size(), 0);
  for (int64_t i = 0; i < count; ++i) {
    const size_t at = order[static_cast<size_t>(i)];
    sent[at] = BF16ToF32(F32ToBF16(values[at]));
  }
  return sent;
}

TEST(TopKCodecTest, CountsAreTheRoundedShareAndOneAtLeast) {
  EXPECT_EQ(TopKCountOf(1024, 0.01), 10);
  EXPECT_EQ(TopKCountOf(1024, 0.001), 1);
  EXPECT_EQ(TopKCountOf(64, 0.01), 1);
  EXPECT_EQ(TopKCountOf(64, 0.5), 32);
  EXPECT_EQ(TopKCountOf(1, 0.5), 1);
  EXPECT_EQ(TopKCountOf(7, 1), 7);
  EXPECT_EQ(TopKBytesOf(1024, 0.01), 40);
}

TEST(TopKCodecTest, SendsTheLargestAndKeepsTheRest) {
  for (const size_t count : {1, 2, 64, 1000, 1024}) {
    for (const double fraction : {0.001, 0.01, 0.25, 0.5, 1.0}) {
      for (const bool few_values : {false, true}) {  // with many that are equal
        const RandomStream random(2, "top-k", count);
        std::vector<float> values(count);
        for (size_t i = 0; i < count; ++i) {
          values[i] = few_values ? static_cast<float>(random.Below(i, 5)) - 2
                                 : 2 * random.UniformFloat(i) - 1;
        }
        const Coded coded = Encode(values, fraction);
        const std::vector<float> sent = Decoded(coded, fraction);
        EXPECT_EQ(sent, Oracle(values, TopKCountOf(static_cast<int64_t>(count), fraction)))
            << count << " elements, fraction " << fraction;
        // Nothing is lost, to the last bit.
        for (size_t i = 0; i < count; ++i) {
          EXPECT_EQ(double{sent[i]} + double{coded.lacks[i]}, double{values[i]}) << i;
        }
      }
    }
  }
}

// The bound of the source: at most 1 - k/n of the squares stay.
TEST(TopKCodecTest, WhatStaysIsBounded) {
  std::vector<float> values(1024);
  const RandomStream random(3, "top-k");
  for (size_t i = 0; i < values.size(); ++i) values[i] = 2 * random.UniformFloat(i) - 1;
  const auto squares = [](const std::vector<float>& of) {
    return std::inner_product(of.begin(), of.end(), of.begin(), 0.0);
  };
  for (const double fraction : {0.01, 0.1, 0.5}) {
    EXPECT_LE(squares(Encode(values, fraction).lacks), (1 - fraction) * squares(values));
  }
}

TEST(TopKCodecTest, WhatIsNotFiniteIsAlwaysSent) {
  const float infinity = std::numeric_limits<float>::infinity();
  for (const float bad : {std::nanf(""), -std::nanf(""), infinity, -infinity, 3.4e38f}) {
    std::vector<float> values(1024, 1e38f);
    values[777] = bad;
    const std::vector<float> sent = Decoded(Encode(values, 0.001), 0.001);
    EXPECT_FALSE(std::isfinite(sent[777])) << bad;
    EXPECT_EQ(std::count(sent.begin(), sent.end(), 0.0f), 1023);
  }
}

TEST(TopKCodecTest, AddsPartsToASum) {
  const Coded coded = Encode({5, 0, -6, 0.5, 7, 0, 0, -8}, 0.5);
  EXPECT_THAT(Decoded(coded, 0.5), ElementsAre(5, 0, -6, 0, 7, 0, 0, -8));
  EXPECT_THAT(coded.lacks, ElementsAre(0, 0, 0, 0.5, 0, 0, 0, 0));
  std::vector<float> sum(8, 1);
  for (const auto& [first, last] : {std::pair<size_t, size_t>{0, 3}, {3, 4}, {4, 8}}) {
    ASSERT_TRUE(AddTopK(coded.bytes, 8, 0.5, static_cast<int64_t>(first), /*starts=*/false,
                        absl::MakeSpan(sum).subspan(first, last - first))
                    .ok());
  }
  EXPECT_THAT(sum, ElementsAre(6, 1, -5, 1, 8, 1, 1, -7));
}

TEST(TopKCodecTest, RefusesWhatIsNoBlock) {
  const Coded coded = Encode({5, 0, -6, 0.5, 7, 0, 0, -8}, 0.25);  // elements 4 and 7
  std::vector<float> sum(8);
  const auto error = [&](uint16_t first, uint16_t second) {
    std::vector<std::byte> bytes = coded.bytes;
    std::memcpy(bytes.data(), &first, 2);
    std::memcpy(bytes.data() + 2, &second, 2);
    const absl::Status status = AddTopK(bytes, 8, 0.25, 0, true, absl::MakeSpan(sum));
    EXPECT_TRUE(status.ok() || absl::IsDataLoss(status)) << status;
    return std::string(status.message());
  };
  EXPECT_EQ(error(4, 7), "");
  EXPECT_EQ(error(4, 4), "element 4 follows 4 in a block of 8");  // would count twice
  EXPECT_EQ(error(7, 4), "element 4 follows 7 in a block of 8");
  EXPECT_EQ(error(4, 8), "element 8 follows 4 in a block of 8");
  EXPECT_EQ(error(65535, 7), "element 65535 follows -1 in a block of 8");
  const absl::Status status =
      AddTopK(absl::MakeConstSpan(coded.bytes).first(7), 8, 0.25, 0, true, absl::MakeSpan(sum));
  EXPECT_TRUE(absl::IsDataLoss(status));
  EXPECT_EQ(status.message(), "expected 8 bytes of 8 elements, got 7");
}

}  // namespace
}  // namespace muster
