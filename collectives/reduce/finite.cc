#include "collectives/reduce/finite.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "collectives/reduce/finite.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace muster::reduce_internal::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Of values between two looks at what was found.
constexpr int64_t kStride = 1024;

// How many values at the front are finite, of whole strides. `magnitude` is all bits but the sign,
// `one` the least exponent: an exponent of all ones overflows into the sign when one is added to
// it.
template <typename Bits>
HWY_INLINE int64_t FiniteStrides(const Bits* data, int64_t count, Bits magnitude, Bits one) {
  const hn::ScalableTag<Bits> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto kept = hn::Set(d, magnitude);
  const auto added = hn::Set(d, one);
  const auto sign = hn::Set(d, static_cast<Bits>(~magnitude));
  int64_t i = 0;
  for (; i + kStride <= count; i += kStride) {
    auto first = hn::Zero(d);
    auto second = hn::Zero(d);
    for (int64_t j = i; j < i + kStride; j += 2 * lanes) {
      first = hn::Or(first, hn::Add(hn::And(hn::LoadU(d, data + j), kept), added));
      second = hn::Or(second, hn::Add(hn::And(hn::LoadU(d, data + j + lanes), kept), added));
    }
    const auto any = hn::And(hn::Or(first, second), sign);
    if (!hn::AllTrue(d, hn::Eq(any, hn::Zero(d)))) break;
  }
  return i;
}

int64_t FiniteStrides32(const void* data, int64_t count) {
  return FiniteStrides<uint32_t>(static_cast<const uint32_t*>(data), count, 0x7fffffff, 1u << 23);
}
int64_t FiniteStrides16(const void* data, int64_t count, uint16_t one) {
  return FiniteStrides<uint16_t>(static_cast<const uint16_t*>(data), count, 0x7fff, one);
}

}  // namespace muster::reduce_internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace muster {
namespace reduce_internal {

HWY_EXPORT(FiniteStrides32);
HWY_EXPORT(FiniteStrides16);

namespace {

template <typename Bits>
std::optional<int64_t> Search(const void* data, int64_t from, int64_t count, Bits magnitude,
                              Bits one) {
  const auto* const bytes = static_cast<const std::byte*>(data);
  for (int64_t i = from; i < count; ++i) {
    Bits bits = 0;
    std::memcpy(&bits, bytes + i * static_cast<int64_t>(sizeof(Bits)), sizeof(Bits));
    if (static_cast<Bits>((bits & magnitude) + one) > magnitude) return i;
  }
  return std::nullopt;
}

std::optional<int64_t> FirstNonfinite16(const void* data, int64_t count, uint16_t one) {
  const int64_t finite = HWY_DYNAMIC_DISPATCH(FiniteStrides16)(data, count, one);
  return Search<uint16_t>(data, finite, count, 0x7fff, one);
}

}  // namespace
}  // namespace reduce_internal

std::optional<int64_t> FirstNonfinite(DType dtype, const void* data, int64_t count) {
  using namespace reduce_internal;
  switch (dtype) {
    case DType::kF32: {
      const int64_t finite = HWY_DYNAMIC_DISPATCH(FiniteStrides32)(data, count);
      return Search<uint32_t>(data, finite, count, 0x7fffffff, 1u << 23);
    }
    case DType::kF16:
      return FirstNonfinite16(data, count, 1 << 10);
    case DType::kBF16:
      return FirstNonfinite16(data, count, 1 << 7);
    case DType::kF64:
    case DType::kI32:
    case DType::kI64:
    case DType::kU8:
      break;
  }
  MUSTER_CHECK(false) << Name(dtype);
  return std::nullopt;
}

}  // namespace muster
#endif  // HWY_ONCE
