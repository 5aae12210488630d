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

absl::Status CheckEpsilon(absl::string_view field, double value) {
  return CheckOption(field, value, std::numeric_limits<float>::min(),
                     std::numeric_limits<double>::infinity());
}

absl::Status CheckWeightDecay(absl::string_view field, double value) {
  return CheckOption(field, value, 0, std::numeric_limits<double>::infinity());
}

}  // namespace internal

namespace {

// Pointers to element `first` of each array.
absl::InlinedVector<float*, 2> PointersAt(absl::Span<const absl::Span<float>> state,
                                          int64_t first) {
  absl::InlinedVector<float*, 2> pointers;
  for (const absl::Span<float> slot : state) pointers.push_back(slot.data() + first);
  return pointers;
}

}  // namespace

absl::StatusOr<std::unique_ptr<UpdateRule>> UpdateRule::Create(const UpdateRuleOptions& options,
                                                               const Layout& layout) {
  MUSTER_RETURN_IF_ERROR(Validate(options));
  return std::visit([&](const auto& rule) { return internal::NewRule(rule, layout); }, options);
}

UpdateRule::UpdateRule(const Layout& layout, double weight_decay, Adapts adapts)
    : padded_count_(layout.padded_count()) {
  for (const Tensor& tensor : layout.tensors()) {
    const TensorSpec& spec = tensor.spec;
    if (spec.frozen) continue;
    const bool adapted =
        adapts == Adapts::kEverything || (adapts == Adapts::kDecaying && spec.decay);
    runs_.push_back({.range = {.offset = tensor.offset, .count = tensor.count},
                     .weight_decay = spec.weight_decay.value_or(spec.decay ? weight_decay : 0),
                     .learning_rate_scale = spec.learning_rate_scale,
                     .factor = adapted ? factor_count_++ : -1});
  }
}

void UpdateRule::ForEachRun(Range range,
                            absl::FunctionRef<void(const TensorRun& run, Range part)> visit) const {
  auto run = std::partition_point(runs_.begin(), runs_.end(), [&](const TensorRun& candidate) {
    return candidate.range.end() <= range.offset;
  });
  for (; run != runs_.end() && run->range.offset < range.end(); ++run) {
    const int64_t begin = std::max(run->range.offset, range.offset);
    const int64_t end = std::min(run->range.end(), range.end());
    visit(*run, {.offset = begin, .count = end - begin});
  }
}

void UpdateRule::CheckSpans(Range range, const UpdateScalars& scalars, size_t parameters,
                            size_t gradient, absl::Span<const absl::Span<float>> state) const {
  MUSTER_CHECK(range.offset >= 0 && range.count >= 0 && range.end() <= padded_count_)
      << "range [" << range.offset << ", " << range.end() << ") of " << padded_count_;
  MUSTER_CHECK_GE(scalars.update_count, 1);
  MUSTER_CHECK_EQ(static_cast<int64_t>(parameters), range.count);
  MUSTER_CHECK_EQ(static_cast<int64_t>(gradient), range.count);
  MUSTER_CHECK_EQ(static_cast<int>(state.size()), state_slots());
  for (const absl::Span<float> slot : state) {
    MUSTER_CHECK_EQ(static_cast<int64_t>(slot.size()), range.count);
  }
}

void UpdateRule::Prepare(Range range, const UpdateScalars& scalars,
                         absl::Span<const float> parameters, absl::Span<const float> gradient,
                         absl::Span<const absl::Span<float>> state, TensorSums& sums) const {
  CheckSpans(range, scalars, parameters.size(), gradient.size(), state);
  MUSTER_CHECK_EQ(sums.count(), factor_count_);
  if (factor_count_ == 0) return;
  ForEachRun(range, [&](const TensorRun& run, Range part) {
    if (run.factor < 0) return;
    const int64_t local = part.offset - range.offset;
    TensorSums::Entry& entry = sums[run.factor];
    entry.parameters.Add(parameters.subspan(local, part.count));
    PrepareRun({.learning_rate = scalars.learning_rate * run.learning_rate_scale,
                .weight_decay = run.weight_decay,
                .gradient_scale = scalars.gradient_scale,
                .update_count = scalars.update_count},
               part.count, parameters.data() + local, gradient.data() + local,
               PointersAt(state, local), entry.update);
  });
}

void UpdateRule::PrepareRun(const RunScalars&, int64_t, const float*, const float*,
                            absl::Span<float* const>, SquaredSum&) const {
  MUSTER_CHECK(false) << name() << " has no factors to prepare";
}

std::vector<double> UpdateRule::TensorFactors(const TensorSums& sums) const {
  MUSTER_CHECK_EQ(sums.count(), factor_count_);
  return NormRatios(sums);
}

void UpdateRule::Apply(Range range, const UpdateScalars& scalars, absl::Span<float> parameters,
                       absl::Span<const float> gradient,
                       absl::Span<const absl::Span<float>> state) const {
  CheckSpans(range, scalars, parameters.size(), gradient.size(), state);
  MUSTER_CHECK_EQ(static_cast<int>(scalars.tensor_factors.size()), factor_count_);
  ForEachRun(range, [&](const TensorRun& run, Range part) {
    const int64_t local = part.offset - range.offset;
    const double factor = run.factor < 0 ? 1.0 : scalars.tensor_factors[run.factor];
    ApplyRun({.learning_rate = scalars.learning_rate * run.learning_rate_scale * factor,
              .weight_decay = run.weight_decay,
              .gradient_scale = scalars.gradient_scale,
              .update_count = scalars.update_count},
             part.count, parameters.data() + local, gradient.data() + local,
             PointersAt(state, local));
  });
}

}  // namespace muster
