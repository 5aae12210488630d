// On every SIMD target that the machine has.
#include "collectives/reduce/finite.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "base/float16.h"
#include "gtest/gtest.h"
#include "hwy/targets.h"

namespace muster {
namespace {

constexpr DType kDTypes[] = {DType::kF32, DType::kF16, DType::kBF16};

bool IsFinite(DType dtype, const std::byte* at) {
  uint32_t bits = 0;
  std::memcpy(&bits, at, SizeOf(dtype));
  const auto half = static_cast<uint16_t>(bits);
  if (dtype == DType::kF16) return std::isfinite(F16ToF32(half));
  if (dtype == DType::kBF16) return std::isfinite(BF16ToF32(half));
  float value = 0;
  std::memcpy(&value, &bits, sizeof(value));
  return std::isfinite(value);
}

// Bits at random, all of them, so that exponents of all ones and of all zeros come as well.
TEST(FiniteTest, FindsTheFirstOfRandomBits) {
  std::mt19937 random(1);
  for (int64_t rest = hwy::SupportedTargets(); rest != 0; rest &= rest - 1) {
    hwy::SetSupportedTargetsForTest(rest & -rest);
    for (int round = 0; round < 300; ++round) {
      const DType dtype = kDTypes[round % 3];
      const size_t size = SizeOf(dtype);
      const size_t skew = random() % 8;
      const auto count = static_cast<int64_t>(random() % 5000);
      std::vector<std::byte> bytes(skew + static_cast<size_t>(count) * size);
      for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
      std::byte* const data = bytes.data() + skew;
      // Most are made finite, so that long runs are.
      const auto rare = static_cast<int64_t>(random() % 4000) + 1;
      std::optional<int64_t> expected;
      for (int64_t i = 0; i < count; ++i) {
        std::byte* const at = data + static_cast<size_t>(i) * size;
        if (IsFinite(dtype, at)) continue;
        if (static_cast<int64_t>(random()) % rare != 0) {
          at[size - 1] &= std::byte{0xbf};  // the first bit of the exponent
          ASSERT_TRUE(IsFinite(dtype, at));
        } else if (!expected.has_value()) {
          expected = i;
        }
      }
      EXPECT_EQ(FirstNonfinite(dtype, data, count), expected) << Name(dtype) << " of " << count;
    }
  }
  hwy::SetSupportedTargetsForTest(0);
}

TEST(FiniteTest, FindsASingleOneAnywhere) {
  for (int64_t rest = hwy::SupportedTargets(); rest != 0; rest &= rest - 1) {
    hwy::SetSupportedTargetsForTest(rest & -rest);
    std::vector<float> values(2100, std::numeric_limits<float>::max());
    for (size_t at = 0; at < values.size(); ++at) {
      values[at] = at % 2 == 0 ? -std::numeric_limits<float>::infinity() : std::nanf("");
      ASSERT_EQ(FirstNonfinite(DType::kF32, values.data(), 2100), static_cast<int64_t>(at));
      values[at] = -std::numeric_limits<float>::denorm_min();
    }
    EXPECT_EQ(FirstNonfinite(DType::kF32, values.data(), 2100), std::nullopt);
  }
  hwy::SetSupportedTargetsForTest(0);
}

}  // namespace
}  // namespace muster
