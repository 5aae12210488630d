#include <algorithm>

#include "worker/device/cpu_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "worker/device/cpu_image.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace muster::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// The largest of the four pixels, and which it is, for one vector of channels. Channel vectors of
// the window start at input + corner[k] + c.
template <class D>
HWY_INLINE void LargestOfWindow(D d, int64_t c, const float* HWY_RESTRICT input,
                                const int64_t* corner, float* HWY_RESTRICT output,
                                uint8_t* HWY_RESTRICT winners) {
  const hn::RebindToSigned<D> di;
  const hn::Rebind<uint8_t, D> du8;
  auto best = hn::LoadU(d, input + corner[0] + c);
  auto winner = hn::Zero(di);
  for (int32_t k = 1; k < 4; ++k) {
    const auto candidate = hn::LoadU(d, input + corner[k] + c);
    const auto wins = hn::Or(hn::Gt(candidate, best), hn::IsNaN(candidate));
    best = hn::IfThenElse(wins, candidate, best);
    winner = hn::IfThenElse(hn::RebindMask(di, wins), hn::Set(di, k), winner);
  }
  hn::StoreU(best, d, output + c);
  if (winners != nullptr) hn::StoreU(hn::DemoteTo(du8, winner), du8, winners + c);
}

template <class D>
HWY_INLINE void SpreadToWindow(D d, int64_t c, const float* HWY_RESTRICT gradient,
                               const uint8_t* HWY_RESTRICT winners, const int64_t* corner,
                               float* HWY_RESTRICT input_gradient) {
  const hn::RebindToSigned<D> di;
  const hn::Rebind<uint8_t, D> du8;
  const auto value = hn::LoadU(d, gradient + c);
  const auto winner = hn::PromoteTo(di, hn::LoadU(du8, winners + c));
  for (int32_t k = 0; k < 4; ++k) {
    const auto wins = hn::RebindMask(d, hn::Eq(winner, hn::Set(di, k)));
    hn::StoreU(hn::IfThenElseZero(wins, value), d, input_gradient + corner[k] + c);
  }
}

// Calls window(output offset, corner offsets) for each window.
template <class Window>
HWY_INLINE void ForEachWindow(const MaxPoolShape& shape, Window&& window) {
  const int64_t row = shape.width * shape.channels;
  int64_t out = 0;
  for (int64_t image = 0; image < shape.batch; ++image) {
    for (int64_t y = 0; y + 1 < shape.height; y += 2) {
      for (int64_t x = 0; x + 1 < shape.width; x += 2) {
        const int64_t first = (image * shape.height + y) * row + x * shape.channels;
        const int64_t corner[4] = {first, first + shape.channels, first + row,
                                   first + row + shape.channels};
        window(out, corner);
        out += shape.channels;
      }
    }
  }
}

void PoolForward(const MaxPoolShape& shape, const float* input, float* output, uint8_t* winners) {
  const hn::ScalableTag<float> d;
  const hn::CappedTag<float, 1> d1;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  ForEachWindow(shape, [&](int64_t out, const int64_t* corner) HWY_ATTR {
    uint8_t* window_winners = winners == nullptr ? nullptr : winners + out;
    int64_t c = 0;
    for (; c + lanes <= shape.channels; c += lanes) {
      LargestOfWindow(d, c, input, corner, output + out, window_winners);
    }
    for (; c < shape.channels; ++c) {
      LargestOfWindow(d1, c, input, corner, output + out, window_winners);
    }
  });
}

void PoolBackward(const MaxPoolShape& shape, const float* output_gradient, const uint8_t* winners,
                  float* input_gradient) {
  const hn::ScalableTag<float> d;
  const hn::CappedTag<float, 1> d1;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  ForEachWindow(shape, [&](int64_t out, const int64_t* corner) HWY_ATTR {
    int64_t c = 0;
    for (; c + lanes <= shape.channels; c += lanes) {
      SpreadToWindow(d, c, output_gradient + out, winners + out, corner, input_gradient);
    }
    for (; c < shape.channels; ++c) {
      SpreadToWindow(d1, c, output_gradient + out, winners + out, corner, input_gradient);
    }
  });
}

}  // namespace muster::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace muster {

HWY_EXPORT(PoolForward);
HWY_EXPORT(PoolBackward);

namespace internal {

void MaxPoolForward(const MaxPoolShape& shape, const float* input, float* output,
                    uint8_t* winners) {
  HWY_DYNAMIC_DISPATCH(PoolForward)(shape, input, output, winners);
}

void MaxPoolBackward(const MaxPoolShape& shape, const float* output_gradient,
                     const uint8_t* winners, float* input_gradient) {
  // A last row or column without a window has no gradient.
  if (shape.height % 2 != 0 || shape.width % 2 != 0) {
    std::fill_n(input_gradient, shape.input_size(), 0.0f);
  }
  HWY_DYNAMIC_DISPATCH(PoolBackward)(shape, output_gradient, winners, input_gradient);
}

void TransposeImages(int64_t batch, int64_t pixels, int64_t channels, const float* input,
                     float* output) {
  const int64_t size = pixels * channels;
  for (int64_t image = 0; image < batch; ++image) {
    const float* from = input + image * size;
    float* to = output + image * size;
    for (int64_t c = 0; c < channels; ++c) {
      for (int64_t p = 0; p < pixels; ++p) to[c * pixels + p] = from[p * channels + c];
    }
  }
}

}  // namespace internal
}  // namespace muster
#endif  // HWY_ONCE
