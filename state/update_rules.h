// Factories of the update rules, one file each (sgd_rule.cc, ...). Internal to state/: use
// UpdateRule::Create, which validates first.
#ifndef MUSTER_STATE_UPDATE_RULES_H_
#define MUSTER_STATE_UPDATE_RULES_H_

#include <memory>

#include "state/update_rule.h"

namespace muster::internal {

absl::Status ValidateSgd(const SgdOptions& options);
absl::Status ValidateAdamW(const AdamWOptions& options);
absl::Status ValidateLamb(const LambOptions& options);
absl::Status ValidateLion(const LionOptions& options);
absl::Status ValidateAdagrad(const AdagradOptions& options);

// Require: valid options.
std::unique_ptr<UpdateRule> NewRule(const SgdOptions& options, const Layout& layout);
std::unique_ptr<UpdateRule> NewRule(const AdamWOptions& options, const Layout& layout);
std::unique_ptr<UpdateRule> NewRule(const LambOptions& options, const Layout& layout);
std::unique_ptr<UpdateRule> NewRule(const LionOptions& options, const Layout& layout);
std::unique_ptr<UpdateRule> NewRule(const AdagradOptions& options, const Layout& layout);

// INVALID_ARGUMENT naming `field` unless low <= value < high and value is finite.
absl::Status CheckOption(absl::string_view field, double value, double low, double high);
// The same unless value is finite and a normal number in single precision: an epsilon that vanished
// there would let an element without gradient divide 0 by 0.
absl::Status CheckEpsilon(absl::string_view field, double value);
// The same unless value >= 0 and finite.
absl::Status CheckWeightDecay(absl::string_view field, double value);

}  // namespace muster::internal

#endif  // MUSTER_STATE_UPDATE_RULES_H_
