#include "state/update_rule.h"

#include <cmath>
#include <limits>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hwy/targets.h"
#include "tests/state/update_rule_oracle.h"
#include "tests/state/update_rule_util.h"

namespace muster {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int kUpdates = 5;

UpdateScalars ScalarsOf(int update) {
  return {.learning_rate = 0.1 / update, .gradient_scale = 0.03, .update_count = update};
}

RuleState Train(const UpdateRule& rule, const Layout& layout) {
  RuleState state = FirstState(layout, rule);
  const Range whole = {0, layout.padded_count()};
  for (int update = 1; update <= kUpdates; ++update) {
    UpdateRanges(rule, {whole}, ScalarsOf(update), RandomValues(layout, 100 + update), state);
  }
  return state;
}

TEST(UpdateRuleTest, FollowsTheFormulas) {
  const Layout layout = GroupedLayout();
  for (const UpdateRuleOptions& options : AllRules()) {
    const auto rule = UpdateRule::Create(options, layout).value();
    const RuleState state = Train(*rule, layout);
    const std::vector<float> first = RandomValues(layout, 1);
    for (const Tensor& tensor : layout.tensors()) {
      TensorOracle oracle(options, tensor.spec,
                          absl::MakeConstSpan(first).subspan(tensor.offset, tensor.count));
      for (int update = 1; update <= kUpdates; ++update) {
        const UpdateScalars scalars = ScalarsOf(update);
        const std::vector<float> gradient = RandomValues(layout, 100 + update);
        std::vector<double> scaled;
        for (int64_t i = 0; i < tensor.count; ++i) {
          scaled.push_back(gradient[tensor.offset + i] * scalars.gradient_scale);
        }
        oracle.Update(scaled, scalars.learning_rate, update);
      }
      for (int64_t i = 0; i < tensor.count; ++i) {
        ASSERT_NEAR(state.parameters[tensor.offset + i], oracle.parameters()[i], 2e-6)
            << rule->name() << " " << tensor.spec.name;
      }
    }
  }
}

// Frozen tensors are passed over even where what lies there would spread.
TEST(UpdateRuleTest, PaddingAndFrozenTensorsAreLeftAlone) {
  constexpr float kMark = 1234.5f;
  const Layout layout = GroupedLayout();
  std::vector<bool> trains(layout.padded_count());
  for (const Tensor& tensor : layout.tensors()) {
    for (int64_t i = 0; i < tensor.count; ++i) trains[tensor.offset + i] = !tensor.spec.frozen;
  }
  const Range whole = {0, layout.padded_count()};
  for (const UpdateRuleOptions& options : AllRules()) {
    const auto rule = UpdateRule::Create(options, layout).value();
    const RuleState expected = Train(*rule, layout);
    RuleState state = FirstState(layout, *rule);
    std::vector<std::vector<float>*> arrays = {&state.parameters};
    for (auto& slot : state.slots) arrays.push_back(&slot);
    for (std::vector<float>* array : arrays) {
      for (int64_t i = 0; i < whole.count; ++i) {
        if (!trains[i]) (*array)[i] = kMark;
      }
    }
    for (int update = 1; update <= kUpdates; ++update) {
      std::vector<float> gradient = RandomValues(layout, 100 + update);
      for (int64_t i = 0; i < whole.count; ++i) {
        if (!trains[i]) gradient[i] = std::numeric_limits<float>::quiet_NaN();
      }
      UpdateRanges(*rule, {whole}, ScalarsOf(update), gradient, state);
    }
    for (int64_t i = 0; i < whole.count; ++i) {
      if (trains[i]) {
        ASSERT_EQ(state.parameters[i], expected.parameters[i]) << rule->name() << " " << i;
      } else {
        for (const std::vector<float>* array : arrays) ASSERT_EQ((*array)[i], kMark);
      }
    }
  }
}

TEST(UpdateRuleTest, AnyCutGivesTheSameBits) {
  const Layout layout = GroupedLayout();
  for (const UpdateRuleOptions& options : AllRules()) {
    const auto rule = UpdateRule::Create(options, layout).value();
    RuleState cut = FirstState(layout, *rule);
    for (int update = 1; update <= kUpdates; ++update) {
      UpdateRanges(*rule, RandomCut(layout.padded_count(), 90, update), ScalarsOf(update),
                   RandomValues(layout, 100 + update), cut);
    }
    EXPECT_TRUE(cut == Train(*rule, layout)) << rule->name();
  }
}

TEST(UpdateRuleTest, EverySimdTargetGivesTheSameBits) {
  const Layout layout = GroupedLayout();
  const int64_t targets = hwy::SupportedTargets();
  for (const UpdateRuleOptions& options : AllRules()) {
    const auto rule = UpdateRule::Create(options, layout).value();
    const RuleState best = Train(*rule, layout);
    for (int64_t remaining = targets; remaining != 0; remaining &= remaining - 1) {
      const int64_t target = remaining & -remaining;
      hwy::SetSupportedTargetsForTest(target);
      EXPECT_TRUE(Train(*rule, layout) == best) << rule->name() << " " << hwy::TargetName(target);
    }
    hwy::SetSupportedTargetsForTest(0);
  }
}

TEST(UpdateRuleTest, PrepareChangesNothingAndOnlyLayerwiseRulesNeedIt) {
  const Layout layout = GroupedLayout();
  const Range whole = {0, layout.padded_count()};
  const std::vector<float> gradient = RandomValues(layout, 3);
  for (const UpdateRuleOptions& options : AllRules()) {
    const auto rule = UpdateRule::Create(options, layout).value();
    RuleState state = Train(*rule, layout);
    const RuleState before = state;
    TensorSums sums(rule->factor_count());
    rule->Prepare(whole, ScalarsOf(6), state.parameters, gradient, SlotsOf(state, whole), sums);
    EXPECT_TRUE(state == before) << rule->name();
    // Nine tensors, two frozen; of the others three do not decay.
    const auto* lamb = std::get_if<LambOptions>(&options);
    EXPECT_EQ(rule->factor_count(), lamb == nullptr ? 0 : lamb->always_adapt ? 7 : 4);
  }
}

TEST(UpdateRuleTest, LambTakesRatioOneWhereANormIsZeroOrNotFinite) {
  const Layout layout = Layout::Create({{.name = "zero", .shape = {70}},
                                        {.name = "still", .shape = {70}},
                                        {.name = "both", .shape = {70}},
                                        {.name = "huge", .shape = {70}}},
                                       64)
                            .value();
  const auto rule = UpdateRule::Create(LambOptions{.weight_decay = 0}, layout).value();
  ASSERT_EQ(rule->factor_count(), 4);
  RuleState state = FirstState(layout, *rule);
  std::vector<float> gradient(layout.padded_count());
  for (int64_t i = 0; i < 70; ++i) {
    state.parameters[layout.tensors()[0].offset + i] = 0;
    gradient[layout.tensors()[0].offset + i] = 1;
    gradient[layout.tensors()[2].offset + i] = 1;
    state.parameters[layout.tensors()[2].offset + i] = 3;
    state.parameters[layout.tensors()[3].offset + i] = std::numeric_limits<float>::infinity();
    gradient[layout.tensors()[3].offset + i] = 1;
  }
  TensorSums sums(4);
  const Range whole = {0, layout.padded_count()};
  rule->Prepare(whole, {.learning_rate = 1}, state.parameters, gradient, SlotsOf(state, whole),
                sums);
  const std::vector<double> factors = rule->TensorFactors(sums);
  EXPECT_EQ(factors[0], 1);
  EXPECT_EQ(factors[1], 1);
  EXPECT_NEAR(factors[2], 3, 1e-5);  // every element moves by 1
  EXPECT_EQ(factors[3], 1);
}

TEST(UpdateRuleTest, LionDoesNotMoveWithoutDirection) {
  const Layout layout = Layout::Create({{.name = "w", .shape = {64}}}, 64).value();
  const auto rule = UpdateRule::Create(LionOptions{}, layout).value();
  RuleState state = FirstState(layout, *rule);
  const std::vector<float> first = state.parameters;
  std::vector<float> gradient(64);
  gradient[5] = std::numeric_limits<float>::denorm_min();
  gradient[6] = -1e30f;
  UpdateRanges(*rule, {{0, 64}}, {.learning_rate = 0.25}, gradient, state);
  for (int i = 0; i < 64; ++i) {
    // The least float times 0.1 is zero, so element 5 rests as well.
    EXPECT_EQ(state.parameters[i], i == 6 ? first[i] + 0.25f : first[i]) << i;
  }
}

TEST(UpdateRuleTest, StateWithoutGradientReachesZero) {
  const Layout layout = Layout::Create({{.name = "w", .shape = {64}, .decay = false}}, 64).value();
  const std::vector<UpdateRuleOptions> rules = {
      SgdOptions{.momentum = 0.9}, AdamWOptions{.beta1 = 0.9, .beta2 = 0.95},
      LambOptions{.beta1 = 0.9, .beta2 = 0.95, .always_adapt = true}, LionOptions{.beta2 = 0.95}};
  for (const UpdateRuleOptions& options : rules) {
    const auto rule = UpdateRule::Create(options, layout).value();
    RuleState state = FirstState(layout, *rule);
    const auto update = [&](int count, const std::vector<float>& gradient) {
      UpdateRanges(*rule, {{0, 64}}, ScalarsOf(count), gradient, state);
    };
    update(1, std::vector<float>(64, 1.0f));
    for (const auto& slot : state.slots) EXPECT_GT(slot[0], 0);
    const std::vector<float> nothing(64, 0.0f);
    for (int count = 2; count < 3000; ++count) update(count, nothing);
    for (const auto& slot : state.slots) EXPECT_EQ(slot, nothing) << rule->name();
  }
}

TEST(UpdateRuleTest, NamesItsState) {
  const Layout layout = GroupedLayout();
  const auto names = [&](const UpdateRuleOptions& options) {
    return UpdateRule::Create(options, layout).value()->slot_names();
  };
  EXPECT_THAT(names(SgdOptions{}), IsEmpty());
  EXPECT_THAT(names(SgdOptions{.momentum = 0.5}), ElementsAre("momentum_buffer"));
  EXPECT_THAT(names(AdamWOptions{}), ElementsAre("exp_avg", "exp_avg_sq"));
  EXPECT_THAT(names(LambOptions{}), ElementsAre("exp_avg", "exp_avg_sq"));
  EXPECT_THAT(names(LionOptions{}), ElementsAre("exp_avg"));
  EXPECT_THAT(names(AdagradOptions{}), ElementsAre("sum"));
}

TEST(UpdateRuleTest, ValidationNamesTheField) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  const auto error = [](const UpdateRuleOptions& options) {
    const auto rule = UpdateRule::Create(options, GroupedLayout());
    EXPECT_EQ(rule.status().code(), absl::StatusCode::kInvalidArgument);
    return std::string(rule.status().message());
  };
  for (const double bad : {kNan, -0.1, 1.0}) {
    EXPECT_THAT(error(SgdOptions{.momentum = bad}), HasSubstr("sgd.momentum"));
    EXPECT_THAT(error(AdamWOptions{.beta1 = bad}), HasSubstr("adamw.beta1"));
    EXPECT_THAT(error(AdamWOptions{.beta2 = bad}), HasSubstr("adamw.beta2"));
    EXPECT_THAT(error(LambOptions{.beta1 = bad}), HasSubstr("lamb.beta1"));
    EXPECT_THAT(error(LambOptions{.beta2 = bad}), HasSubstr("lamb.beta2"));
    EXPECT_THAT(error(LionOptions{.beta1 = bad}), HasSubstr("lion.beta1"));
    EXPECT_THAT(error(LionOptions{.beta2 = bad}), HasSubstr("lion.beta2"));
  }
  for (const double bad : {kNan, -0.1, std::numeric_limits<double>::infinity()}) {
    EXPECT_THAT(error(SgdOptions{.weight_decay = bad}), HasSubstr("sgd.weight_decay"));
    EXPECT_THAT(error(AdamWOptions{.weight_decay = bad}), HasSubstr("adamw.weight_decay"));
    EXPECT_THAT(error(AdamWOptions{.epsilon = bad}), HasSubstr("adamw.epsilon"));
    EXPECT_THAT(error(LambOptions{.weight_decay = bad}), HasSubstr("lamb.weight_decay"));
    EXPECT_THAT(error(LambOptions{.epsilon = bad}), HasSubstr("lamb.epsilon"));
    EXPECT_THAT(error(LionOptions{.weight_decay = bad}), HasSubstr("lion.weight_decay"));
    EXPECT_THAT(error(AdagradOptions{.weight_decay = bad}), HasSubstr("adagrad.weight_decay"));
    EXPECT_THAT(error(AdagradOptions{.epsilon = bad}), HasSubstr("adagrad.epsilon"));
    EXPECT_THAT(error(AdagradOptions{.learning_rate_decay = bad}),
                HasSubstr("adagrad.learning_rate_decay"));
    EXPECT_THAT(error(AdagradOptions{.initial_accumulator = bad}),
                HasSubstr("adagrad.initial_accumulator"));
  }
  EXPECT_THAT(error(AdamWOptions{.epsilon = 0}), HasSubstr("adamw.epsilon"));
  EXPECT_THAT(error(AdagradOptions{.epsilon = 1e-40}), HasSubstr("adagrad.epsilon"));
  EXPECT_THAT(error(SgdOptions{.nesterov = true}), HasSubstr("sgd.nesterov"));
}

}  // namespace
}  // namespace muster
