// How an element type is loaded into a vector to compute with, and stored back. Included once per
// SIMD target (Highway's foreach_target); private to reduce_kernels.cc and half.cc.
//
// 16-bit floats are computed in f32. Their conversions follow base/float16.h bit by bit: with the
// F16C instructions where the target has them, otherwise with integer operations (Highway's own
// fallbacks truncate bf16 and do not know f16 infinities).
#if defined(MUSTER_COLLECTIVES_REDUCE_CODECS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MUSTER_COLLECTIVES_REDUCE_CODECS_INL_H_
#undef MUSTER_COLLECTIVES_REDUCE_CODECS_INL_H_
#else
#define MUSTER_COLLECTIVES_REDUCE_CODECS_INL_H_
#endif

#include <cstdint>

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace muster::reduce_internal::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// Stored and computed as T.
template <typename T>
struct Native {
  using Storage = T;
  static constexpr bool kStreams = true;
  using D = hn::ScalableTag<T>;
  using V = hn::Vec<D>;
  static HWY_INLINE V Load(const uint8_t* from) {
    return hn::LoadU(D(), reinterpret_cast<const T*>(from));
  }
  static HWY_INLINE void Store(V value, uint8_t* to) {
    hn::StoreU(value, D(), reinterpret_cast<T*>(to));
  }
  // Past the caches. Requires: `to` aligned to a vector.
  static HWY_INLINE void Stream(V value, uint8_t* to) {
    hn::Stream(value, D(), reinterpret_cast<T*>(to));
  }
};

// What the two 16-bit formats share: u16 in memory, f32 lanes.
struct HalfBase {
  using Storage = uint16_t;
  using D = hn::ScalableTag<float>;
  using V = hn::Vec<D>;
  using D16 = hn::Rebind<uint16_t, D>;
  using DU = hn::RebindToUnsigned<D>;
  using DI = hn::RebindToSigned<D>;
  using VU = hn::Vec<DU>;
  static constexpr bool kStreams = false;

  static HWY_INLINE VU LoadBits(const uint8_t* from) {
    return hn::PromoteTo(DU(), hn::LoadU(D16(), reinterpret_cast<const uint16_t*>(from)));
  }
  // The lanes of `bits` are below 2^16, so that the saturating narrowing keeps them.
  static HWY_INLINE void StoreBits(VU bits, uint8_t* to) {
    hn::StoreU(hn::DemoteTo(D16(), hn::BitCast(DI(), bits)), D16(),
               reinterpret_cast<uint16_t*>(to));
  }
  // Compares lanes below 2^31.
  static HWY_INLINE hn::Mask<DU> Above(VU bits, uint32_t limit) {
    return hn::RebindMask(
        DU(), hn::Gt(hn::BitCast(DI(), bits), hn::Set(DI(), static_cast<int32_t>(limit))));
  }
};

struct Bfloat16 : HalfBase {
  static HWY_INLINE V Load(const uint8_t* from) {
    return hn::BitCast(D(), hn::ShiftLeft<16>(LoadBits(from)));
  }
  static HWY_INLINE void Store(V value, uint8_t* to) {
    const DU du;
    const VU bits = hn::BitCast(du, value);
    const VU upper = hn::ShiftRight<16>(bits);
    const VU odd = hn::And(upper, hn::Set(du, 1u));
    const VU rounded = hn::ShiftRight<16>(hn::Add(bits, hn::Add(odd, hn::Set(du, 0x7fffu))));
    const VU quiet_nan = hn::Or(upper, hn::Set(du, 0x40u));
    const VU magnitude = hn::And(bits, hn::Set(du, 0x7fffffffu));
    StoreBits(hn::IfThenElse(Above(magnitude, 0x7f800000u), quiet_nan, rounded), to);
  }
};

#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2 && !defined(HWY_DISABLE_F16C)

struct Float16 : HalfBase {
  using D16F = hn::Rebind<hwy::float16_t, D>;
  static HWY_INLINE V Load(const uint8_t* from) {
    const auto bits = hn::LoadU(D16(), reinterpret_cast<const uint16_t*>(from));
    return hn::PromoteTo(D(), hn::BitCast(D16F(), bits));
  }
  static HWY_INLINE void Store(V value, uint8_t* to) {
    const auto narrow = hn::DemoteTo(D16F(), value);
    hn::StoreU(hn::BitCast(D16(), narrow), D16(), reinterpret_cast<uint16_t*>(to));
  }
};

#else

// The bit tricks are Fabian Giesen's (float->half variants): subnormals are made and undone by one
// exact f32 addition of normal numbers, so flush-to-zero modes do not matter.
struct Float16 : HalfBase {
  static HWY_INLINE V Load(const uint8_t* from) {
    const DU du;
    const VU half = LoadBits(from);
    const VU sign = hn::ShiftLeft<16>(hn::And(half, hn::Set(du, 0x8000u)));
    const VU magnitude = hn::ShiftLeft<13>(hn::And(half, hn::Set(du, 0x7fffu)));
    const VU exponent_shift = hn::Set(du, 112u << 23);  // difference of the two biases
    const VU normal = hn::Add(magnitude, exponent_shift);
    const VU special = hn::Add(normal, exponent_shift);  // exponent 255
    const VU quiet_nan = hn::Or(special, hn::Set(du, 0x400000u));
    const V smallest_normal = hn::BitCast(D(), hn::Set(du, 113u << 23));  // 2^-14
    const VU subnormal = hn::BitCast(
        du, hn::Sub(hn::BitCast(D(), hn::Add(normal, hn::Set(du, 1u << 23))), smallest_normal));
    VU result = hn::IfThenElse(Above(magnitude, 0x007fffffu), normal, subnormal);
    result = hn::IfThenElse(Above(magnitude, 0x0f7fffffu), special, result);
    result = hn::IfThenElse(Above(magnitude, 0x0f800000u), quiet_nan, result);
    return hn::BitCast(D(), hn::Or(result, sign));
  }

  static HWY_INLINE void Store(V value, uint8_t* to) {
    const DU du;
    const VU bits = hn::BitCast(du, value);
    const VU sign = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 0x8000u));
    const VU magnitude = hn::And(bits, hn::Set(du, 0x7fffffffu));
    const VU shifted = hn::ShiftRight<13>(magnitude);
    const VU odd = hn::And(shifted, hn::Set(du, 1u));
    // 0xfff rounds to nearest; the exponent is re-biased modulo 2^32.
    const VU normal =
        hn::ShiftRight<13>(hn::Add(hn::Add(magnitude, odd), hn::Set(du, 0xfffu - (112u << 23))));
    // Adding 0.5 leaves multiples of 2^-24 in the low bits.
    const VU half_bits = hn::Set(du, 126u << 23);
    const VU subnormal =
        hn::Sub(hn::BitCast(du, hn::Add(hn::BitCast(D(), magnitude), hn::BitCast(D(), half_bits))),
                half_bits);
    const VU infinity = hn::Set(du, 0x7c00u);
    const VU quiet_nan = hn::Or(hn::And(shifted, hn::Set(du, 0x3ffu)), hn::Set(du, 0x7e00u));
    VU result = hn::IfThenElse(Above(magnitude, (113u << 23) - 1), normal, subnormal);
    result = hn::IfThenElse(Above(magnitude, (143u << 23) - 1), infinity, result);
    result = hn::IfThenElse(Above(magnitude, 0x7f800000u), quiet_nan, result);
    StoreBits(hn::Or(result, sign), to);
  }
};

#endif

}  // namespace muster::reduce_internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
