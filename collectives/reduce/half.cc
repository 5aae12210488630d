#include "collectives/reduce/half.h"

#include "base/check.h"
#include "base/float16.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "collectives/reduce/half.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep

#include "collectives/reduce/codecs-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace muster::reduce_internal::HWY_NAMESPACE {

// Whole pairs of vectors; returns how many elements these are.
template <class Codec>
HWY_INLINE int64_t WidenVectors(const uint16_t* from, float* to, int64_t count) {
  const typename Codec::D d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + 2 * lanes <= count; i += 2 * lanes) {
    typename Codec::V first;
    typename Codec::V second;
    Codec::Load(reinterpret_cast<const uint8_t*>(from + i), first, second);
    if constexpr (Codec::kEvenOdd) {
      hn::StoreInterleaved2(first, second, d, to + i);
    } else {
      hn::StoreU(first, d, to + i);
      hn::StoreU(second, d, to + i + lanes);
    }
  }
  return i;
}

template <class Codec>
HWY_INLINE int64_t NarrowVectors(const float* from, uint16_t* to, int64_t count) {
  const typename Codec::D d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + 2 * lanes <= count; i += 2 * lanes) {
    typename Codec::V first;
    typename Codec::V second;
    if constexpr (Codec::kEvenOdd) {
      hn::LoadInterleaved2(d, from + i, first, second);
    } else {
      first = hn::LoadU(d, from + i);
      second = hn::LoadU(d, from + i + lanes);
    }
    Codec::template Store<false>(first, second, reinterpret_cast<uint8_t*>(to + i));
  }
  return i;
}

int64_t WidenF16(const uint16_t* from, float* to, int64_t count) {
  return WidenVectors<Float16>(from, to, count);
}
int64_t WidenBF16(const uint16_t* from, float* to, int64_t count) {
  return WidenVectors<Bfloat16>(from, to, count);
}
int64_t NarrowF16(const float* from, uint16_t* to, int64_t count) {
  return NarrowVectors<Float16>(from, to, count);
}
int64_t NarrowBF16(const float* from, uint16_t* to, int64_t count) {
  return NarrowVectors<Bfloat16>(from, to, count);
}

}  // namespace muster::reduce_internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace muster {
namespace reduce_internal {

HWY_EXPORT(WidenF16);
HWY_EXPORT(WidenBF16);
HWY_EXPORT(NarrowF16);
HWY_EXPORT(NarrowBF16);

int64_t WidenWhole(DType dtype, const uint16_t* from, float* to, int64_t count) {
  return dtype == DType::kF16 ? HWY_DYNAMIC_DISPATCH(WidenF16)(from, to, count)
                              : HWY_DYNAMIC_DISPATCH(WidenBF16)(from, to, count);
}

int64_t NarrowWhole(DType dtype, const float* from, uint16_t* to, int64_t count) {
  return dtype == DType::kF16 ? HWY_DYNAMIC_DISPATCH(NarrowF16)(from, to, count)
                              : HWY_DYNAMIC_DISPATCH(NarrowBF16)(from, to, count);
}

}  // namespace reduce_internal

void WidenHalf(DType dtype, const uint16_t* from, float* to, int64_t count) {
  MUSTER_CHECK(IsHalfPrecision(dtype)) << Name(dtype);
  for (int64_t i = reduce_internal::WidenWhole(dtype, from, to, count); i < count; ++i) {
    to[i] = dtype == DType::kF16 ? F16ToF32(from[i]) : BF16ToF32(from[i]);
  }
}

void NarrowToHalf(DType dtype, const float* from, uint16_t* to, int64_t count) {
  MUSTER_CHECK(IsHalfPrecision(dtype)) << Name(dtype);
  for (int64_t i = reduce_internal::NarrowWhole(dtype, from, to, count); i < count; ++i) {
    to[i] = dtype == DType::kF16 ? F32ToF16(from[i]) : F32ToBF16(from[i]);
  }
}

}  // namespace muster
#endif  // HWY_ONCE
