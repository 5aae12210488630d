#include "state/update_rule.h"

#include <cmath>
#include <limits>

#include "base/random.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hwy/targets.h"

namespace muster {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Tensors with and without decay in turn, of sizes that leave padding and vector tails.
Layout TestLayout() {
  std::vector<TensorSpec> tensors;
  for (int i = 0; i < 6; ++i) {
    tensors.push_back({.name = absl::StrCat("t", i),
                       .shape = {61 + 50 * i},
                       .block = i / 2,
                       .decay = i % 3 != 1});
  }
  return Layout::Create(std::move(tensors), 256).value();
}

std::vector<UpdateRuleOptions> AllRules() {
  return {SgdOptions{},
          SgdOptions{.weight_decay = 0.1},
          SgdOptions{.momentum = 0.9, .weight_decay = 0.1},
          SgdOptions{.momentum = 0.8, .nesterov = true, .weight_decay = 0.05},
          AdamWOptions{},
          AdamWOptions{.beta1 = 0.8, .beta2 = 0.95, .epsilon = 1e-6, .weight_decay = 0.2}};
}

constexpr int kUpdates = 5;

UpdateScalars ScalarsOf(int update) {
  return {.learning_rate = 0.1 / update, .gradient_scale = 0.03, .update_count = update};
}

// What belongs to one copy of the training state.
struct State {
  std::vector<float> parameters;
  std::vector<std::vector<float>> slots;
  bool operator==(const State&) const = default;
};

// Random in tensors, zero in padding.
std::vector<float> Values(const Layout& layout, uint64_t seed) {
  const RandomStream stream(seed, "values");
  std::vector<float> values(layout.padded_count());
  for (const Tensor& tensor : layout.tensors()) {
    for (int64_t i = tensor.offset; i < tensor.offset + tensor.count; ++i) {
      values[i] = static_cast<float>(stream.Normal(i));
    }
  }
  return values;
}

State FirstState(const Layout& layout, const UpdateRule& rule) {
  return {Values(layout, 1), std::vector<std::vector<float>>(
                                 rule.state_slots(), std::vector<float>(layout.padded_count()))};
}

void ApplyRange(const UpdateRule& rule, Range range, int update, absl::Span<const float> gradient,
                State& state) {
  std::vector<absl::Span<float>> slots;
  for (auto& slot : state.slots) {
    slots.push_back(absl::MakeSpan(slot).subspan(range.offset, range.count));
  }
  rule.Apply(range, ScalarsOf(update),
             absl::MakeSpan(state.parameters).subspan(range.offset, range.count),
             gradient.subspan(range.offset, range.count), slots);
}

State Train(const UpdateRule& rule, const Layout& layout) {
  State state = FirstState(layout, rule);
  for (int update = 1; update <= kUpdates; ++update) {
    ApplyRange(rule, {0, layout.padded_count()}, update, Values(layout, 100 + update), state);
  }
  return state;
}

// The published formulas, one element, in double precision.
struct Oracle {
  double p, m = 0, v = 0;

