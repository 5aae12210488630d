// Update rules (optimizers): how a range of parameters moves, given its summed gradient.
//
// A rule holds options and what the layout says of each tensor (weight decay, learning-rate scale,
// frozen), and no training state. The caller owns parameters and optimizer state, `state_slots()`
// flat float arrays of the same space, zero before the first update, and so can snapshot,
// checkpoint, shard and send them.
//
// Each element's result depends only on that element and the scalars, in fixed IEEE
// single-precision operations without contraction: the bits are the same however the space is cut
// and whatever the SIMD target. A state value below the least normal float (1.2e-38) becomes zero.
// Padding and frozen tensors are neither read nor written; their state, if there is any, stays
// zero.
//
// A step over shards, the same on every rank, for every rule, with or without clipping:
//   1. The gradient of each shard is reduced.
//   2. Each element's square is added by one rank (AddTrainedSquares, state/clip_norm.h); the words
//      of the sums, samples and the finite flag are summed over ranks. Where the result is not
//      finite the step changes no parameter, no state and not update_count.
//   3. Everyone computes the scalars from these sums (ComputeGradientScale, LearningRate).
//   4. Layer-wise rules only (factor_count() > 0): each element is in one rank's Prepare; the words
//      of the TensorSums are summed over ranks; everyone computes tensor_factors from them.
//   5. Every holder of a range, replicas included, applies the update to it.
// Steps 2 and 4 are the commit: Prepare changes nothing, so that the step can still be dropped, and
// what step 5 needs beside the gradient (record, factors) fits in a message, so that it can be
// repeated elsewhere. Without clipping the scale does not depend on the norm, and both sums can
// travel together.
//
// Immutable after construction; calls may run on several threads for disjoint ranges.
#ifndef MUSTER_STATE_UPDATE_RULE_H_
#define MUSTER_STATE_UPDATE_RULE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "state/layout.h"
#include "state/range.h"
#include "state/tensor_sums.h"
#include "state/update_rule_options.h"

namespace muster {

// The same on every replica (state/step_scalars.h).
struct UpdateScalars {
  double learning_rate = 0;
  double gradient_scale = 1;  // ComputeGradientScale().scale
  int64_t update_count = 1;   // updates applied to this state, this one included; >= 1
  // UpdateRule::TensorFactors() of the complete sums; empty for rules without them. Not read by
  // Prepare.
  std::vector<double> tensor_factors;
};

class UpdateRule {
 public:
  // What the rule needs of `layout` is copied.
  static absl::StatusOr<std::unique_ptr<UpdateRule>> Create(const UpdateRuleOptions& options,
                                                            const Layout& layout);

  virtual ~UpdateRule() = default;
  UpdateRule(const UpdateRule&) = delete;
  UpdateRule& operator=(const UpdateRule&) = delete;

  // "sgd", "adamw", "lamb", "lion", "adagrad".
  virtual absl::string_view name() const = 0;
  // Names of the state arrays, in slot order: those of PyTorch's state dictionaries, for
  // checkpoints.
  virtual const std::vector<std::string>& slot_names() const = 0;
  int state_slots() const { return static_cast<int>(slot_names().size()); }

  // How many tensors have a factor of their own that depends on the whole tensor. 0 for elementwise
  // rules, whose callers go straight to Apply.
  int factor_count() const { return factor_count_; }

  // Adds to `sums` what the update of the elements of `range` contributes. Spans as in Apply;
  // nothing but `sums` changes. Does nothing for elementwise rules.
  void Prepare(Range range, const UpdateScalars& scalars, absl::Span<const float> parameters,
               absl::Span<const float> gradient, absl::Span<const absl::Span<float>> state,
               TensorSums& sums) const;

  // The factors, in the order of the layout, from sums over the whole space (NormRatios).
  std::vector<double> TensorFactors(const TensorSums& sums) const;

  // Updates the elements of `range`. Every span holds exactly these elements (element 0 of the
  // span is element range.offset of the flat space). `gradient` is the sum over all contributors.
  // Requires: range lies in the layout, sizes equal range.count, state.size() == state_slots(),
  // spans do not overlap, scalars.tensor_factors.size() == factor_count().
  void Apply(Range range, const UpdateScalars& scalars, absl::Span<float> parameters,
             absl::Span<const float> gradient, absl::Span<const absl::Span<float>> state) const;

 protected:
  enum class Adapts : uint8_t { kNothing, kDecaying, kEverything };

  // `weight_decay` is that of tensors that decay and whose group has none of its own; `adapts` says
  // which tensors have a factor.
  UpdateRule(const Layout& layout, double weight_decay, Adapts adapts = Adapts::kNothing);

  // The scalars of one tensor.
  struct RunScalars {
    double learning_rate = 0;  // times the group's scale and the tensor's factor
    double weight_decay = 0;
    double gradient_scale = 1;
    int64_t update_count = 1;
  };

  // Some elements of one tensor.
  virtual void ApplyRun(const RunScalars& scalars, int64_t count, float* parameters,
                        const float* gradient, absl::Span<float* const> state) const = 0;
  // Adds the squares of the update to `sum`. Only for rules with factors.
  virtual void PrepareRun(const RunScalars& scalars, int64_t count, const float* parameters,
                          const float* gradient, absl::Span<float* const> state,
                          SquaredSum& sum) const;

 private:
  // A tensor that trains.
  struct TensorRun {
    Range range;
    double weight_decay = 0;
    double learning_rate_scale = 1;
    int factor = -1;  // index of its factor
  };

  // Calls `visit` for the part of each tensor that lies in `range`.
  void ForEachRun(Range range,
                  absl::FunctionRef<void(const TensorRun& run, Range part)> visit) const;
  void CheckSpans(Range range, const UpdateScalars& scalars, size_t parameters, size_t gradient,
                  absl::Span<const absl::Span<float>> state) const;

  std::vector<TensorRun> runs_;  // in order of offset
  int64_t padded_count_ = 0;
  int factor_count_ = 0;
};

}  // namespace muster

#endif  // MUSTER_STATE_UPDATE_RULE_H_
