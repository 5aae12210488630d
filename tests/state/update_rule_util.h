// What the tests of update rules share: a layout with groups, every rule, states of random values,
// and one step over any cut of the space.
#ifndef MUSTER_TESTS_STATE_UPDATE_RULE_UTIL_H_
#define MUSTER_TESTS_STATE_UPDATE_RULE_UTIL_H_

#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "base/random.h"
#include "state/update_rule.h"

namespace muster {

// Tensors with and without decay in turn, of sizes that leave padding and vector tails. Two are
// frozen, others have settings of their own.
inline Layout GroupedLayout(int scale = 1) {
  std::vector<TensorSpec> tensors;
  for (int i = 0; i < 9; ++i) {
    tensors.push_back({.name = absl::StrCat("t", i),
                       .shape = {(61 + 50 * i) * scale},
                       .block = i / 2,
                       .decay = i % 3 != 1});
  }
  tensors[1].weight_decay = 0.05;
  tensors[2].frozen = true;
  tensors[3].learning_rate_scale = 0.5;
  tensors[5].frozen = true;
  tensors[6].weight_decay = 0;
  tensors[8].learning_rate_scale = 3;
  tensors[8].weight_decay = 0.3;
  return Layout::Create(std::move(tensors), 256).value();
}

inline std::vector<UpdateRuleOptions> AllRules() {
  return {SgdOptions{},
          SgdOptions{.weight_decay = 0.1},
          SgdOptions{.momentum = 0.9, .weight_decay = 0.1},
          SgdOptions{.momentum = 0.8, .nesterov = true, .weight_decay = 0.05},
          AdamWOptions{},
          AdamWOptions{.beta1 = 0.8, .beta2 = 0.95, .epsilon = 1e-6, .weight_decay = 0.2},
          LambOptions{},
          LambOptions{.beta1 = 0.8, .beta2 = 0.95, .always_adapt = true, .weight_decay = 0.2},
          LionOptions{},
          LionOptions{.beta1 = 0.95, .beta2 = 0.98, .weight_decay = 0.3},
          AdagradOptions{},
          AdagradOptions{.learning_rate_decay = 0.1,
                         .initial_accumulator = 0.2,
                         .epsilon = 1e-6,
                         .weight_decay = 0.05}};
}

// What belongs to one copy of the training state.
struct RuleState {
  std::vector<float> parameters;
  std::vector<std::vector<float>> slots;
};

// Bit by bit: tells -0 from 0.
inline bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}
inline bool operator==(const RuleState& a, const RuleState& b) {
  if (!SameBits(a.parameters, b.parameters) || a.slots.size() != b.slots.size()) return false;
  for (size_t i = 0; i < a.slots.size(); ++i) {
    if (!SameBits(a.slots[i], b.slots[i])) return false;
  }
  return true;
}

// Random in tensors, zero in padding.
inline std::vector<float> RandomValues(const Layout& layout, uint64_t seed) {
  const RandomStream stream(seed, "values");
  std::vector<float> values(layout.padded_count());
  for (const Tensor& tensor : layout.tensors()) {
    for (int64_t i = tensor.offset; i < tensor.offset + tensor.count; ++i) {
      values[i] = static_cast<float>(stream.Normal(i));
    }
  }
  return values;
}

inline RuleState FirstState(const Layout& layout, const UpdateRule& rule) {
  return {RandomValues(layout, 1),
          std::vector<std::vector<float>>(rule.state_slots(),
                                          std::vector<float>(layout.padded_count()))};
}

// The elements of `range` of every slot.
inline std::vector<absl::Span<float>> SlotsOf(RuleState& state, Range range) {
  std::vector<absl::Span<float>> slots;
  for (auto& slot : state.slots) {
    slots.push_back(absl::MakeSpan(slot).subspan(range.offset, range.count));
  }
  return slots;
}

// Cuts [0, count) into ranges of fewer than `most` elements, some of them empty.
inline std::vector<Range> RandomCut(int64_t count, int64_t most, uint64_t seed) {
  const RandomStream stream(seed, "cut");
  std::vector<Range> ranges;
  uint64_t draw = 0;
  for (int64_t offset = 0; offset < count;) {
    const auto size = static_cast<int64_t>(stream.Below(draw++, most));
    ranges.push_back({offset, std::min(size, count - offset)});
    offset += ranges.back().count;
  }
  return ranges;
}

// One update of the whole space, range by range.
inline void UpdateRanges(const UpdateRule& rule, absl::Span<const Range> ranges,
                         UpdateScalars scalars, absl::Span<const float> gradient,
                         RuleState& state) {
  TensorSums sums(rule.factor_count());
  for (const Range range : ranges) {
    rule.Prepare(range, scalars,
                 absl::MakeConstSpan(state.parameters).subspan(range.offset, range.count),
                 gradient.subspan(range.offset, range.count), SlotsOf(state, range), sums);
  }
  scalars.tensor_factors = rule.TensorFactors(sums);
  for (const Range range : ranges) {
    rule.Apply(range, scalars, absl::MakeSpan(state.parameters).subspan(range.offset, range.count),
               gradient.subspan(range.offset, range.count), SlotsOf(state, range));
  }
}

}  // namespace muster

#endif  // MUSTER_TESTS_STATE_UPDATE_RULE_UTIL_H_