  void Update(const UpdateRuleOptions& options, bool decay, double gradient, int update) {
    const UpdateScalars scalars = ScalarsOf(update);
    const double rate = scalars.learning_rate;
    double g = gradient * scalars.gradient_scale;
    if (const auto* sgd = std::get_if<SgdOptions>(&options)) {
      if (decay) g += sgd->weight_decay * p;
      m = sgd->momentum * m + g;
      p -= rate * (sgd->nesterov ? g + sgd->momentum * m : m);
      return;
    }
    const auto& adamw = std::get<AdamWOptions>(options);
    if (decay) p *= 1 - rate * adamw.weight_decay;
    m = adamw.beta1 * m + (1 - adamw.beta1) * g;
    v = adamw.beta2 * v + (1 - adamw.beta2) * g * g;
    const double m_hat = m / (1 - std::pow(adamw.beta1, update));
    const double v_hat = v / (1 - std::pow(adamw.beta2, update));
    p -= rate * m_hat / (std::sqrt(v_hat) + adamw.epsilon);
  }
};

TEST(UpdateRuleTest, FollowsTheFormulas) {
  const Layout layout = TestLayout();
  for (const UpdateRuleOptions& options : AllRules()) {
    const auto rule = UpdateRule::Create(options, layout).value();
    const State state = Train(*rule, layout);
    const std::vector<float> first = Values(layout, 1);
    std::vector<std::vector<float>> gradients;
    for (int update = 1; update <= kUpdates; ++update) {
      gradients.push_back(Values(layout, 100 + update));
    }
    for (const Tensor& tensor : layout.tensors()) {
      for (int64_t i = tensor.offset; i < tensor.offset + tensor.count; ++i) {
        Oracle oracle{.p = first[i]};
        for (int update = 1; update <= kUpdates; ++update) {
          oracle.Update(options, tensor.spec.decay, gradients[update - 1][i], update);
        }
        ASSERT_NEAR(state.parameters[i], oracle.p, 2e-6) << rule->name() << " " << tensor.spec.name;
      }
    }
  }
}

TEST(UpdateRuleTest, PaddingStaysZero) {
  const Layout layout = TestLayout();
  for (const UpdateRuleOptions& options : AllRules()) {
    const auto rule = UpdateRule::Create(options, layout).value();
    const State state = Train(*rule, layout);
    std::vector<bool> is_parameter(layout.padded_count());
    for (const Tensor& tensor : layout.tensors()) {
      for (int64_t i = 0; i < tensor.count; ++i) is_parameter[tensor.offset + i] = true;
    }
    for (int64_t i = 0; i < layout.padded_count(); ++i) {
      if (is_parameter[i]) continue;
      EXPECT_EQ(state.parameters[i], 0);
      for (const auto& slot : state.slots) EXPECT_EQ(slot[i], 0);
    }
  }
}

TEST(UpdateRuleTest, AnyCutGivesTheSameBits) {
  const Layout layout = TestLayout();
  const RandomStream stream(2, "cuts");
  for (const UpdateRuleOptions& options : AllRules()) {
    const auto rule = UpdateRule::Create(options, layout).value();
    const State whole = Train(*rule, layout);
    State cut = FirstState(layout, *rule);
    uint64_t draw = 0;
    for (int update = 1; update <= kUpdates; ++update) {
      const std::vector<float> gradient = Values(layout, 100 + update);
      for (int64_t offset = 0; offset < layout.padded_count();) {
        const int64_t count =
            std::min<int64_t>(stream.Below(draw++, 90), layout.padded_count() - offset);
        ApplyRange(*rule, {offset, count}, update, gradient, cut);
        offset += count;
      }
    }
    EXPECT_EQ(cut, whole) << rule->name();
  }
}

TEST(UpdateRuleTest, EverySimdTargetGivesTheSameBits) {
  const Layout layout = TestLayout();
  const int64_t targets = hwy::SupportedTargets();
  for (const UpdateRuleOptions& options : AllRules()) {
    const auto rule = UpdateRule::Create(options, layout).value();
    const State best = Train(*rule, layout);
    for (int64_t remaining = targets; remaining != 0; remaining &= remaining - 1) {
      const int64_t target = remaining & -remaining;
      hwy::SetSupportedTargetsForTest(target);
      EXPECT_EQ(Train(*rule, layout), best) << rule->name() << " " << hwy::TargetName(target);
    }
    hwy::SetSupportedTargetsForTest(0);
  }
}

TEST(UpdateRuleTest, StateWithoutGradientReachesZero) {
  const Layout layout = Layout::Create({{.name = "w", .shape = {64}, .decay = false}}, 64).value();
  const std::vector<UpdateRuleOptions> rules = {SgdOptions{.momentum = 0.9},
                                                AdamWOptions{.beta1 = 0.9, .beta2 = 0.95}};
  for (const UpdateRuleOptions& options : rules) {
    const auto rule = UpdateRule::Create(options, layout).value();
    State state = FirstState(layout, *rule);
    ApplyRange(*rule, {0, 64}, 1, std::vector<float>(64, 1.0f), state);
    for (const auto& slot : state.slots) EXPECT_GT(slot[0], 0);
    const std::vector<float> nothing(64, 0.0f);
    for (int update = 2; update < 3000; ++update) {
      ApplyRange(*rule, {0, 64}, update, nothing, state);
    }
    for (const auto& slot : state.slots) EXPECT_EQ(slot, nothing) << rule->name();
  }
}

TEST(UpdateRuleTest, NamesItsState) {
  const Layout layout = TestLayout();
  const auto names = [&](const UpdateRuleOptions& options) {
    return UpdateRule::Create(options, layout).value()->slot_names();
  };
  EXPECT_THAT(names(SgdOptions{}), IsEmpty());
  EXPECT_THAT(names(SgdOptions{.momentum = 0.5}), ElementsAre("momentum_buffer"));
  EXPECT_THAT(names(AdamWOptions{}), ElementsAre("exp_avg", "exp_avg_sq"));
}

TEST(UpdateRuleTest, ValidationNamesTheField) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  const auto error = [](const UpdateRuleOptions& options) {
    const auto rule = UpdateRule::Create(options, TestLayout());
    EXPECT_EQ(rule.status().code(), absl::StatusCode::kInvalidArgument);
    return std::string(rule.status().message());
  };
  for (const double bad : {kNan, -0.1, 1.0}) {
    EXPECT_THAT(error(SgdOptions{.momentum = bad}), HasSubstr("sgd.momentum"));
    EXPECT_THAT(error(AdamWOptions{.beta1 = bad}), HasSubstr("adamw.beta1"));
    EXPECT_THAT(error(AdamWOptions{.beta2 = bad}), HasSubstr("adamw.beta2"));
  }
  for (const double bad : {kNan, -0.1, std::numeric_limits<double>::infinity()}) {
    EXPECT_THAT(error(SgdOptions{.weight_decay = bad}), HasSubstr("sgd.weight_decay"));
    EXPECT_THAT(error(AdamWOptions{.weight_decay = bad}), HasSubstr("adamw.weight_decay"));
    EXPECT_THAT(error(AdamWOptions{.epsilon = bad}), HasSubstr("adamw.epsilon"));
  }
  EXPECT_THAT(error(AdamWOptions{.epsilon = 0}), HasSubstr("adamw.epsilon"));
  EXPECT_THAT(error(SgdOptions{.nesterov = true}), HasSubstr("sgd.nesterov"));
}

}  // namespace
}  // namespace muster
