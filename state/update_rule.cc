#include "state/update_rule.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/container/inlined_vector.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "state/update_rules.h"

namespace muster {
namespace internal {

absl::Status CheckOption(absl::string_view field, double value, double low, double high) {
  if (std::isfinite(value) && value >= low && value < high) return absl::OkStatus();
  const std::string limits = std::isinf(high) ? absl::StrFormat("of at least %g", low)
                                              : absl::StrFormat("in [%g, %g)", low, high);
  return absl::InvalidArgumentError(
      absl::StrFormat("%s: expected a finite number %s, got %g", field, limits, value));
}

}  // namespace internal

absl::Status Validate(const UpdateRuleOptions& options) {
  if (const auto* sgd = std::get_if<SgdOptions>(&options)) return internal::ValidateSgd(*sgd);
  return internal::ValidateAdamW(std::get<AdamWOptions>(options));
}

absl::StatusOr<std::unique_ptr<UpdateRule>> UpdateRule::Create(const UpdateRuleOptions& options,
                                                               const Layout& layout) {
  MUSTER_RETURN_IF_ERROR(Validate(options));
  if (const auto* sgd = std::get_if<SgdOptions>(&options)) {
    return internal::NewSgdRule(*sgd, layout);
  }
  return internal::NewAdamWRule(std::get<AdamWOptions>(options), layout);
}

UpdateRule::UpdateRule(const Layout& layout) : padded_count_(layout.padded_count()) {
  for (const Tensor& tensor : layout.tensors()) {
    if (runs_.empty() || runs_.back().decay != tensor.spec.decay) {
      runs_.push_back({.range = {.offset = tensor.offset, .count = 0}, .decay = tensor.spec.decay});
    }
    runs_.back().range.count = tensor.offset + tensor.count - runs_.back().range.offset;
  }
  // Stretch each run over the padding behind it, so that the runs cover the space.
  for (size_t i = 0; i < runs_.size(); ++i) {
    const int64_t end = i + 1 < runs_.size() ? runs_[i + 1].range.offset : padded_count_;
    runs_[i].range.count = end - runs_[i].range.offset;
  }
}

void UpdateRule::Apply(Range range, const UpdateScalars& scalars, absl::Span<float> parameters,
                       absl::Span<const float> gradient,
                       absl::Span<const absl::Span<float>> state) const {
  MUSTER_CHECK(range.offset >= 0 && range.count >= 0 && range.end() <= padded_count_)
      << "range [" << range.offset << ", " << range.end() << ") of " << padded_count_;
  MUSTER_CHECK_GE(scalars.update_count, 1);
  MUSTER_CHECK_EQ(static_cast<int64_t>(parameters.size()), range.count);
  MUSTER_CHECK_EQ(static_cast<int64_t>(gradient.size()), range.count);
  MUSTER_CHECK_EQ(static_cast<int>(state.size()), state_slots());
  for (const absl::Span<float> slot : state) {
    MUSTER_CHECK_EQ(static_cast<int64_t>(slot.size()), range.count);
  }

  auto run = std::upper_bound(
      runs_.begin(), runs_.end(), range.offset,
      [](int64_t offset, const DecayRun& candidate) { return offset < candidate.range.offset; });
  if (run != runs_.begin()) --run;
  absl::InlinedVector<float*, 2> slots(state.size());
  for (int64_t position = range.offset; position < range.end(); ++run) {
    const int64_t count = std::min(run->range.end(), range.end()) - position;
    const int64_t local = position - range.offset;
    for (size_t slot = 0; slot < state.size(); ++slot) slots[slot] = state[slot].data() + local;
    ApplyRun(run->decay, scalars, count, parameters.data() + local, gradient.data() + local, slots);
    position += count;
  }
}

}  // namespace muster
