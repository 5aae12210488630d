// What the update rules' SIMD kernels share. Included once per SIMD target, after hwy/highway.h.

#if defined(MUSTER_STATE_UPDATE_RULES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MUSTER_STATE_UPDATE_RULES_INL_H_
#undef MUSTER_STATE_UPDATE_RULES_INL_H_
#else
#define MUSTER_STATE_UPDATE_RULES_INL_H_
#endif

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

}  // namespace muster::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // MUSTER_STATE_UPDATE_RULES_INL_H_
