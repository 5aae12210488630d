// Adagrad (state/update_rule_options.h gives the formula).
#include <limits>

#include "base/status_macros.h"
#include "state/update_rules.h"

// Everything between here and HWY_AFTER_NAMESPACE is compiled once per SIMD target.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "state/adagrad_rule.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "state/update_rules-inl.h"

#ifndef MUSTER_STATE_ADAGRAD_SCALARS_
#define MUSTER_STATE_ADAGRAD_SCALARS_
namespace muster {

// The formula's constants of one update, rounded to single precision once.
struct AdagradScalars {
  float scale;  // of the gradient
  float weight_decay;
  float step_size;  // learning_rate / (1 + (k - 1) * learning_rate_decay)
  float epsilon;
  // The first update starts from initial_accumulator instead of the state, which is still zero.
  bool first;
  float initial_accumulator;
};

}  // namespace muster
#endif  // MUSTER_STATE_ADAGRAD_SCALARS_

HWY_BEFORE_NAMESPACE();
namespace muster::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Mul and Add, never MulAdd: a target without fused operations must round the same way. Div and
// Sqrt are correctly rounded on every target.
void Adagrad(int64_t count, const AdagradScalars& s, float* parameters, const float* gradient,
             float* sum) {
  ForEachVector(count, [&](auto d, int64_t i) HWY_ATTR {
    const auto p = hn::LoadU(d, parameters + i);
    const auto g = hn::Add(hn::Mul(hn::LoadU(d, gradient + i), hn::Set(d, s.scale)),
                           hn::Mul(p, hn::Set(d, s.weight_decay)));
    const auto before = s.first ? hn::Set(d, s.initial_accumulator) : hn::LoadU(d, sum + i);
    const auto after = ZeroIfSubnormal(d, hn::Add(before, hn::Mul(g, g)));
    hn::StoreU(after, d, sum + i);
    const auto denominator = hn::Add(hn::Sqrt(after), hn::Set(d, s.epsilon));
    hn::StoreU(hn::Sub(p, hn::Mul(hn::Set(d, s.step_size), hn::Div(g, denominator))), d,
               parameters + i);
  });
}

}  // namespace muster::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace muster {

HWY_EXPORT(Adagrad);

namespace {

class AdagradRule final : public UpdateRule {
 public:
  AdagradRule(const AdagradOptions& options, const Layout& layout)
      : UpdateRule(layout, options.weight_decay), options_(options), slot_names_({"sum"}) {}

  absl::string_view name() const override { return "adagrad"; }
  const std::vector<std::string>& slot_names() const override { return slot_names_; }

 protected:
  void ApplyRun(const RunScalars& scalars, int64_t count, float* parameters, const float* gradient,
                absl::Span<float* const> state) const override {
    const double updates_before = static_cast<double>(scalars.update_count - 1);
    const AdagradScalars rounded = {
        .scale = static_cast<float>(scalars.gradient_scale),
        .weight_decay = static_cast<float>(scalars.weight_decay),
        .step_size = static_cast<float>(scalars.learning_rate /
                                        (1 + updates_before * options_.learning_rate_decay)),
        .epsilon = static_cast<float>(options_.epsilon),
        .first = scalars.update_count == 1,
        .initial_accumulator = static_cast<float>(options_.initial_accumulator),
    };
    HWY_DYNAMIC_DISPATCH(Adagrad)(count, rounded, parameters, gradient, state[0]);
  }

 private:
  const AdagradOptions options_;
  const std::vector<std::string> slot_names_;
};

}  // namespace

namespace internal {

absl::Status ValidateAdagrad(const AdagradOptions& options) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  MUSTER_RETURN_IF_ERROR(
      CheckOption("adagrad.learning_rate_decay", options.learning_rate_decay, 0, kInfinity));
  MUSTER_RETURN_IF_ERROR(
      CheckOption("adagrad.initial_accumulator", options.initial_accumulator, 0, kInfinity));
  MUSTER_RETURN_IF_ERROR(CheckWeightDecay("adagrad.weight_decay", options.weight_decay));
  return CheckEpsilon("adagrad.epsilon", options.epsilon);
}

std::unique_ptr<UpdateRule> NewRule(const AdagradOptions& options, const Layout& layout) {
  return std::make_unique<AdagradRule>(options, layout);
}

}  // namespace internal
}  // namespace muster
#endif  // HWY_ONCE
