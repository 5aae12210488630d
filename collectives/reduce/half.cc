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

// Whole vectors; returns how many elements these are.
template <class Codec>
HWY_INLINE int64_t WidenVectors(const uint16_t* from, float* to, int64_t count) {
  const typename Codec::D d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    hn::StoreU(Codec::Load(reinterpret_cast<const uint8_t*>(from + i)), d, to + i);
  }
  return i;
}

template <class Codec>
HWY_INLINE int64_t NarrowVectors(const float* from, uint16_t* to, int64_t count) {
  const typename Codec::D d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    Codec::Store(hn::LoadU(d, from + i), reinterpret_cast<uint8_t*>(to + i));
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
