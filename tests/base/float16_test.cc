#include "base/float16.h"

#include <cmath>
#include <limits>

#include "base/random.h"
#include "gtest/gtest.h"

namespace muster {
namespace {

// The formats by their definition: (-1)^sign * 2^exponent * significand.
double ValueOf(uint16_t bits, int exponent_bits, int fraction_bits) {
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const int exponent = (bits >> fraction_bits) & ((1 << exponent_bits) - 1);
  const int fraction = bits & ((1 << fraction_bits) - 1);
  double value;
  if (exponent == (1 << exponent_bits) - 1) {
    value = fraction != 0 ? std::numeric_limits<double>::quiet_NaN()
                          : std::numeric_limits<double>::infinity();
  } else if (exponent == 0) {
    value = std::ldexp(fraction, 1 - bias - fraction_bits);
  } else {
    value = std::ldexp((1 << fraction_bits) + fraction, exponent - bias - fraction_bits);
  }
  return std::copysign(value, (bits & 0x8000) ? -1.0 : 1.0);
}

struct Format {
  int exponent_bits;
  int fraction_bits;
  float (*widen)(uint16_t);
  uint16_t (*narrow)(float);
  uint16_t infinity;
};
constexpr Format kFormats[] = {{5, 10, F16ToF32, F32ToF16, 0x7c00},
                               {8, 7, BF16ToF32, F32ToBF16, 0x7f80}};

TEST(Float16Test, WideningIsExactForAllValues) {
  for (const Format& format : kFormats) {
    for (uint32_t i = 0; i < 65536; ++i) {
      const auto bits = static_cast<uint16_t>(i);
      const double expected = ValueOf(bits, format.exponent_bits, format.fraction_bits);
      const float actual = format.widen(bits);
      EXPECT_EQ(std::signbit(expected), std::signbit(actual)) << i;
      if (std::isnan(expected)) {
        EXPECT_TRUE(std::isnan(actual)) << i;
      } else {
        EXPECT_EQ(expected, static_cast<double>(actual)) << i;
      }
    }
  }
}

TEST(Float16Test, NarrowingTakesEveryValueBack) {
  for (const Format& format : kFormats) {
    for (uint32_t i = 0; i < 65536; ++i) {
      const auto bits = static_cast<uint16_t>(i);
      const bool is_nan = (bits & 0x7fff) > format.infinity;
      const auto quiet = static_cast<uint16_t>(1u << (format.fraction_bits - 1));
      EXPECT_EQ(format.narrow(format.widen(bits)), is_nan ? (bits | quiet) : bits) << i;
    }
  }
}

// Between two neighbours: everything below the middle goes down, above goes up, the middle goes to
// the even one. The neighbour of the largest finite value is infinity, which rounds as if it were
// the next power.
TEST(Float16Test, NarrowingRoundsToNearestEven) {
  for (const Format& format : kFormats) {
    for (uint16_t low = 0; low < format.infinity; ++low) {
      const uint16_t high = low + 1;
      const double from = ValueOf(low, format.exponent_bits, format.fraction_bits);
      const double to = high == format.infinity
                            ? std::ldexp(1, 1 << (format.exponent_bits - 1))
                            : ValueOf(high, format.exponent_bits, format.fraction_bits);
      const double exact_middle = (from + to) / 2;
      const auto middle = static_cast<float>(exact_middle);
      ASSERT_EQ(static_cast<double>(middle), exact_middle) << low;
      const float below = std::nextafter(middle, 0.0f);
      const float above = std::nextafter(middle, std::numeric_limits<float>::infinity());
      for (const bool negative : {false, true}) {
        const float sign = negative ? -1.0f : 1.0f;
        const uint16_t bit = negative ? 0x8000 : 0;
        ASSERT_EQ(format.narrow(sign * below), bit | low) << low;
        ASSERT_EQ(format.narrow(sign * middle), bit | (low % 2 == 0 ? low : high)) << low;
        ASSERT_EQ(format.narrow(sign * above), bit | high) << low;
      }
    }
  }
}

TEST(Float16Test, NansStayNans) {
  for (const Format& format : kFormats) {
    for (const uint32_t bits : {0x7f800001u, 0x7fbfffffu, 0x7fc00000u, 0x7fffffffu, 0xff800001u}) {
      const uint16_t narrow = format.narrow(std::bit_cast<float>(bits));
      EXPECT_GT(narrow & 0x7fff, format.infinity);
      EXPECT_EQ(narrow >> 15, bits >> 31);
    }
    EXPECT_EQ(format.narrow(std::numeric_limits<float>::infinity()), format.infinity);
  }
}

#ifdef __FLT16_MANT_DIG__
TEST(Float16Test, AgreesWithTheCompiler) {
  for (uint32_t i = 0; i < 65536; ++i) {
    const auto bits = static_cast<uint16_t>(i);
    const auto widened = static_cast<float>(std::bit_cast<_Float16>(bits));
    EXPECT_EQ(std::bit_cast<uint32_t>(widened), std::bit_cast<uint32_t>(F16ToF32(bits))) << i;
  }
  const RandomStream random(5, "float16");
  for (int i = 0; i < 2'000'000; ++i) {
    // Every exponent, and those near the range of f16 more often.
    auto bits = static_cast<uint32_t>(random.Bits(i));
    if (i % 2 == 0) bits = (bits & 0x87ffffffu) | 0x38000000u;
    const float value = std::bit_cast<float>(bits);
    if (std::isnan(value)) continue;
    ASSERT_EQ(std::bit_cast<uint16_t>(static_cast<_Float16>(value)), F32ToF16(value)) << bits;
  }
}
#endif

}  // namespace
}  // namespace muster
