// The scalars of a step: learning rate, gradient scale (mean and clipping), bias corrections.
//
// Every replica computes them for itself from the same inputs and must get the same bits, whatever
// its processor or C library. So they use only IEEE double additions, multiplications, divisions
// and square roots in a fixed order: powers by binary exponentiation, the cosine by a polynomial.
// Pure and thread-safe.
#ifndef MUSTER_STATE_STEP_SCALARS_H_
#define MUSTER_STATE_STEP_SCALARS_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/ids.h"

namespace muster {

enum class LearningRateSchedule : uint8_t { kConstant, kCosine, kLinear };

absl::string_view Name(LearningRateSchedule schedule);  // "constant", "cosine", "linear"
// INVALID_ARGUMENT names the accepted values.
absl::StatusOr<LearningRateSchedule> LearningRateScheduleFromName(absl::string_view name);

// The rate of the update that takes the state from step k - 1 to step k, k = 1 .. total_steps.
//   warm-up, k <= warmup_steps:  peak * k / (warmup_steps + 1)
//   then, with t = (k - 1 - warmup_steps) / (total_steps - warmup_steps):
//     constant  peak
//     linear    peak + (final - peak) * t
//     cosine    final + (peak - final) * (1 + cos(pi * t)) / 2     (SGDR: Loshchilov and Hutter,
//               2017, equation 5; torch.optim.lr_scheduler.CosineAnnealingLR)
// Steps beyond total_steps have the final rate (constant: peak).
struct LearningRateOptions {
  LearningRateSchedule schedule = LearningRateSchedule::kConstant;
  double peak = 0.1;
  double final = 0;  // not used by constant
  int64_t warmup_steps = 0;
  int64_t total_steps = 1;  // of the whole job
};

// INVALID_ARGUMENT names the field: rates finite, peak > 0, 0 <= final <= peak,
// 0 <= warmup_steps < total_steps.
absl::Status Validate(const LearningRateOptions& options);

// Requires: options are valid, step >= 1.
double LearningRate(const LearningRateOptions& options, Step step);

// What the sum of the gradients is multiplied by, once, after the sum.
struct GradientScale {
  double scale = 0;  // 1 / samples, times the clip factor
  double norm = 0;   // of the mean gradient, before clipping
  bool clipped = false;
};

// `squared_norm` is that of the summed gradient, `samples` how many samples it sums over.
// `max_norm` 0 means no clipping; otherwise the clip factor is min(1, max_norm / (norm + 1e-6)), as
// in torch.nn.utils.clip_grad_norm_. Requires: samples > 0, max_norm >= 0, squared_norm finite.
GradientScale ComputeGradientScale(double squared_norm, int64_t samples, double max_norm);

// base to the power `exponent` >= 0, by binary exponentiation.
double PowerByInteger(double base, int64_t exponent);

// cos(pi * x) for x in [0, 1], within 1e-15.
double CosinePi(double x);

}  // namespace muster

#endif  // MUSTER_STATE_STEP_SCALARS_H_
