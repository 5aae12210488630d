// Update rules (optimizers): how a range of parameters moves, given its summed gradient.
//
// A rule holds options and the weight-decay groups of a layout, and no training state. The caller
// owns parameters and optimizer state, `state_slots()` flat float arrays of the same space, zero
// before the first update, and so can snapshot, checkpoint, shard and send them.
//
// Each element's result depends only on that element and the scalars, in fixed IEEE
// single-precision operations without contraction: the bits are the same however the space is cut
// and whatever the SIMD target. A state value below the least normal float (1.2e-38) becomes zero.
// Padding (zero parameter, gradient and state) stays zero.
//
// Immutable after construction; Apply may run on several threads for disjoint ranges.
#ifndef MUSTER_STATE_UPDATE_RULE_H_
#define MUSTER_STATE_UPDATE_RULE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "state/layout.h"
#include "state/range.h"

namespace muster {

// torch.optim.SGD with dampening 0. State, if momentum > 0: "momentum_buffer".
//   g = gradient * scale + weight_decay * p;  m = momentum * m + g
//   p = p - learning_rate * (nesterov ? g + momentum * m : m)
struct SgdOptions {
  double momentum = 0;    // in [0, 1)
  bool nesterov = false;  // needs momentum > 0
  double weight_decay = 0;
};

// torch.optim.AdamW: Loshchilov and Hutter, "Decoupled Weight Decay Regularization", ICLR 2019,
// algorithm 2. State: "exp_avg", "exp_avg_sq".
//   p = p * (1 - learning_rate * weight_decay);  g = gradient * scale
//   m = beta1 * m + (1 - beta1) * g;  v = beta2 * v + (1 - beta2) * g * g
//   p = p - learning_rate / (1 - beta1^k) * m / (sqrt(v) / sqrt(1 - beta2^k) + epsilon)
struct AdamWOptions {
  double beta1 = 0.9;     // in [0, 1)
  double beta2 = 0.999;   // in [0, 1)
  double epsilon = 1e-8;  // > 0
  double weight_decay = 0.01;
};

using UpdateRuleOptions = std::variant<SgdOptions, AdamWOptions>;

// INVALID_ARGUMENT names the field, what it must be and what it is.
absl::Status Validate(const UpdateRuleOptions& options);

// The same on every replica (state/step_scalars.h).
struct UpdateScalars {
  double learning_rate = 0;
  double gradient_scale = 1;  // ComputeGradientScale().scale
  int64_t update_count = 1;   // updates applied to this state, this one included; >= 1
};

class UpdateRule {
 public:
  // `layout` says which elements decay (TensorSpec::decay); it is copied from, not kept.
  static absl::StatusOr<std::unique_ptr<UpdateRule>> Create(const UpdateRuleOptions& options,
                                                            const Layout& layout);

  virtual ~UpdateRule() = default;
  UpdateRule(const UpdateRule&) = delete;
  UpdateRule& operator=(const UpdateRule&) = delete;

  // "sgd", "adamw".
  virtual absl::string_view name() const = 0;
  // Names of the state arrays, in slot order: PyTorch's, for checkpoints.
  virtual const std::vector<std::string>& slot_names() const = 0;
  int state_slots() const { return static_cast<int>(slot_names().size()); }

  // Updates the elements of `range`. Every span holds exactly these elements (element 0 of the
  // span is element range.offset of the flat space). `gradient` is the sum over all contributors.
  // Requires: range lies in the layout, sizes equal range.count, state.size() == state_slots(),
  // spans do not overlap.
  void Apply(Range range, const UpdateScalars& scalars, absl::Span<float> parameters,
             absl::Span<const float> gradient, absl::Span<const absl::Span<float>> state) const;

 protected:
  explicit UpdateRule(const Layout& layout);

  // One run of elements that share the decay flag.
  virtual void ApplyRun(bool decay, const UpdateScalars& scalars, int64_t count, float* parameters,
                        const float* gradient, absl::Span<float* const> state) const = 0;

 private:
  // The flat space cut where the decay flag changes; padding joins the run before it.
  struct DecayRun {
    Range range;
    bool decay = false;
  };
  std::vector<DecayRun> runs_;
  int64_t padded_count_ = 0;
};

}  // namespace muster

#endif  // MUSTER_STATE_UPDATE_RULE_H_
