// What the update rules' SIMD kernels share. Included once per SIMD target, after hwy/highway.h.

#if defined(MUSTER_STATE_UPDATE_RULES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MUSTER_STATE_UPDATE_RULES_INL_H_
#undef MUSTER_STATE_UPDATE_RULES_INL_H_
#else
#define MUSTER_STATE_UPDATE_RULES_INL_H_
#endif

#include <cstdint>
#include <limits>

HWY_BEFORE_NAMESPACE();
namespace muster::HWY_NAMESPACE {

// Optimizer state of a parameter without gradient decays to the subnormal numbers and stays there,
// since 0.9 times the least of them rounds to itself; arithmetic on them is a hundred times slower.
// A comparison, not the processor's flush-to-zero mode: it does the same everywhere.
template <class D, class V = hwy::HWY_NAMESPACE::VFromD<D>>
HWY_INLINE V ZeroIfSubnormal(D d, V value) {
  namespace hn = hwy::HWY_NAMESPACE;
  const auto least = hn::Set(d, std::numeric_limits<float>::min());
  return hn::IfThenZeroElse(hn::Lt(hn::Abs(value), least), value);
}

// Calls step(d, i) for the elements 0 .. count - 1, as many from `i` on as `d` has lanes.
template <class Step>
HWY_INLINE void ForEachVector(int64_t count, const Step& step) {
  const hwy::HWY_NAMESPACE::ScalableTag<float> d;
  const hwy::HWY_NAMESPACE::CappedTag<float, 1> d1;
  const auto lanes = static_cast<int64_t>(hwy::HWY_NAMESPACE::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) step(d, i);
  for (; i < count; ++i) step(d1, i);
}

}  // namespace muster::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // MUSTER_STATE_UPDATE_RULES_INL_H_
