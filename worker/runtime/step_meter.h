// Measures steps: durations, their percentiles, and the share of time spent waiting for
// communication. Recording and reading cost the same however many steps there were. Used by the
// training thread; values are per worker.
#ifndef MUSTER_WORKER_RUNTIME_STEP_METER_H_
#define MUSTER_WORKER_RUNTIME_STEP_METER_H_

#include <cstdint>
#include <vector>

#include "absl/time/time.h"
#include "worker/runtime/quantile_histogram.h"

namespace muster {

class StepMeter {
 public:
  // Percentiles are over the newest kWindow steps, within 1% of the exact ones
  // (quantile_histogram.h); shares over all steps.
  static constexpr size_t kWindow = 65'536;

  void Record(absl::Duration step, absl::Duration waited, int64_t samples);

  // Steps that the percentiles are over.
  int64_t count() const { return static_cast<int64_t>(step_ms_.size()); }
  double PercentileMs(double percentile) const;  // percentile in [0, 100]; 0 before the first step
  double wait_share() const;                     // 0 .. 1
  // Over the last second of steps or so: an exponential average with a time constant of 1 s.
  double samples_per_second() const { return samples_per_second_; }

 private:
  std::vector<float> step_ms_;  // what the histogram holds; a ring once kWindow long
  QuantileHistogram histogram_;
  size_t next_ = 0;
  absl::Duration total_;
  absl::Duration waited_;
  double samples_per_second_ = 0;
};

}  // namespace muster

#endif  // MUSTER_WORKER_RUNTIME_STEP_METER_H_
