// LAMB (state/update_rule_options.h gives the formula).
//
// The update's norm must be known before any element moves, and moments must not change before the
// step is sure. So Prepare computes the update from the moments as they will be and forgets it, and
// Apply computes it again: the same operations give the same bits, and no scratch is kept between.
#include <algorithm>
#include <array>
#include <cmath>

#include "base/status_macros.h"
#include "state/step_scalars.h"
#include "state/update_rules.h"

// Everything between here and HWY_AFTER_NAMESPACE is compiled once per SIMD target.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "state/lamb_rule.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "state/update_rules-inl.h"

#ifndef MUSTER_STATE_LAMB_SCALARS_
#define MUSTER_STATE_LAMB_SCALARS_
namespace muster {

// The formula's constants of one update, rounded to single precision once.
struct LambScalars {
  float scale;  // of the gradient
  float weight_decay;
  float beta1, one_minus_beta1;
  float beta2, one_minus_beta2;
  float inverse_correction;  // 1 / (1 - beta1^k)
  float root_correction;     // sqrt(1 - beta2^k)
  float epsilon;
  float step_size;  // learning_rate * ratio; not used to prepare
};

// What the update is computed from, and never changes: `count` elements of each.
struct LambInputs {
  const float* parameters;
  const float* gradient;
  const float* first;
  const float* second;
};

}  // namespace muster
#endif  // MUSTER_STATE_LAMB_SCALARS_

HWY_BEFORE_NAMESPACE();
namespace muster::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <class V>
struct LambVectors {
  V parameters, first, second;  // the moments are the new ones
  V update;
};

// Mul and Add, never MulAdd: a target without fused operations must round the same way. Div and
// Sqrt are correctly rounded on every target.
template <class D, class V = hn::VFromD<D>>
HWY_INLINE LambVectors<V> LambUpdate(D d, int64_t i, const LambScalars& s, const LambInputs& in) {
  const V g = hn::Mul(hn::LoadU(d, in.gradient + i), hn::Set(d, s.scale));
  const V p = hn::LoadU(d, in.parameters + i);
  const V m = ZeroIfSubnormal(d, hn::Add(hn::Mul(hn::LoadU(d, in.first + i), hn::Set(d, s.beta1)),
                                         hn::Mul(g, hn::Set(d, s.one_minus_beta1))));
  const V v = ZeroIfSubnormal(d, hn::Add(hn::Mul(hn::LoadU(d, in.second + i), hn::Set(d, s.beta2)),
                                         hn::Mul(hn::Mul(g, g), hn::Set(d, s.one_minus_beta2))));
  const V denominator =
      hn::Add(hn::Div(hn::Sqrt(v), hn::Set(d, s.root_correction)), hn::Set(d, s.epsilon));
  const V adam = hn::Div(hn::Mul(m, hn::Set(d, s.inverse_correction)), denominator);
  return {p, m, v, hn::Add(adam, hn::Mul(p, hn::Set(d, s.weight_decay)))};
}

// Writes the update alone.
void LambPrepare(int64_t count, const LambScalars& scalars, const LambInputs& inputs,
                 float* HWY_RESTRICT update) {
  ForEachVector(count, [&](auto d, int64_t i) HWY_ATTR {
    hn::StoreU(LambUpdate(d, i, scalars, inputs).update, d, update + i);
  });
}

void LambApply(int64_t count, const LambScalars& scalars, float* parameters, const float* gradient,
               float* first, float* second) {
  const LambInputs inputs = {parameters, gradient, first, second};
  ForEachVector(count, [&](auto d, int64_t i) HWY_ATTR {
    const auto next = LambUpdate(d, i, scalars, inputs);
    hn::StoreU(next.first, d, first + i);
    hn::StoreU(next.second, d, second + i);
    hn::StoreU(hn::Sub(next.parameters, hn::Mul(hn::Set(d, scalars.step_size), next.update)), d,
               parameters + i);
  });
}

}  // namespace muster::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace muster {

HWY_EXPORT(LambPrepare);
HWY_EXPORT(LambApply);

namespace {

// Elements whose update is held at a time: 32 KiB of stack, and enough to make up for the fixed
// cost of a SquaredSum::Add.
constexpr int64_t kPrepareBlock = 8192;

class LambRule final : public UpdateRule {
 public:
  LambRule(const LambOptions& options, const Layout& layout)
      : UpdateRule(layout, options.weight_decay,
                   options.always_adapt ? Adapts::kEverything : Adapts::kDecaying),
        options_(options),
        slot_names_({"exp_avg", "exp_avg_sq"}) {}

  absl::string_view name() const override { return "lamb"; }
  const std::vector<std::string>& slot_names() const override { return slot_names_; }

 protected:
  void PrepareRun(const RunScalars& scalars, int64_t count, const float* parameters,
                  const float* gradient, absl::Span<float* const> state,
                  SquaredSum& sum) const override {
    const LambScalars rounded = Round(scalars);
    std::array<float, kPrepareBlock> update;
    for (int64_t done = 0; done < count; done += kPrepareBlock) {
      const int64_t block = std::min(kPrepareBlock, count - done);
      HWY_DYNAMIC_DISPATCH(LambPrepare)
      (block, rounded,
       LambInputs{parameters + done, gradient + done, state[0] + done, state[1] + done},
       update.data());
      sum.Add(absl::MakeConstSpan(update).subspan(0, block));
    }
  }

  void ApplyRun(const RunScalars& scalars, int64_t count, float* parameters, const float* gradient,
                absl::Span<float* const> state) const override {
    HWY_DYNAMIC_DISPATCH(LambApply)
    (count, Round(scalars), parameters, gradient, state[0], state[1]);
  }

 private:
  LambScalars Round(const RunScalars& scalars) const {
    const double correction1 = 1 - PowerByInteger(options_.beta1, scalars.update_count);
    const double correction2 = 1 - PowerByInteger(options_.beta2, scalars.update_count);
    return {
        .scale = static_cast<float>(scalars.gradient_scale),
        .weight_decay = static_cast<float>(scalars.weight_decay),
        .beta1 = static_cast<float>(options_.beta1),
        .one_minus_beta1 = static_cast<float>(1 - options_.beta1),
        .beta2 = static_cast<float>(options_.beta2),
        .one_minus_beta2 = static_cast<float>(1 - options_.beta2),
        .inverse_correction = static_cast<float>(1 / correction1),
        .root_correction = static_cast<float>(std::sqrt(correction2)),
        .epsilon = static_cast<float>(options_.epsilon),
        .step_size = static_cast<float>(scalars.learning_rate),
    };
  }

  const LambOptions options_;
  const std::vector<std::string> slot_names_;
};

}  // namespace

namespace internal {

absl::Status ValidateLamb(const LambOptions& options) {
  MUSTER_RETURN_IF_ERROR(CheckOption("lamb.beta1", options.beta1, 0, 1));
  MUSTER_RETURN_IF_ERROR(CheckOption("lamb.beta2", options.beta2, 0, 1));
  MUSTER_RETURN_IF_ERROR(CheckWeightDecay("lamb.weight_decay", options.weight_decay));
  return CheckEpsilon("lamb.epsilon", options.epsilon);
}

std::unique_ptr<UpdateRule> NewRule(const LambOptions& options, const Layout& layout) {
  return std::make_unique<LambRule>(options, layout);
}

}  // namespace internal
}  // namespace muster
#endif  // HWY_ONCE
