// How elements are loaded into vectors to compute with, and stored back, two vectors at a time.
// Included once per SIMD target (Highway's foreach_target); private to reduce_kernels.cc and
// half.cc.
//
// 16-bit floats are computed in f32. Which element lands in which lane of the pair is the codec's
// own affair (kEvenOdd says it), the same for load and store: reductions do to each alone all that
// is done to them. So bf16,
// and f16 where there are no instructions for it, take two elements to a 32-bit lane, the even ones
// into the first vector and the odd ones into the second, and nothing ever crosses lanes.
//
// Conversions follow base/float16.h bit by bit: with the F16C instructions where the target has
// them, otherwise with integer operations (Highway's own fallbacks truncate bf16 and do not know
// f16 infinities; the AVX-512 instruction for bf16 flushes subnormals).
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
  static constexpr bool kEvenOdd = false;
  using Storage = T;
  using D = hn::ScalableTag<T>;
  using V = hn::Vec<D>;
  static HWY_INLINE void Load(const uint8_t* from, V& first, V& second) {
    const D d;
    const T* const elements = reinterpret_cast<const T*>(from);
    first = hn::LoadU(d, elements);
    second = hn::LoadU(d, elements + hn::Lanes(d));
  }
  // Past the caches with kStream. Requires then: `to` aligned to a vector.
  template <bool kStream>
  static HWY_INLINE void Store(V first, V second, uint8_t* to) {
    const D d;
    T* const elements = reinterpret_cast<T*>(to);
    if constexpr (kStream) {
      hn::Stream(first, d, elements);
      hn::Stream(second, d, elements + hn::Lanes(d));
    } else {
      hn::StoreU(first, d, elements);
      hn::StoreU(second, d, elements + hn::Lanes(d));
    }
  }
};

// What the formats of two elements to a 32-bit lane share. Little-endian: the even element is the
// lower half.
struct HalfBase {
  static constexpr bool kEvenOdd = true;
  using Storage = uint16_t;
  using D = hn::ScalableTag<float>;
  using V = hn::Vec<D>;
  using DU = hn::RebindToUnsigned<D>;
  using DI = hn::RebindToSigned<D>;
  using VU = hn::Vec<DU>;

  static HWY_INLINE VU LoadLanes(const uint8_t* from) {
    return hn::LoadU(DU(), reinterpret_cast<const uint32_t*>(from));
  }
  template <bool kStream>
  static HWY_INLINE void StoreLanes(VU lanes, uint8_t* to) {
    uint32_t* const words = reinterpret_cast<uint32_t*>(to);
    if constexpr (kStream) {
      hn::Stream(lanes, DU(), words);
    } else {
      hn::StoreU(lanes, DU(), words);
    }
  }
};

struct Bfloat16 : HalfBase {
  static HWY_INLINE void Load(const uint8_t* from, V& even, V& odd) {
    const VU lanes = LoadLanes(from);
    even = hn::BitCast(D(), hn::ShiftLeft<16>(lanes));
    odd = hn::BitCast(D(), hn::And(lanes, hn::Set(DU(), 0xffff0000u)));
  }
  template <bool kStream>
  static HWY_INLINE void Store(V even, V odd, uint8_t* to) {
    const VU upper = hn::And(Rounded(odd), hn::Set(DU(), 0xffff0000u));
    StoreLanes<kStream>(hn::Or(upper, hn::ShiftRight<16>(Rounded(even))), to);
  }

 private:
  // The result is the upper half of each lane.
  static HWY_INLINE VU Rounded(V value) {
    const DU du;
    const VU bits = hn::BitCast(du, value);
    const VU odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1u));
    const VU rounded = hn::Add(hn::Add(bits, hn::Set(du, 0x7fffu)), odd);
    const VU quiet_nan = hn::Or(bits, hn::Set(du, 0x400000u));
    return hn::IfThenElse(hn::RebindMask(du, hn::Eq(value, value)), rounded, quiet_nan);
  }
};

