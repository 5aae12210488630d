// The contract of a step over shards (state/update_rule.h): whoever holds which part, the bits are
// those of one holder of everything.
#include <cmath>
#include <limits>

#include "gtest/gtest.h"
#include "state/clip_norm.h"
#include "state/step_scalars.h"
#include "tests/state/update_rule_util.h"

namespace muster {
namespace {

constexpr int kSteps = 20;
constexpr int kSkippedStep = 7;     // a NaN where it counts
constexpr int kFrozenNanStep = 11;  // one where it does not
constexpr double kMaxNorm = 0.35;
constexpr int64_t kSamples = 64;

using Words = std::vector<int64_t>;

void AddWords(absl::Span<const int64_t> words, Words& sum) {
  sum.resize(words.size());
  for (size_t i = 0; i < words.size(); ++i) sum[i] += words[i];
}

// The summed gradient of a step; large in some steps, so that it is clipped.
std::vector<float> GradientOf(const Layout& layout, int step) {
  std::vector<float> gradient = RandomValues(layout, 1000 + step);
  for (float& value : gradient) value *= step % 3 == 0 ? 1.0f : 0.1f;
  const float nan = std::numeric_limits<float>::quiet_NaN();
  if (step == kSkippedStep) gradient[layout.tensors()[4].offset + 3] = nan;
  if (step == kFrozenNanStep) gradient[layout.tensors()[5].offset + 3] = nan;
  return gradient;
}

// A range on its holder: arrays of exactly its elements.
struct Shard {
  Range range;
  std::vector<float> parameters, gradient;
  RuleState state;  // the slots alone

