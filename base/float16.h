// Scalar conversions between f32 and the two 16-bit float formats, on bit patterns.
//
//   f16   IEEE 754 binary16: 1 sign, 5 exponent, 10 fraction bits.
//   bf16  the upper half of an f32: 1 sign, 8 exponent, 7 fraction bits.
//
// Widening is exact. Narrowing rounds to nearest, ties to even; overflow gives infinity; subnormals
// are kept. A NaN stays a NaN of the same sign with the leading bits of its payload; narrowing
// makes it quiet, and so does widening from f16 (as the F16C instructions do). Pure; independent of
// the flush-to-zero mode.
#ifndef MUSTER_BASE_FLOAT16_H_
#define MUSTER_BASE_FLOAT16_H_

#include <bit>
#include <cstdint>

namespace muster {

inline float F16ToF32(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000u) << 16;
  const uint32_t exponent = (half >> 10) & 0x1fu;
  uint32_t fraction = half & 0x3ffu;
  if (exponent == 0x1fu) {  // infinity, NaN
    const uint32_t quiet = fraction == 0 ? 0 : 0x400000u;
    return std::bit_cast<float>(sign | 0x7f800000u | (fraction << 13) | quiet);
  }
  if (exponent != 0)
    return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (fraction << 13));
  if (fraction == 0) return std::bit_cast<float>(sign);
  // Subnormal: fraction * 2^-24, normal in f32. Shift the leading one up to the implicit bit.
  const int shift = std::countl_zero(fraction) - 21;
  fraction = (fraction << shift) & 0x3ffu;
  return std::bit_cast<float>(sign | (static_cast<uint32_t>(113 - shift) << 23) | (fraction << 13));
}

inline uint16_t F32ToF16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (bits >> 16) & 0x8000u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) {  // NaN
    return static_cast<uint16_t>(sign | 0x7e00u | ((magnitude >> 13) & 0x3ffu));
  }
  if (magnitude >= 0x47800000u) return static_cast<uint16_t>(sign | 0x7c00u);  // 2^16 and above
  if (magnitude >= 0x38800000u) {  // normal in f16: 2^-14 and above
    // Rounding may carry into the exponent, up to infinity.
    const uint32_t odd = (magnitude >> 13) & 1u;
    return static_cast<uint16_t>(sign | ((magnitude - (112u << 23) + 0xfffu + odd) >> 13));
  }
  if (magnitude < 0x33000000u) return static_cast<uint16_t>(sign);  // below 2^-25: zero
  // Subnormal: a multiple of 2^-24. The full significand is (1.f) * 2^23; drop what is below.
  const uint32_t significand = (magnitude & 0x7fffffu) | 0x800000u;
  const uint32_t drop = 126u - (magnitude >> 23);  // 14..24
  const uint32_t kept = significand >> drop;
  const uint32_t rest = significand & ((1u << drop) - 1);
  const uint32_t half_way = 1u << (drop - 1);
  const uint32_t up = rest > half_way || (rest == half_way && (kept & 1u)) ? 1 : 0;
  return static_cast<uint16_t>(sign | (kept + up));
}

inline float BF16ToF32(uint16_t bfloat) {
  return std::bit_cast<float>(static_cast<uint32_t>(bfloat) << 16);
}

inline uint16_t F32ToBF16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((bits >> 16) | 0x40u);
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

}  // namespace muster

#endif  // MUSTER_BASE_FLOAT16_H_
