// Lion (state/update_rule_options.h gives the formula).
#include "base/status_macros.h"
#include "state/update_rules.h"

// Everything between here and HWY_AFTER_NAMESPACE is compiled once per SIMD target.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "state/lion_rule.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "state/update_rules-inl.h"

#ifndef MUSTER_STATE_LION_SCALARS_
#define MUSTER_STATE_LION_SCALARS_
namespace muster {

// The formula's constants of one update, rounded to single precision once.
struct LionScalars {
  float scale;   // of the gradient
  float shrink;  // 1 - learning_rate * weight_decay
  float beta1, one_minus_beta1;
  float beta2, one_minus_beta2;
  float learning_rate;
};

}  // namespace muster
#endif  // MUSTER_STATE_LION_SCALARS_

HWY_BEFORE_NAMESPACE();
namespace muster::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Mul and Add, never MulAdd: a target without fused operations must round the same way.
void Lion(int64_t count, const LionScalars& s, float* parameters, const float* gradient,
          float* momentum) {
  ForEachVector(count, [&](auto d, int64_t i) HWY_ATTR {
    const auto g = hn::Mul(hn::LoadU(d, gradient + i), hn::Set(d, s.scale));
    const auto m = hn::LoadU(d, momentum + i);
    const auto direction =
        hn::Add(hn::Mul(m, hn::Set(d, s.beta1)), hn::Mul(g, hn::Set(d, s.one_minus_beta1)));
    const auto step = hn::IfThenElseZero(hn::Ne(direction, hn::Zero(d)),
                                         hn::CopySign(hn::Set(d, s.learning_rate), direction));
    const auto p = hn::Mul(hn::LoadU(d, parameters + i), hn::Set(d, s.shrink));
    hn::StoreU(hn::Sub(p, step), d, parameters + i);
    hn::StoreU(ZeroIfSubnormal(d, hn::Add(hn::Mul(m, hn::Set(d, s.beta2)),
                                          hn::Mul(g, hn::Set(d, s.one_minus_beta2)))),
               d, momentum + i);
  });
}

}  // namespace muster::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace muster {

HWY_EXPORT(Lion);

namespace {

class LionRule final : public UpdateRule {
 public:
  LionRule(const LionOptions& options, const Layout& layout)
      : UpdateRule(layout, options.weight_decay), options_(options), slot_names_({"exp_avg"}) {}

  absl::string_view name() const override { return "lion"; }
  const std::vector<std::string>& slot_names() const override { return slot_names_; }

 protected:
  void ApplyRun(const RunScalars& scalars, int64_t count, float* parameters, const float* gradient,
                absl::Span<float* const> state) const override {
    const LionScalars rounded = {
        .scale = static_cast<float>(scalars.gradient_scale),
        .shrink = static_cast<float>(1 - scalars.learning_rate * scalars.weight_decay),
        .beta1 = static_cast<float>(options_.beta1),
        .one_minus_beta1 = static_cast<float>(1 - options_.beta1),
        .beta2 = static_cast<float>(options_.beta2),
        .one_minus_beta2 = static_cast<float>(1 - options_.beta2),
        .learning_rate = static_cast<float>(scalars.learning_rate),
    };
    HWY_DYNAMIC_DISPATCH(Lion)(count, rounded, parameters, gradient, state[0]);
  }

 private:
  const LionOptions options_;
  const std::vector<std::string> slot_names_;
};

}  // namespace

namespace internal {

absl::Status ValidateLion(const LionOptions& options) {
  MUSTER_RETURN_IF_ERROR(CheckOption("lion.beta1", options.beta1, 0, 1));
  MUSTER_RETURN_IF_ERROR(CheckOption("lion.beta2", options.beta2, 0, 1));
  return CheckWeightDecay("lion.weight_decay", options.weight_decay);
}

std::unique_ptr<UpdateRule> NewRule(const LionOptions& options, const Layout& layout) {
  return std::make_unique<LionRule>(options, layout);
}

}  // namespace internal
}  // namespace muster
#endif  // HWY_ONCE
