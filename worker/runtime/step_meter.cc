#include "worker/runtime/step_meter.h"

#include <cmath>

namespace muster {

void StepMeter::Record(absl::Duration step, absl::Duration waited, int64_t samples) {
  const auto ms = static_cast<float>(absl::ToDoubleMilliseconds(step));
  if (step_ms_.size() < kWindow) {
    step_ms_.push_back(ms);
  } else {
    histogram_.Remove(step_ms_[next_]);
    step_ms_[next_] = ms;
    next_ = (next_ + 1) % kWindow;
  }
  histogram_.Add(ms);
  total_ += step;
  waited_ += waited;
  const double seconds = absl::ToDoubleSeconds(step);
  if (seconds <= 0) return;
  const double rate = static_cast<double>(samples) / seconds;
  const double weight = samples_per_second_ == 0 ? 1 : 1 - std::exp(-seconds);
  samples_per_second_ += weight * (rate - samples_per_second_);
}

double StepMeter::PercentileMs(double percentile) const {
  return histogram_.Quantile(percentile / 100);
}

double StepMeter::wait_share() const {
  return total_ > absl::ZeroDuration() ? absl::FDivDuration(waited_, total_) : 0;
}

}  // namespace muster
