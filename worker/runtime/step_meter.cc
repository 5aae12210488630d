#include "worker/runtime/step_meter.h"

#include <algorithm>
#include <cmath>

namespace muster {

void StepMeter::Record(absl::Duration step, absl::Duration waited, int64_t samples) {
  const auto ms = static_cast<float>(absl::ToDoubleMilliseconds(step));
  if (step_ms_.size() < kWindow) {
    step_ms_.push_back(ms);
  } else {
    step_ms_[next_] = ms;
    next_ = (next_ + 1) % kWindow;
  }
  total_ += step;
  waited_ += waited;
  const double seconds = absl::ToDoubleSeconds(step);
  if (seconds <= 0) return;
  const double rate = static_cast<double>(samples) / seconds;
  const double weight = samples_per_second_ == 0 ? 1 : 1 - std::exp(-seconds);
  samples_per_second_ += weight * (rate - samples_per_second_);
}

double StepMeter::PercentileMs(double percentile) const {
  if (step_ms_.empty()) return 0;
  std::vector<float> sorted = step_ms_;
  const auto last = static_cast<double>(sorted.size() - 1);
  const auto index = static_cast<size_t>(std::lround(last * percentile / 100));
  std::nth_element(sorted.begin(), sorted.begin() + static_cast<int64_t>(index), sorted.end());
  return sorted[index];
}

double StepMeter::wait_share() const {
  return total_ > absl::ZeroDuration() ? absl::FDivDuration(waited_, total_) : 0;
}

}  // namespace muster