  Shard(Range range, const RuleState& whole, const std::vector<float>& whole_gradient)
      : range(range), parameters(Part(whole.parameters)), gradient(Part(whole_gradient)) {
    for (const auto& slot : whole.slots) state.slots.push_back(Part(slot));
  }
  std::vector<float> Part(const std::vector<float>& whole) const {
    return {whole.begin() + range.offset, whole.begin() + range.end()};
  }
  std::vector<absl::Span<float>> slots() { return SlotsOf(state, {0, range.count}); }
  void PutInto(RuleState& whole) const {
    std::copy(parameters.begin(), parameters.end(), whole.parameters.begin() + range.offset);
    for (size_t i = 0; i < state.slots.size(); ++i) {
      std::copy(state.slots[i].begin(), state.slots[i].end(),
                whole.slots[i].begin() + range.offset);
    }
  }
};

struct Outcome {
  std::vector<double> norms;  // of each step; NaN where it is skipped
  int clipped = 0;
  int updates = 0;
};

// Takes the steps with the space cut anew before each; every rank holds what `deal` gives it.
template <typename Deal>
Outcome Train(const UpdateRule& rule, const Layout& layout, RuleState& state, const Deal& deal) {
  Outcome outcome;
  for (int step = 1; step <= kSteps; ++step) {
    const std::vector<float> gradient = GradientOf(layout, step);
    std::vector<std::vector<Shard>> ranks;
    for (const std::vector<Range>& ranges : deal(step)) {
      ranks.emplace_back();
      for (const Range range : ranges) ranks.back().emplace_back(range, state, gradient);
    }

    Words norm_words;
    for (const auto& shards : ranks) {
      SquaredSum sum;
      for (const Shard& shard : shards) AddTrainedSquares(layout, shard.range, shard.gradient, sum);
      AddWords(sum.ToWords(), norm_words);
    }
    const SquaredSum sum = SquaredSum::FromWords(norm_words).value();
    if (!sum.finite()) {
      outcome.norms.push_back(-1);
      continue;
    }
    const GradientScale scale = ComputeGradientScale(sum.Value(), kSamples, kMaxNorm);
    outcome.norms.push_back(scale.norm);
    outcome.clipped += scale.clipped ? 1 : 0;
    UpdateScalars scalars{.learning_rate = 0.1 / step,
                          .gradient_scale = scale.scale,
                          .update_count = ++outcome.updates};

    Words factor_words;
    for (auto& shards : ranks) {
      TensorSums sums(rule.factor_count());
      for (Shard& shard : shards) {
        rule.Prepare(shard.range, scalars, shard.parameters, shard.gradient, shard.slots(), sums);
      }
      AddWords(sums.ToWords(), factor_words);
    }
    scalars.tensor_factors =
        rule.TensorFactors(TensorSums::FromWords(rule.factor_count(), factor_words).value());

    for (auto& shards : ranks) {
      for (Shard& shard : shards) {
        rule.Apply(shard.range, scalars, absl::MakeSpan(shard.parameters), shard.gradient,
                   shard.slots());
        shard.PutInto(state);
      }
    }
  }
  return outcome;
}

TEST(ShardedUpdateTest, TwentyStepsOverRandomShardsHaveTheBitsOfTheWhole) {
  const Layout layout = GroupedLayout();
  for (const UpdateRuleOptions& options : AllRules()) {
    const auto rule = UpdateRule::Create(options, layout).value();
    RuleState whole = FirstState(layout, *rule);
    const Outcome expected = Train(*rule, layout, whole, [&](int) {
      return std::vector<std::vector<Range>>{{{0, layout.padded_count()}}};
    });
    EXPECT_EQ(expected.updates, kSteps - 1);
    EXPECT_EQ(expected.norms[kSkippedStep - 1], -1);
    EXPECT_GT(expected.clipped, 2);
    EXPECT_LT(expected.clipped, kSteps - 2);

    for (uint64_t seed = 0; seed < 8; ++seed) {
      const RandomStream stream(seed, "deal");
      RuleState sharded = FirstState(layout, *rule);
      const Outcome outcome = Train(*rule, layout, sharded, [&](int step) {
        // Another number of ranks in each step; some hold nothing.
        std::vector<std::vector<Range>> ranks(1 + stream.Below(step, 9));
        const int64_t most = 1 + static_cast<int64_t>(stream.Below(1000 + step, 1500));
        uint64_t draw = 10'000 * step;
        for (const Range range : RandomCut(layout.padded_count(), most, 100 * seed + step)) {
          ranks[stream.Below(draw++, ranks.size())].push_back(range);
        }
        return ranks;
      });
      EXPECT_TRUE(sharded == whole) << rule->name() << " " << seed;
      EXPECT_EQ(outcome.norms, expected.norms) << rule->name() << " " << seed;
      EXPECT_EQ(outcome.clipped, expected.clipped);
    }
  }
}

TEST(TensorSumsTest, WordsAndMergeCombineParts) {
  TensorSums a(2), b(2), both(2);
  a[0].parameters.Add({3.0f});
  b[0].parameters.Add({4.0f});
  b[1].update.Add({0.5f});
  both[0].parameters.Add({3.0f, 4.0f});
  both[1].update.Add({0.5f});
  Words words;
  AddWords(a.ToWords(), words);
  AddWords(b.ToWords(), words);
  EXPECT_EQ(TensorSums::FromWords(2, words).value().ToWords(), both.ToWords());
  a.Merge(b);
  EXPECT_EQ(a.ToWords(), both.ToWords());
  EXPECT_EQ(a[0].parameters.Value(), 25);
  EXPECT_EQ(a[1].update.Value(), 0.25);

  const auto rejects = [](int count, absl::Span<const int64_t> words) {
    return TensorSums::FromWords(count, words).status().code() ==
           absl::StatusCode::kInvalidArgument;
  };
  EXPECT_TRUE(rejects(1, words));
  EXPECT_TRUE(rejects(3, words));
  words[30] = -1;
  EXPECT_TRUE(rejects(2, words));
  EXPECT_EQ(TensorSums::FromWords(0, {}).value().count(), 0);
}

TEST(ClipNormTest, CountsEverythingButFrozenTensors) {
  const Layout layout = GroupedLayout();
  const std::vector<float> gradient = RandomValues(layout, 5);
  double expected = 0;
  for (const Tensor& tensor : layout.tensors()) {
    if (tensor.spec.frozen) continue;
    for (int64_t i = 0; i < tensor.count; ++i) {
      expected += double{gradient[tensor.offset + i]} * gradient[tensor.offset + i];
    }
  }
  SquaredSum whole;
  AddTrainedSquares(layout, {0, layout.padded_count()}, gradient, whole);
  EXPECT_NEAR(whole.Value() / expected, 1, 1e-13);
  SquaredSum cut;
  for (const Range range : RandomCut(layout.padded_count(), 70, 1)) {
    AddTrainedSquares(layout, range,
                      absl::MakeConstSpan(gradient).subspan(range.offset, range.count), cut);
  }
  EXPECT_EQ(cut.ToWords(), whole.ToWords());
}

}  // namespace
}  // namespace muster
