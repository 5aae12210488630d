// Factories of the update rules, one file each (sgd_rule.cc, adamw_rule.cc). Internal to state/:
// use UpdateRule::Create, which validates first.
#ifndef MUSTER_STATE_UPDATE_RULES_H_
#define MUSTER_STATE_UPDATE_RULES_H_

#include <memory>

#include "state/update_rule.h"

namespace muster::internal {

absl::Status ValidateSgd(const SgdOptions& options);
absl::Status ValidateAdamW(const AdamWOptions& options);

// Require: valid options.
std::unique_ptr<UpdateRule> NewSgdRule(const SgdOptions& options, const Layout& layout);
std::unique_ptr<UpdateRule> NewAdamWRule(const AdamWOptions& options, const Layout& layout);

// INVALID_ARGUMENT naming `field` unless low <= value < high and value is finite.
absl::Status CheckOption(absl::string_view field, double value, double low, double high);

}  // namespace muster::internal

#endif  // MUSTER_STATE_UPDATE_RULES_H_