// For results of f32 operations on values that were bf16. Their NaNs are an operand's, made quiet,
// or the machine's own: the lower half is zero either way, so that rounding up does not reach the
// upper half and needs no case of its own.
struct Bfloat16Result : Bfloat16 {
  template <bool kStream>
  static HWY_INLINE void Store(V even, V odd, uint8_t* to) {
    const VU upper = hn::And(Rounded(odd), hn::Set(DU(), 0xffff0000u));
    StoreLanes<kStream>(hn::Or(upper, hn::ShiftRight<16>(Rounded(even))), to);
  }

 private:
  static HWY_INLINE VU Rounded(V value) {
    const DU du;
    const VU bits = hn::BitCast(du, value);
    const VU odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1u));
    return hn::Add(hn::Add(bits, hn::Set(du, 0x7fffu)), odd);
  }
};

#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2 && !defined(HWY_DISABLE_F16C)

struct Float16 {
  static constexpr bool kEvenOdd = false;
  using Storage = uint16_t;
  using D = hn::ScalableTag<float>;
  using V = hn::Vec<D>;
  using D16 = hn::ScalableTag<uint16_t>;
  using DHalf = hn::Half<D16>;
  using DHalfF = hn::Rebind<hwy::float16_t, D>;

  static HWY_INLINE void Load(const uint8_t* from, V& first, V& second) {
    const DHalf d;
    const uint16_t* const elements = reinterpret_cast<const uint16_t*>(from);
    first = Widened(hn::LoadU(d, elements));
    second = Widened(hn::LoadU(d, elements + hn::Lanes(d)));
  }
  template <bool kStream>
  static HWY_INLINE void Store(V first, V second, uint8_t* to) {
    uint16_t* const elements = reinterpret_cast<uint16_t*>(to);
    if constexpr (kStream) {
      hn::Stream(hn::Combine(D16(), Narrowed(second), Narrowed(first)), D16(), elements);
    } else {
      const DHalf d;
      hn::StoreU(Narrowed(first), d, elements);
      hn::StoreU(Narrowed(second), d, elements + hn::Lanes(d));
    }
  }

 private:
  static HWY_INLINE V Widened(hn::Vec<DHalf> bits) {
    return hn::PromoteTo(D(), hn::BitCast(DHalfF(), bits));
  }
  static HWY_INLINE hn::Vec<DHalf> Narrowed(V value) {
    return hn::BitCast(DHalf(), hn::DemoteTo(DHalfF(), value));
  }
};

#else

// The bit tricks are Fabian Giesen's (float->half variants): subnormals are made and undone by one
// exact f32 addition of normal numbers, so flush-to-zero modes do not matter.
struct Float16 : HalfBase {
  static HWY_INLINE void Load(const uint8_t* from, V& even, V& odd) {
    const VU lanes = LoadLanes(from);
    even = Widened(hn::And(lanes, hn::Set(DU(), 0xffffu)));
    odd = Widened(hn::ShiftRight<16>(lanes));
  }
  template <bool kStream>
  static HWY_INLINE void Store(V even, V odd, uint8_t* to) {
    StoreLanes<kStream>(hn::Or(Narrowed(even), hn::ShiftLeft<16>(Narrowed(odd))), to);
  }

 private:
  // Compares lanes below 2^31.
  static HWY_INLINE hn::Mask<DU> Above(VU bits, uint32_t limit) {
    return hn::RebindMask(
        DU(), hn::Gt(hn::BitCast(DI(), bits), hn::Set(DI(), static_cast<int32_t>(limit))));
  }

  static HWY_INLINE V Widened(VU half) {
    const DU du;
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

  static HWY_INLINE VU Narrowed(V value) {
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
    return hn::Or(result, sign);
  }
};

#endif

}  // namespace muster::reduce_internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
