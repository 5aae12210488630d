// The options of the update rules (optimizers), each with its formula. Plain values.
//
// In the formulas g = gradient * gradient_scale, k counts the updates from 1, and weight_decay is
// that of the tensor (0 where the layout exempts it).
#ifndef MUSTER_STATE_UPDATE_RULE_OPTIONS_H_
#define MUSTER_STATE_UPDATE_RULE_OPTIONS_H_

#include <string>
#include <variant>

#include "absl/status/status.h"
#include "base/job_spec.h"

namespace muster {

// torch.optim.SGD with dampening 0. State, if momentum > 0: "momentum_buffer".
//   g = g + weight_decay * p;  m = momentum * m + g
//   p = p - learning_rate * (nesterov ? g + momentum * m : m)
struct SgdOptions {
  double momentum = 0;    // in [0, 1)
  bool nesterov = false;  // needs momentum > 0
  double weight_decay = 0;
};

// torch.optim.AdamW: Loshchilov and Hutter, "Decoupled Weight Decay Regularization", ICLR 2019,
// algorithm 2. State: "exp_avg", "exp_avg_sq".
//   p = p * (1 - learning_rate * weight_decay)
//   m = beta1 * m + (1 - beta1) * g;  v = beta2 * v + (1 - beta2) * g * g
//   p = p - learning_rate / (1 - beta1^k) * m / (sqrt(v) / sqrt(1 - beta2^k) + epsilon)
struct AdamWOptions {
  double beta1 = 0.9;     // in [0, 1)
  double beta2 = 0.999;   // in [0, 1)
  double epsilon = 1e-8;  // > 0
  double weight_decay = 0.01;
};

// You et al., "Large Batch Optimization for Deep Learning: Training BERT in 76 minutes", ICLR 2020,
// algorithm 2, with phi the identity. State: "exp_avg", "exp_avg_sq".
//   m and v as above;  u = m / (1 - beta1^k) / (sqrt(v) / sqrt(1 - beta2^k) + epsilon)
//                        + weight_decay * p
//   p = p - learning_rate * ratio * u
// `ratio` is |p| / |u|, norms of the whole tensor, and 1 where either is 0. As in the authors' own
// program, tensors that the model exempts from decay (biases, norms: TensorSpec::decay) have ratio
// 1 unless `always_adapt`.
struct LambOptions {
  double beta1 = 0.9;     // in [0, 1)
  double beta2 = 0.999;   // in [0, 1)
  double epsilon = 1e-6;  // > 0
  bool always_adapt = false;
  double weight_decay = 0.01;
};

// Chen et al., "Symbolic Discovery of Optimization Algorithms", NeurIPS 2023, algorithm 2. State:
// "exp_avg".
//   p = p * (1 - learning_rate * weight_decay)
//   p = p - learning_rate * sign(beta1 * m + (1 - beta1) * g), with sign(0) = 0
//   m = beta2 * m + (1 - beta2) * g
struct LionOptions {
  double beta1 = 0.9;   // in [0, 1)
  double beta2 = 0.99;  // in [0, 1)
  double weight_decay = 0;
};

// torch.optim.Adagrad: Duchi, Hazan, Singer, "Adaptive Subgradient Methods for Online Learning and
// Stochastic Optimization", JMLR 12 (2011). State: "sum", which counts as initial_accumulator
// before the first update.
//   g = g + weight_decay * p;  s = s + g * g
//   p = p - learning_rate / (1 + (k - 1) * learning_rate_decay) * g / (sqrt(s) + epsilon)
struct AdagradOptions {
  double learning_rate_decay = 0;  // >= 0
  double initial_accumulator = 0;  // >= 0
  double epsilon = 1e-10;          // > 0
  double weight_decay = 0;
};

using UpdateRuleOptions =
    std::variant<SgdOptions, AdamWOptions, LambOptions, LionOptions, AdagradOptions>;

// INVALID_ARGUMENT names the field, what it must be and what it is.
absl::Status Validate(const UpdateRuleOptions& options);

// The options of the rule that a job asks for.
UpdateRuleOptions RuleOptionsOf(const OptimizerSpec& spec);

// Every setting of `spec` that changes what a rule computes, parameter groups included, as text:
// equal for equal settings only. For fingerprints.
std::string Describe(const OptimizerSpec& spec);

}  // namespace muster

#endif  // MUSTER_STATE_UPDATE_RULE_OPTIONS_H_
