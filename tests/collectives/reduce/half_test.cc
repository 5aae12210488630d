#include "collectives/reduce/half.h"

#include <bit>
#include <vector>

#include "base/float16.h"
#include "base/random.h"
#include "gtest/gtest.h"
#include "hwy/targets.h"

namespace muster {
namespace {

// Any bits, and around every 16-bit value the floats where rounding turns.
std::vector<float> Floats(DType dtype) {
  const RandomStream stream(1, "half");
  std::vector<float> values;
  for (uint32_t pattern = 0; pattern < 0x10000; ++pattern) {
    const auto half = static_cast<uint16_t>(pattern);
    const auto bits =
        std::bit_cast<uint32_t>(dtype == DType::kF16 ? F16ToF32(half) : BF16ToF32(half));
    const uint32_t tie = dtype == DType::kF16 ? 0x1000 : 0x8000;
    for (const uint32_t offset : {0u, tie - 1, tie, tie + 1}) {
      values.push_back(std::bit_cast<float>(bits + offset));
    }
    values.push_back(std::bit_cast<float>(static_cast<uint32_t>(stream.Bits(pattern))));
  }
  return values;
}

TEST(HalfTest, ConversionsAreTheScalarOnesOnEverySimdTarget) {
  for (const DType dtype : {DType::kF16, DType::kBF16}) {
    const std::vector<float> floats = Floats(dtype);
    for (int64_t rest = hwy::SupportedTargets(); rest != 0; rest &= rest - 1) {
      hwy::SetSupportedTargetsForTest(rest & -rest);
      std::vector<uint16_t> narrow(floats.size());
      NarrowToHalf(dtype, floats.data(), narrow.data(), static_cast<int64_t>(floats.size()));
      std::vector<float> wide(narrow.size());
      WidenHalf(dtype, narrow.data(), wide.data(), static_cast<int64_t>(narrow.size()));
      for (size_t i = 0; i < floats.size(); ++i) {
        const bool f16 = dtype == DType::kF16;
        ASSERT_EQ(narrow[i], f16 ? F32ToF16(floats[i]) : F32ToBF16(floats[i])) << floats[i];
        const float expected = f16 ? F16ToF32(narrow[i]) : BF16ToF32(narrow[i]);
        ASSERT_EQ(std::bit_cast<uint32_t>(wide[i]), std::bit_cast<uint32_t>(expected)) << narrow[i];
      }
    }
    hwy::SetSupportedTargetsForTest(0);
  }
}

TEST(HalfTest, EveryLengthWritesExactlyItsElements) {
  for (int64_t count = 0; count < 70; ++count) {
    const std::vector<float> from(count, 1.5f);
    std::vector<uint16_t> narrow(count + 1, 7);
    NarrowToHalf(DType::kBF16, from.data(), narrow.data(), count);
    std::vector<float> wide(count + 1, 7);
    WidenHalf(DType::kBF16, narrow.data(), wide.data(), count);
    for (int64_t i = 0; i < count; ++i) EXPECT_EQ(wide[i], 1.5f);
    EXPECT_EQ(narrow[count], 7);
    EXPECT_EQ(wide[count], 7);
  }
}

TEST(HalfDeathTest, OtherTypesAreABug) {
  float value = 1;
  uint16_t half = 0;
  EXPECT_DEATH(NarrowToHalf(DType::kF32, &value, &half, 1), "f32");
}

}  // namespace
}  // namespace muster
