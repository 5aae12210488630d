#include "state/mixed_precision.h"

#include "base/float16.h"
#include "gtest/gtest.h"
#include "hwy/targets.h"
#include "state/clip_norm.h"
#include "tests/state/update_rule_util.h"

namespace muster {
namespace {

constexpr int kUpdates = 4;

uint16_t Narrow(DType dtype, float value) {
  return dtype == DType::kF16 ? F32ToF16(value) : F32ToBF16(value);
}
float Widen(DType dtype, uint16_t value) {
  return dtype == DType::kF16 ? F16ToF32(value) : BF16ToF32(value);
}

std::vector<uint16_t> HalfGradient(const Layout& layout, DType dtype, int update) {
  std::vector<uint16_t> gradient;
  for (const float value : RandomValues(layout, 50 + update)) {
    gradient.push_back(Narrow(dtype, value));
  }
  return gradient;
}

UpdateScalars ScalarsOf(int update) {
  return {.learning_rate = 0.1 / update, .gradient_scale = 0.05, .update_count = update};
}

struct MixedState {
  RuleState master;
  std::vector<uint16_t> parameters;
};

MixedPrecisionRange RangeOf(MixedState& state, DType dtype, Range range,
                            const std::vector<uint16_t>& gradient,
                            const std::vector<absl::Span<float>>& slots) {
  return {.range = range,
          .dtype = dtype,
          .gradient = absl::MakeConstSpan(gradient).subspan(range.offset, range.count),
          .parameters = absl::MakeSpan(state.parameters).subspan(range.offset, range.count),
          .master = absl::MakeSpan(state.master.parameters).subspan(range.offset, range.count),
          .state = slots};
}

// Range by range; returns the squared norm of the last gradient.
MixedState Train(const UpdateRule& rule, const Layout& layout, DType dtype, int64_t most,
                 SquaredSum* last_norm = nullptr) {
  MixedState state{FirstState(layout, rule), std::vector<uint16_t>(layout.padded_count())};
  for (int update = 1; update <= kUpdates; ++update) {
    const std::vector<uint16_t> gradient = HalfGradient(layout, dtype, update);
    const std::vector<Range> ranges = RandomCut(layout.padded_count(), most, update);
    UpdateScalars scalars = ScalarsOf(update);
    TensorSums sums(rule.factor_count());
    for (const Range range : ranges) {
      const auto slots = SlotsOf(state.master, range);
      const MixedPrecisionRange part = RangeOf(state, dtype, range, gradient, slots);
      if (update == kUpdates && last_norm != nullptr) AddTrainedSquares(layout, part, *last_norm);
      Prepare(rule, part, scalars, sums);
    }
    scalars.tensor_factors = rule.TensorFactors(sums);
    for (const Range range : ranges) {
      const auto slots = SlotsOf(state.master, range);
      Apply(rule, RangeOf(state, dtype, range, gradient, slots), scalars);
    }
  }
  return state;
}

class MixedPrecisionTest : public testing::TestWithParam<DType> {};

TEST_P(MixedPrecisionTest, IsTheRuleInSinglePrecisionAndOneRounding) {
  const Layout layout = GroupedLayout(/*scale=*/8);  // larger than a block
  const Range whole = {0, layout.padded_count()};
  for (const UpdateRuleOptions& options : AllRules()) {
    const auto rule = UpdateRule::Create(options, layout).value();
    RuleState expected = FirstState(layout, *rule);
    std::vector<float> gradient(layout.padded_count());
    for (int update = 1; update <= kUpdates; ++update) {
      const std::vector<uint16_t> half = HalfGradient(layout, GetParam(), update);
      for (int64_t i = 0; i < whole.count; ++i) gradient[i] = Widen(GetParam(), half[i]);
      UpdateRanges(*rule, {whole}, ScalarsOf(update), gradient, expected);
    }
    SquaredSum expected_norm, norm;
    AddTrainedSquares(layout, whole, gradient, expected_norm);

    for (const int64_t most : {int64_t{3'001}, 4 * whole.count}) {
      norm = SquaredSum();
      const MixedState state = Train(*rule, layout, GetParam(), most, &norm);
      EXPECT_TRUE(state.master == expected) << rule->name() << " " << most;
      EXPECT_EQ(norm.ToWords(), expected_norm.ToWords());
      for (int64_t i = 0; i < whole.count; ++i) {
        ASSERT_EQ(state.parameters[i], Narrow(GetParam(), expected.parameters[i]))
            << rule->name() << " " << i;
      }
    }
  }
}

TEST_P(MixedPrecisionTest, EverySimdTargetGivesTheSameBits) {
  const Layout layout = GroupedLayout();
  for (const UpdateRuleOptions& options : AllRules()) {
    const auto rule = UpdateRule::Create(options, layout).value();
    const MixedState best = Train(*rule, layout, GetParam(), 200);
    for (int64_t rest = hwy::SupportedTargets(); rest != 0; rest &= rest - 1) {
      hwy::SetSupportedTargetsForTest(rest & -rest);
      const MixedState state = Train(*rule, layout, GetParam(), 200);
      EXPECT_TRUE(state.master == best.master) << rule->name();
      EXPECT_EQ(state.parameters, best.parameters) << rule->name();
    }
    hwy::SetSupportedTargetsForTest(0);
  }
}

// What master weights are for: steps too small for the 16-bit parameter add up.
TEST_P(MixedPrecisionTest, SmallStepsAddUp) {
  const Layout layout = Layout::Create({{.name = "w", .shape = {64}}}, 64).value();
  const auto rule = UpdateRule::Create(SgdOptions{}, layout).value();
  MixedState state{FirstState(layout, *rule), std::vector<uint16_t>(64)};
  state.master.parameters.assign(64, 1.0f);
  const std::vector<uint16_t> gradient(64, Narrow(GetParam(), -1));
  const MixedPrecisionRange range = RangeOf(state, GetParam(), {0, 64}, gradient, {});
  RoundParameters(range);
  EXPECT_EQ(state.parameters, std::vector<uint16_t>(64, Narrow(GetParam(), 1)));
  // 1 has a neighbour at 1 + 2^-7 (bf16) or 1 + 2^-10 (f16).
  const double step = GetParam() == DType::kBF16 ? 0x1p-12 : 0x1p-15;
  for (int update = 1; update <= 16; ++update) {
    Apply(*rule, range, {.learning_rate = step, .update_count = update});
    EXPECT_EQ(state.parameters[0], Narrow(GetParam(), 1)) << "a tie goes to even";
  }
  Apply(*rule, range, {.learning_rate = step, .update_count = 17});
  EXPECT_EQ(Widen(GetParam(), state.parameters[0]), 1 + 32 * step);
}

INSTANTIATE_TEST_SUITE_P(Types, MixedPrecisionTest, testing::Values(DType::kBF16, DType::kF16),
                         [](const auto& info) { return std::string(Name(info.param)); });

}  // namespace
}  // namespace muster
