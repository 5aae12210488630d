#include "worker/compression/int8_codec.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "base/random.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::vector<std::byte> Encoded(const std::vector<float>& values) {
  std::vector<std::byte> bytes(
      static_cast<size_t>(Int8BytesOf(static_cast<int64_t>(values.size()))));
  EncodeInt8(values, absl::MakeSpan(bytes));
  return bytes;
}

std::vector<float> Decoded(const std::vector<std::byte>& bytes, int64_t elements) {
  std::vector<float> values(static_cast<size_t>(elements), -1);
  const absl::Status status = AddInt8(bytes, elements, 0, /*starts=*/true, absl::MakeSpan(values));
  EXPECT_TRUE(status.ok()) << status;
  return values;
}

std::vector<float> RoundTrip(const std::vector<float>& values) {
  return Decoded(Encoded(values), static_cast<int64_t>(values.size()));
}

// By the definition, one element after the other.
std::vector<float> Oracle(const std::vector<float>& values) {
  float largest = 0;
  for (const float value : values) largest = std::max(largest, std::fabs(value));
  const float scale = largest / 127;
  std::vector<float> result;
  for (const float value : values) {
    const float code = scale == 0 ? 0 : std::nearbyint(value / scale);
    result.push_back(std::clamp(code, -127.0f, 127.0f) * scale);
  }
  return result;
}

TEST(Int8CodecTest, RoundsToMultiplesOfTheScale) {
  for (const size_t count : {1, 2, 63, 255, 256}) {
    // From ordinary magnitudes down to subnormal ones, where the scale itself is rounded.
    for (const float size : {1.0f, 3e30f, 1e-3f, 1e-38f, 3e-43f, 1e-45f}) {
      const RandomStream random(1, "int8", count);
      std::vector<float> values(count);
      for (size_t i = 0; i < count; ++i) values[i] = size * (2 * random.UniformFloat(i) - 1);
      const std::vector<float> result = RoundTrip(values);
      EXPECT_EQ(result, Oracle(values)) << count << " elements of size " << size;
      if (size < 1e-37f) continue;
      const float largest =
          std::fabs(*std::max_element(values.begin(), values.end(), [](float a, float b) {
            return std::fabs(a) < std::fabs(b);
          }));
      for (size_t i = 0; i < count; ++i) {
        EXPECT_LE(std::fabs(result[i] - values[i]), largest / 254 * 1.0001f);
      }
    }
  }
}

TEST(Int8CodecTest, LargestElementsAndZerosAreNearlyExact) {
  EXPECT_THAT(RoundTrip({0, 0, 0}), testing::ElementsAre(0, 0, 0));
  const std::vector<float> result = RoundTrip({-12.7f, 0, 12.7f, 1e-9f});
  EXPECT_FLOAT_EQ(result[0], -12.7f);
  EXPECT_EQ(result[1], 0);
  EXPECT_FLOAT_EQ(result[2], 12.7f);
  EXPECT_EQ(result[3], 0);
  EXPECT_FLOAT_EQ(RoundTrip({3e38f})[0], 3e38f);
}

TEST(Int8CodecTest, ABlockThatIsNotFiniteIsNaNThroughout) {
  for (const float bad : {std::nanf(""), -std::nanf(""), kInfinity, -kInfinity}) {
    for (const size_t count : {5, 256}) {
      std::vector<float> values(count, 2);
      values[count / 2] = bad;
      for (const float value : RoundTrip(values)) EXPECT_TRUE(std::isnan(value)) << bad;
    }
  }
}

TEST(Int8CodecTest, AddsPartsToASum) {
  std::vector<float> values(256);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i) - 100;
  const std::vector<std::byte> bytes = Encoded(values);
  const std::vector<float> decoded = Decoded(bytes, 256);
  std::vector<float> sum(256, 0.125f);
  for (const auto& [first, last] : {std::pair<size_t, size_t>{0, 3}, {3, 200}, {200, 256}}) {
    ASSERT_TRUE(AddInt8(bytes, 256, static_cast<int64_t>(first), /*starts=*/false,
                        absl::MakeSpan(sum).subspan(first, last - first))
                    .ok());
  }
  for (size_t i = 0; i < sum.size(); ++i) EXPECT_EQ(sum[i], 0.125f + decoded[i]);
}

TEST(Int8CodecTest, RefusesWhatIsNoBlock) {
  std::vector<std::byte> bytes = Encoded({1, 2, 3});
  std::vector<float> sum(3);
  absl::Status status = AddInt8(bytes, 4, 0, true, absl::MakeSpan(sum));
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(status.message(), "expected 8 bytes of 4 elements, got 7");
  for (const float bad : {-1.0f, kInfinity}) {
    std::memcpy(bytes.data(), &bad, sizeof(bad));
    status = AddInt8(bytes, 3, 0, true, absl::MakeSpan(sum));
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << bad;
  }
}

}  // namespace
}  // namespace muster
