// AdamW (state/update_rule_options.h gives the formula).
#include <cmath>

#include "base/status_macros.h"
#include "state/step_scalars.h"
#include "state/update_rules.h"

// Everything between here and HWY_AFTER_NAMESPACE is compiled once per SIMD target.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "state/adamw_rule.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "state/update_rules-inl.h"

#ifndef MUSTER_STATE_ADAMW_SCALARS_
#define MUSTER_STATE_ADAMW_SCALARS_
namespace muster {

// The formula's constants of one update, rounded to single precision once.
struct AdamWScalars {
  float scale;   // of the gradient
  float shrink;  // 1 - learning_rate * weight_decay
  float beta1, one_minus_beta1;
  float beta2, one_minus_beta2;
  float step_size;        // learning_rate / (1 - beta1^k)
  float root_correction;  // sqrt(1 - beta2^k)
  float epsilon;
};

}  // namespace muster
#endif  // MUSTER_STATE_ADAMW_SCALARS_

HWY_BEFORE_NAMESPACE();
namespace muster::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Mul and Add, never MulAdd: a target without fused operations must round the same way. Div and
// Sqrt are correctly rounded on every target.
template <class D>
HWY_INLINE void AdamWStep(D d, int64_t i, const AdamWScalars& s, float* HWY_RESTRICT parameters,
                          const float* HWY_RESTRICT gradient, float* HWY_RESTRICT first,
                          float* HWY_RESTRICT second) {
  const auto g = hn::Mul(hn::LoadU(d, gradient + i), hn::Set(d, s.scale));
  const auto p = hn::Mul(hn::LoadU(d, parameters + i), hn::Set(d, s.shrink));
  const auto m = ZeroIfSubnormal(d, hn::Add(hn::Mul(hn::LoadU(d, first + i), hn::Set(d, s.beta1)),
                                            hn::Mul(g, hn::Set(d, s.one_minus_beta1))));
  const auto v = ZeroIfSubnormal(d, hn::Add(hn::Mul(hn::LoadU(d, second + i), hn::Set(d, s.beta2)),
                                            hn::Mul(hn::Mul(g, g), hn::Set(d, s.one_minus_beta2))));
  hn::StoreU(m, d, first + i);
  hn::StoreU(v, d, second + i);
  const auto denominator =
      hn::Add(hn::Div(hn::Sqrt(v), hn::Set(d, s.root_correction)), hn::Set(d, s.epsilon));
  hn::StoreU(hn::Sub(p, hn::Mul(hn::Set(d, s.step_size), hn::Div(m, denominator))), d,
             parameters + i);
}

void AdamW(int64_t count, const AdamWScalars& scalars, float* parameters, const float* gradient,
           float* first, float* second) {
  const hn::ScalableTag<float> d;
  const hn::CappedTag<float, 1> d1;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    AdamWStep(d, i, scalars, parameters, gradient, first, second);
  }
  for (; i < count; ++i) AdamWStep(d1, i, scalars, parameters, gradient, first, second);
}

}  // namespace muster::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace muster {

HWY_EXPORT(AdamW);

namespace {

class AdamWRule final : public UpdateRule {
 public:
  AdamWRule(const AdamWOptions& options, const Layout& layout)
      : UpdateRule(layout, options.weight_decay),
        options_(options),
        slot_names_({"exp_avg", "exp_avg_sq"}) {}

  absl::string_view name() const override { return "adamw"; }
  const std::vector<std::string>& slot_names() const override { return slot_names_; }

 protected:
  void ApplyRun(const RunScalars& scalars, int64_t count, float* parameters, const float* gradient,
                absl::Span<float* const> state) const override {
    const double correction1 = 1 - PowerByInteger(options_.beta1, scalars.update_count);
    const double correction2 = 1 - PowerByInteger(options_.beta2, scalars.update_count);
    const AdamWScalars rounded = {
        .scale = static_cast<float>(scalars.gradient_scale),
        .shrink = static_cast<float>(1 - scalars.learning_rate * scalars.weight_decay),
        .beta1 = static_cast<float>(options_.beta1),
        .one_minus_beta1 = static_cast<float>(1 - options_.beta1),
        .beta2 = static_cast<float>(options_.beta2),
        .one_minus_beta2 = static_cast<float>(1 - options_.beta2),
        .step_size = static_cast<float>(scalars.learning_rate / correction1),
        .root_correction = static_cast<float>(std::sqrt(correction2)),
        .epsilon = static_cast<float>(options_.epsilon),
    };
    HWY_DYNAMIC_DISPATCH(AdamW)(count, rounded, parameters, gradient, state[0], state[1]);
  }

 private:
  const AdamWOptions options_;
  const std::vector<std::string> slot_names_;
};

}  // namespace

namespace internal {

absl::Status ValidateAdamW(const AdamWOptions& options) {
  MUSTER_RETURN_IF_ERROR(CheckOption("adamw.beta1", options.beta1, 0, 1));
  MUSTER_RETURN_IF_ERROR(CheckOption("adamw.beta2", options.beta2, 0, 1));
  MUSTER_RETURN_IF_ERROR(CheckWeightDecay("adamw.weight_decay", options.weight_decay));
  return CheckEpsilon("adamw.epsilon", options.epsilon);
}

std::unique_ptr<UpdateRule> NewRule(const AdamWOptions& options, const Layout& layout) {
  return std::make_unique<AdamWRule>(options, layout);
}

}  // namespace internal
}  // namespace muster
#endif  // HWY_ONCE
