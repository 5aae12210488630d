#include "base/job_spec.h"

#include <cmath>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"

namespace muster {

absl::StatusOr<Step> ResolveSteps(const JobSpec& spec, int64_t sample_count) {
  const TrainingSpec& training = spec.training;
  Step steps = training.steps;
  if (steps == 0) {
    if (sample_count <= 0) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "training.epochs: cannot be turned into steps, the training set has %d samples",
          sample_count));
    }
    const double exact = training.epochs * static_cast<double>(sample_count) /
                         static_cast<double>(training.global_batch);
    if (!(exact <= static_cast<double>(kMaxJobSteps))) {
      return absl::InvalidArgumentError(
          absl::StrFormat("training.epochs: %g passes over %d samples are %g steps, at most %d are "
                          "possible",
                          training.epochs, sample_count, exact, kMaxJobSteps));
    }
    // The tolerance keeps 0.1 * 60000 / 6000, which is not exactly 1 in binary, from taking 2
    // steps.
    steps = std::max<Step>(1, static_cast<Step>(std::ceil(exact * (1 - 1e-12))));
  }
  if (training.learning_rate.warmup_steps >= steps) {
    return absl::InvalidArgumentError(
        absl::StrFormat("training.learning_rate.warmup_steps: must be less than the %d steps of "
                        "the job, got %d",
                        steps, training.learning_rate.warmup_steps));
  }
  for (size_t i = 0; i < spec.switches.size(); ++i) {
    if (spec.switches[i].after < steps) continue;
    return absl::InvalidArgumentError(
        absl::StrFormat("switches[%d].after_step: must be less than the job's %d steps, got %d", i,
                        steps, spec.switches[i].after));
  }
  return steps;
}

}  // namespace muster
