#include "state/step_scalars.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_format.h"
#include "base/check.h"

namespace muster {

absl::string_view Name(LearningRateSchedule schedule) {
  switch (schedule) {
    case LearningRateSchedule::kConstant:
      return "constant";
    case LearningRateSchedule::kCosine:
      return "cosine";
    case LearningRateSchedule::kLinear:
      return "linear";
  }
  return "?";
}

absl::StatusOr<LearningRateSchedule> LearningRateScheduleFromName(absl::string_view name) {
  for (const LearningRateSchedule schedule :
       {LearningRateSchedule::kConstant, LearningRateSchedule::kCosine,
        LearningRateSchedule::kLinear}) {
    if (name == Name(schedule)) return schedule;
  }
  return absl::InvalidArgumentError(absl::StrFormat(
      "learning rate schedule: expected constant, cosine or linear, got \"%s\"", name));
}

absl::Status Validate(const LearningRateOptions& options) {
  if (!std::isfinite(options.peak) || options.peak <= 0) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "learning_rate.peak: expected a finite number above 0, got %g", options.peak));
  }
  // Written so that NaN fails.
  if (!(options.final >= 0 && options.final <= options.peak)) {
    return absl::InvalidArgumentError(
        absl::StrFormat("learning_rate.final: expected a number from 0 to the peak %g, got %g",
                        options.peak, options.final));
  }
  if (options.total_steps < 1) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "learning_rate.total_steps: expected at least 1, got %d", options.total_steps));
  }
  if (options.warmup_steps < 0 || options.warmup_steps >= options.total_steps) {
    return absl::InvalidArgumentError(
        absl::StrFormat("learning_rate.warmup_steps: expected 0 to %d (below total_steps), got %d",
                        options.total_steps - 1, options.warmup_steps));
  }
  return absl::OkStatus();
}

double LearningRate(const LearningRateOptions& options, Step step) {
  MUSTER_CHECK_GE(step, 1);
  if (step <= options.warmup_steps) {
    return options.peak * static_cast<double>(step) / static_cast<double>(options.warmup_steps + 1);
  }
  const double decay_steps = static_cast<double>(options.total_steps - options.warmup_steps);
  const double progress =
      std::min(1.0, static_cast<double>(step - 1 - options.warmup_steps) / decay_steps);
  switch (options.schedule) {
    case LearningRateSchedule::kConstant:
      return options.peak;
    case LearningRateSchedule::kLinear:
      return options.peak + (options.final - options.peak) * progress;
    case LearningRateSchedule::kCosine:
      return options.final + (options.peak - options.final) * (1 + CosinePi(progress)) / 2;
  }
  return options.peak;
}

GradientScale ComputeGradientScale(double squared_norm, int64_t samples, double max_norm) {
  MUSTER_CHECK(samples > 0 && max_norm >= 0 && std::isfinite(squared_norm))
      << samples << " samples, max norm " << max_norm << ", squared norm " << squared_norm;
  const double count = static_cast<double>(samples);
  GradientScale result{.scale = 1 / count, .norm = std::sqrt(squared_norm) / count};
  if (max_norm > 0) {
    const double factor = max_norm / (result.norm + 1e-6);
    if (factor < 1) {
      result.scale *= factor;
      result.clipped = true;
    }
  }
  return result;
}

double PowerByInteger(double base, int64_t exponent) {
  MUSTER_CHECK_GE(exponent, 0);
  double result = 1;
  for (; exponent > 0; exponent >>= 1) {
    if (exponent & 1) result *= base;
    base *= base;
  }
  return result;
}

double CosinePi(double x) {
  // cos(pi x) = sin(pi (1/2 - x)); the sine's Taylor series on [-pi/2, pi/2], whose first term left
  // out is below 2e-18.
  constexpr double kPi = 3.14159265358979323846;
  constexpr int kTerms = 11;
  const double t = kPi * (0.5 - x);
  const double square = t * t;
  // Horner's rule on sin t = t (1 - t^2 / (2 * 3) (1 - t^2 / (4 * 5) (1 - ...))).
  double sum = 1;
  for (int i = kTerms; i >= 1; --i) sum = 1 - square / (2.0 * i * (2.0 * i + 1)) * sum;
  return t * sum;
}

}  // namespace muster
