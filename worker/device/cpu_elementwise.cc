#include <algorithm>

#include "worker/device/cpu_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "worker/device/cpu_elementwise.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace muster::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Calls body(d, i) for whole vectors, then for single elements, until `count` are done.
template <class Body>
HWY_INLINE void ForEach(int64_t count, Body&& body) {
  const hn::ScalableTag<float> d;
  const hn::CappedTag<float, 1> d1;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) body(d, i);
  for (; i < count; ++i) body(d1, i);
}

// A comparison rather than Max, whose answer to NaN differs between targets.
template <class V>
HWY_INLINE V PositiveOrNan(V v) {
  return hn::IfThenZeroElse(hn::Lt(v, hn::Zero(hn::DFromV<V>())), v);
}

void AddBias(int64_t rows, int64_t columns, const float* HWY_RESTRICT bias, bool relu,
             float* HWY_RESTRICT values) {
  for (int64_t row = 0; row < rows; ++row) {
    float* HWY_RESTRICT out = values + row * columns;
    ForEach(columns, [=](auto d, int64_t i) HWY_ATTR {
      const auto sum = hn::Add(hn::LoadU(d, out + i), hn::LoadU(d, bias + i));
      hn::StoreU(relu ? PositiveOrNan(sum) : sum, d, out + i);
    });
  }
}

void BiasGradient(int64_t rows, int64_t columns, const float* HWY_RESTRICT gradient,
                  float* HWY_RESTRICT bias_gradient) {
  // Sums of short runs of rows, then the sum of these: rounding errors stay small when there are
  // many rows (each pixel of each image is one). Four sums take turns to hide latency.
  constexpr int64_t kRun = 256;
  ForEach(columns, [=](auto d, int64_t i) HWY_ATTR {
    auto total = hn::Zero(d);
    for (int64_t begin = 0; begin < rows; begin += kRun) {
      const int64_t end = std::min(rows, begin + kRun);
      auto sum0 = hn::Zero(d), sum1 = hn::Zero(d), sum2 = hn::Zero(d), sum3 = hn::Zero(d);
      const float* HWY_RESTRICT from = gradient + begin * columns + i;
      int64_t row = begin;
      for (; row + 4 <= end; row += 4, from += 4 * columns) {
        sum0 = hn::Add(sum0, hn::LoadU(d, from));
        sum1 = hn::Add(sum1, hn::LoadU(d, from + columns));
        sum2 = hn::Add(sum2, hn::LoadU(d, from + 2 * columns));
        sum3 = hn::Add(sum3, hn::LoadU(d, from + 3 * columns));
      }
      for (; row < end; ++row, from += columns) sum0 = hn::Add(sum0, hn::LoadU(d, from));
      total = hn::Add(total, hn::Add(hn::Add(sum0, sum1), hn::Add(sum2, sum3)));
    }
    hn::StoreU(hn::Add(hn::LoadU(d, bias_gradient + i), total), d, bias_gradient + i);
  });
}

void Relu(int64_t count, float* HWY_RESTRICT values) {
  ForEach(count, [=](auto d, int64_t i) HWY_ATTR {
    hn::StoreU(PositiveOrNan(hn::LoadU(d, values + i)), d, values + i);
  });
}

void ReluBackward(int64_t count, const float* HWY_RESTRICT output, float* HWY_RESTRICT gradient) {
  ForEach(count, [=](auto d, int64_t i) HWY_ATTR {
    const auto positive = hn::Gt(hn::LoadU(d, output + i), hn::Zero(d));
    hn::StoreU(hn::IfThenElseZero(positive, hn::LoadU(d, gradient + i)), d, gradient + i);
  });
}

void Scale(int64_t count, float alpha, float* HWY_RESTRICT y) {
  ForEach(count, [=](auto d, int64_t i) HWY_ATTR {
    hn::StoreU(hn::Mul(hn::Set(d, alpha), hn::LoadU(d, y + i)), d, y + i);
  });
}

void Axpy(int64_t count, float alpha, const float* HWY_RESTRICT x, float* HWY_RESTRICT y) {
  ForEach(count, [=](auto d, int64_t i) HWY_ATTR {
    const auto product = hn::Mul(hn::Set(d, alpha), hn::LoadU(d, x + i));
    hn::StoreU(hn::Add(hn::LoadU(d, y + i), product), d, y + i);
  });
}

const char* TargetName() { return hwy::TargetName(HWY_TARGET); }

}  // namespace muster::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace muster {

HWY_EXPORT(AddBias);
HWY_EXPORT(BiasGradient);
HWY_EXPORT(Relu);
HWY_EXPORT(ReluBackward);
HWY_EXPORT(Scale);
HWY_EXPORT(Axpy);
HWY_EXPORT(TargetName);

namespace internal {

void AddBias(int64_t rows, int64_t columns, const float* bias, Activation activation,
             float* values) {
  HWY_DYNAMIC_DISPATCH(AddBias)(rows, columns, bias, activation == Activation::kRelu, values);
}

void BiasGradient(int64_t rows, int64_t columns, const float* gradient, float* bias_gradient) {
  HWY_DYNAMIC_DISPATCH(BiasGradient)(rows, columns, gradient, bias_gradient);
}

void Relu(int64_t count, float* values) { HWY_DYNAMIC_DISPATCH(Relu)(count, values); }

void ReluBackward(int64_t count, const float* output, float* gradient) {
  HWY_DYNAMIC_DISPATCH(ReluBackward)(count, output, gradient);
}

void Fill(int64_t count, float value, float* y) { std::fill_n(y, count, value); }

void Scale(int64_t count, float alpha, float* y) { HWY_DYNAMIC_DISPATCH(Scale)(count, alpha, y); }

void Axpy(int64_t count, float alpha, const float* x, float* y) {
  HWY_DYNAMIC_DISPATCH(Axpy)(count, alpha, x, y);
}

const char* SimdTargetName() { return HWY_DYNAMIC_DISPATCH(TargetName)(); }

}  // namespace internal
}  // namespace muster
#endif  // HWY_ONCE
