// The published formulas of the update rules on one tensor in double precision, written as plainly
// as they are printed, to compare UpdateRule with.
#ifndef MUSTER_TESTS_STATE_UPDATE_RULE_ORACLE_H_
#define MUSTER_TESTS_STATE_UPDATE_RULE_ORACLE_H_

#include <cmath>
#include <vector>

#include "absl/types/span.h"
#include "state/layout.h"
#include "state/update_rule_options.h"

namespace muster {

class TensorOracle {
 public:
  TensorOracle(const UpdateRuleOptions& options, const TensorSpec& spec,
               absl::Span<const float> parameters)
      : options_(options),
        spec_(spec),
        p_(parameters.begin(), parameters.end()),
        m_(p_.size()),
        v_(p_.size()) {
    if (const auto* adagrad = std::get_if<AdagradOptions>(&options)) {
      v_.assign(p_.size(), adagrad->initial_accumulator);
    }
  }

  // `gradient` is already scaled; k counts updates from 1.
  void Update(const std::vector<double>& gradient, double learning_rate, int k) {
    if (spec_.frozen) return;
    std::visit(
        [&](const auto& rule) {
          const double decay = spec_.weight_decay.value_or(spec_.decay ? rule.weight_decay : 0.0);
          Step(rule, decay, gradient, learning_rate * spec_.learning_rate_scale, k);
        },
        options_);
  }

  const std::vector<double>& parameters() const { return p_; }

 private:
  using Gradient = std::vector<double>;

  void Step(const SgdOptions& sgd, double decay, const Gradient& gradient, double rate, int) {
    for (size_t i = 0; i < p_.size(); ++i) {
      const double g = gradient[i] + decay * p_[i];
      m_[i] = sgd.momentum * m_[i] + g;
      p_[i] -= rate * (sgd.nesterov ? g + sgd.momentum * m_[i] : m_[i]);
    }
  }

  void Step(const AdamWOptions& adamw, double decay, const Gradient& gradient, double rate, int k) {
    const std::vector<double> direction = AdamDirection(adamw, gradient, k);
    for (size_t i = 0; i < p_.size(); ++i) p_[i] -= rate * (direction[i] + decay * p_[i]);
  }

  void Step(const LambOptions& lamb, double decay, const Gradient& gradient, double rate, int k) {
    std::vector<double> update = AdamDirection(lamb, gradient, k);
    double parameters_norm = 0, update_norm = 0;
    for (size_t i = 0; i < p_.size(); ++i) {
      update[i] += decay * p_[i];
      parameters_norm += p_[i] * p_[i];
      update_norm += update[i] * update[i];
    }
    double ratio = 1;
    if ((lamb.always_adapt || spec_.decay) && parameters_norm > 0 && update_norm > 0) {
      ratio = std::sqrt(parameters_norm / update_norm);
    }
    for (size_t i = 0; i < p_.size(); ++i) p_[i] -= rate * ratio * update[i];
  }

  void Step(const LionOptions& lion, double decay, const Gradient& gradient, double rate, int) {
    for (size_t i = 0; i < p_.size(); ++i) {
      const double c = lion.beta1 * m_[i] + (1 - lion.beta1) * gradient[i];
      const double sign = c > 0 ? 1 : c < 0 ? -1 : 0;
      p_[i] -= rate * (sign + decay * p_[i]);
      m_[i] = lion.beta2 * m_[i] + (1 - lion.beta2) * gradient[i];
    }
  }

  void Step(const AdagradOptions& adagrad, double decay, const Gradient& gradient, double rate,
            int k) {
    for (size_t i = 0; i < p_.size(); ++i) {
      const double g = gradient[i] + decay * p_[i];
      v_[i] += g * g;
      p_[i] -= rate / (1 + (k - 1) * adagrad.learning_rate_decay) * g /
               (std::sqrt(v_[i]) + adagrad.epsilon);
    }
  }

  template <typename Options>
  std::vector<double> AdamDirection(const Options& options, const Gradient& gradient, int k) {
    std::vector<double> direction(p_.size());
    for (size_t i = 0; i < p_.size(); ++i) {
      m_[i] = options.beta1 * m_[i] + (1 - options.beta1) * gradient[i];
      v_[i] = options.beta2 * v_[i] + (1 - options.beta2) * gradient[i] * gradient[i];
      const double m_hat = m_[i] / (1 - std::pow(options.beta1, k));
      const double v_hat = v_[i] / (1 - std::pow(options.beta2, k));
      direction[i] = m_hat / (std::sqrt(v_hat) + options.epsilon);
    }
    return direction;
  }

  const UpdateRuleOptions options_;
  const TensorSpec spec_;
  std::vector<double> p_, m_, v_;
};

}  // namespace muster

#endif  // MUSTER_TESTS_STATE_UPDATE_RULE_ORACLE_H_
