#include "state/update_rule_options.h"

#include <type_traits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "state/update_rules.h"

namespace muster {
namespace {

template <typename... Functions>
struct Overloaded : Functions... {
  using Functions::operator()...;
};
template <typename... Functions>
Overloaded(Functions...) -> Overloaded<Functions...>;

}  // namespace

absl::Status Validate(const UpdateRuleOptions& options) {
  return std::visit(
      Overloaded{[](const SgdOptions& sgd) { return internal::ValidateSgd(sgd); },
                 [](const AdamWOptions& adamw) { return internal::ValidateAdamW(adamw); },
                 [](const LambOptions& lamb) { return internal::ValidateLamb(lamb); },
                 [](const LionOptions& lion) { return internal::ValidateLion(lion); },
                 [](const AdagradOptions& adagrad) { return internal::ValidateAdagrad(adagrad); }},
      options);
}

UpdateRuleOptions RuleOptionsOf(const OptimizerSpec& spec) {
  const double weight_decay = spec.weight_decay;
  return std::visit(
      Overloaded{[&](const SgdSpec& sgd) -> UpdateRuleOptions {
                   return SgdOptions{.momentum = sgd.momentum,
                                     .nesterov = sgd.nesterov,
                                     .weight_decay = weight_decay};
                 },
                 [&](const AdamWSpec& adamw) -> UpdateRuleOptions {
                   return AdamWOptions{.beta1 = adamw.beta1,
                                       .beta2 = adamw.beta2,
                                       .epsilon = adamw.epsilon,
                                       .weight_decay = weight_decay};
                 },
                 [&](const LambSpec& lamb) -> UpdateRuleOptions {
                   return LambOptions{.beta1 = lamb.beta1,
                                      .beta2 = lamb.beta2,
                                      .epsilon = lamb.epsilon,
                                      .always_adapt = lamb.always_adapt,
                                      .weight_decay = weight_decay};
                 },
                 [&](const LionSpec& lion) -> UpdateRuleOptions {
                   return LionOptions{
                       .beta1 = lion.beta1, .beta2 = lion.beta2, .weight_decay = weight_decay};
                 },
                 [&](const AdagradSpec& adagrad) -> UpdateRuleOptions {
                   return AdagradOptions{.learning_rate_decay = adagrad.learning_rate_decay,
                                         .initial_accumulator = adagrad.initial_accumulator,
                                         .epsilon = adagrad.epsilon,
                                         .weight_decay = weight_decay};
                 }},
      spec.rule);
}

std::string Describe(const OptimizerSpec& spec) {
  std::string text = std::visit(
      Overloaded{[](const SgdSpec& sgd) {
                   return absl::StrFormat("sgd %.17g %d", sgd.momentum, sgd.nesterov);
                 },
                 [](const AdamWSpec& adamw) {
                   return absl::StrFormat("adamw %.17g %.17g %.17g", adamw.beta1, adamw.beta2,
                                          adamw.epsilon);
                 },
                 [](const LambSpec& lamb) {
                   return absl::StrFormat("lamb %.17g %.17g %.17g %d", lamb.beta1, lamb.beta2,
                                          lamb.epsilon, lamb.always_adapt);
                 },
                 [](const LionSpec& lion) {
                   return absl::StrFormat("lion %.17g %.17g", lion.beta1, lion.beta2);
                 },
                 [](const AdagradSpec& adagrad) {
                   return absl::StrFormat("adagrad %.17g %.17g %.17g", adagrad.learning_rate_decay,
                                          adagrad.initial_accumulator, adagrad.epsilon);
                 }},
      spec.rule);
  absl::StrAppendFormat(&text, " %.17g", spec.weight_decay);
  for (const ParameterGroupSpec& group : spec.groups) {
    absl::StrAppend(&text, " group");
    for (const std::string& pattern : group.tensors) {
      absl::StrAppend(&text, " ", pattern.size(), ":", pattern);
    }
    if (group.weight_decay.has_value()) {
      absl::StrAppendFormat(&text, " decay %.17g", *group.weight_decay);
    }
    absl::StrAppendFormat(&text, " rate %.17g frozen %d", group.learning_rate_scale, group.frozen);
  }
  return text;
}

}  // namespace muster
