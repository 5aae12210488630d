// SGD with momentum (state/update_rule_options.h gives the formula).
#include "base/status_macros.h"
#include "state/update_rules.h"

// Everything between here and HWY_AFTER_NAMESPACE is compiled once per SIMD target.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "state/sgd_rule.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "state/update_rules-inl.h"

HWY_BEFORE_NAMESPACE();
namespace muster::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Mul and Add, never MulAdd: a target without fused operations must round the same way.

// The elements at `i`, one per lane of D.
template <class D>
HWY_INLINE void PlainStep(D d, int64_t i, float learning_rate, float scale, float decay,
                          float* HWY_RESTRICT parameters, const float* HWY_RESTRICT gradient) {
  const auto p = hn::LoadU(d, parameters + i);
  const auto g = hn::Add(hn::Mul(hn::LoadU(d, gradient + i), hn::Set(d, scale)),
                         hn::Mul(p, hn::Set(d, decay)));
  hn::StoreU(hn::Sub(p, hn::Mul(g, hn::Set(d, learning_rate))), d, parameters + i);
}

template <class D>
HWY_INLINE void MomentumStep(D d, int64_t i, float learning_rate, float scale, float decay,
                             float momentum, bool nesterov, float* HWY_RESTRICT parameters,
                             const float* HWY_RESTRICT gradient, float* HWY_RESTRICT buffer) {
  const auto p = hn::LoadU(d, parameters + i);
  const auto factor = hn::Set(d, momentum);
  const auto g = hn::Add(hn::Mul(hn::LoadU(d, gradient + i), hn::Set(d, scale)),
                         hn::Mul(p, hn::Set(d, decay)));
  const auto m = ZeroIfSubnormal(d, hn::Add(hn::Mul(hn::LoadU(d, buffer + i), factor), g));
  hn::StoreU(m, d, buffer + i);
  const auto direction = nesterov ? hn::Add(g, hn::Mul(m, factor)) : m;
  hn::StoreU(hn::Sub(p, hn::Mul(direction, hn::Set(d, learning_rate))), d, parameters + i);
}

void Plain(int64_t count, float learning_rate, float scale, float decay, float* parameters,
           const float* gradient) {
  const hn::ScalableTag<float> d;
  const hn::CappedTag<float, 1> d1;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    PlainStep(d, i, learning_rate, scale, decay, parameters, gradient);
  }
  for (; i < count; ++i) PlainStep(d1, i, learning_rate, scale, decay, parameters, gradient);
}

void Momentum(int64_t count, float learning_rate, float scale, float decay, float momentum,
              bool nesterov, float* parameters, const float* gradient, float* buffer) {
  const hn::ScalableTag<float> d;
  const hn::CappedTag<float, 1> d1;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    MomentumStep(d, i, learning_rate, scale, decay, momentum, nesterov, parameters, gradient,
                 buffer);
  }
  for (; i < count; ++i) {
    MomentumStep(d1, i, learning_rate, scale, decay, momentum, nesterov, parameters, gradient,
                 buffer);
  }
}

}  // namespace muster::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace muster {

HWY_EXPORT(Plain);
HWY_EXPORT(Momentum);

namespace {

class SgdRule final : public UpdateRule {
 public:
  SgdRule(const SgdOptions& options, const Layout& layout)
      : UpdateRule(layout, options.weight_decay), options_(options) {
    if (options.momentum > 0) slot_names_ = {"momentum_buffer"};
  }

  absl::string_view name() const override { return "sgd"; }
  const std::vector<std::string>& slot_names() const override { return slot_names_; }

 protected:
  void ApplyRun(const RunScalars& scalars, int64_t count, float* parameters, const float* gradient,
                absl::Span<float* const> state) const override {
    const auto learning_rate = static_cast<float>(scalars.learning_rate);
    const auto scale = static_cast<float>(scalars.gradient_scale);
    const auto weight_decay = static_cast<float>(scalars.weight_decay);
    if (state.empty()) {
      HWY_DYNAMIC_DISPATCH(Plain)
      (count, learning_rate, scale, weight_decay, parameters, gradient);
    } else {
      HWY_DYNAMIC_DISPATCH(Momentum)
      (count, learning_rate, scale, weight_decay, static_cast<float>(options_.momentum),
       options_.nesterov, parameters, gradient, state[0]);
    }
  }

 private:
  const SgdOptions options_;
  std::vector<std::string> slot_names_;
};

}  // namespace

namespace internal {

absl::Status ValidateSgd(const SgdOptions& options) {
  MUSTER_RETURN_IF_ERROR(CheckOption("sgd.momentum", options.momentum, 0, 1));
  MUSTER_RETURN_IF_ERROR(CheckWeightDecay("sgd.weight_decay", options.weight_decay));
  if (options.nesterov && options.momentum == 0) {
    return absl::InvalidArgumentError(
        "sgd.nesterov: expected momentum above 0 with it, got momentum 0");
  }
  return absl::OkStatus();
}

std::unique_ptr<UpdateRule> NewRule(const SgdOptions& options, const Layout& layout) {
  return std::make_unique<SgdRule>(options, layout);
}

}  // namespace internal
}  // namespace muster
#endif  // HWY_ONCE
