// The element-wise operators on vectors. Included once per SIMD target (Highway's foreach_target);
// private to reduce_kernels.cc.
#if defined(MUSTER_COLLECTIVES_REDUCE_OPERATORS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MUSTER_COLLECTIVES_REDUCE_OPERATORS_INL_H_
#undef MUSTER_COLLECTIVES_REDUCE_OPERATORS_INL_H_
#else
#define MUSTER_COLLECTIVES_REDUCE_OPERATORS_INL_H_
#endif

#include <limits>

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace muster::reduce_internal::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// Floats, and unsigned integers (signed ones are added as unsigned: the same bits, and wrapping is
// defined).
struct Sum {
  template <class D, class V>
  static HWY_INLINE V Apply(D, V a, V b) {
    return hn::Add(a, b);
  }
};

struct Product {
  template <class D, class V>
  static HWY_INLINE V Apply(D, V a, V b) {
    return hn::Mul(a, b);
  }
};

// u8, modulo 256. There is no multiplication of bytes: the low byte of a 16-bit product is the
// product of the low bytes; the high bytes are shifted down first. (The scalar target has one byte
// to a vector.)
struct ByteProduct {
  template <class D, class V>
  static HWY_INLINE V Apply(D d, V a, V b) {
#if HWY_TARGET == HWY_SCALAR
    return hn::Set(d, static_cast<uint8_t>(hn::GetLane(a) * hn::GetLane(b)));
#else
    const hn::Repartition<uint16_t, D> d16;
    const auto a16 = hn::BitCast(d16, a);
    const auto b16 = hn::BitCast(d16, b);
    const auto even = hn::And(hn::Mul(a16, b16), hn::Set(d16, uint16_t{0x00ff}));
    const auto odd = hn::ShiftLeft<8>(hn::Mul(hn::ShiftRight<8>(a16), hn::ShiftRight<8>(b16)));
    return hn::BitCast(d, hn::Or(even, odd));
#endif
  }
};

struct IntegerMin {
  template <class D, class V>
  static HWY_INLINE V Apply(D, V a, V b) {
    return hn::Min(a, b);
  }
};

struct IntegerMax {
  template <class D, class V>
  static HWY_INLINE V Apply(D, V a, V b) {
    return hn::Max(a, b);
  }
};

// The canonical NaN where either side is one, else `value`. Hardware minima disagree on this, so
// nothing is left to them.
template <class D, class V>
HWY_INLINE V NanIfEither(D d, V a, V b, V value) {
  using T = hn::TFromD<D>;
  const V nan = hn::Set(d, std::numeric_limits<T>::quiet_NaN());
  return hn::IfThenElse(hn::And(hn::Eq(a, a), hn::Eq(b, b)), value, nan);
}

// Equal numbers have equal bits but for zeros: there OR yields -0 if either is, AND yields +0 if
// either is.
struct FloatMin {
  template <class D, class V>
  static HWY_INLINE V Apply(D d, V a, V b) {
    const V unequal = hn::IfThenElse(hn::Lt(a, b), a, b);
    return NanIfEither(d, a, b, hn::IfThenElse(hn::Eq(a, b), hn::Or(a, b), unequal));
  }
};

struct FloatMax {
  template <class D, class V>
  static HWY_INLINE V Apply(D d, V a, V b) {
    const V unequal = hn::IfThenElse(hn::Lt(a, b), b, a);
    return NanIfEither(d, a, b, hn::IfThenElse(hn::Eq(a, b), hn::And(a, b), unequal));
  }
};

}  // namespace muster::reduce_internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
