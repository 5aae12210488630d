#include "worker/runtime/replica.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/status_macros.h"
#include "state/initialize.h"

namespace muster {

Replica::Replica(const Layout& layout, const UpdateRule& rule,
                 const LearningRateOptions& learning_rate, double clip_norm, SharedBuffer shared)
    : layout_(layout),
      rule_(rule),
      learning_rate_(learning_rate),
      clip_norm_(clip_norm),
      parameters_(layout.padded_count()),
      slots_(rule.state_slots(), std::vector<float>(layout.padded_count())),
      shared_gradients_(std::move(shared)) {
  const size_t count = layout.padded_count();
  if (shared_gradients_.data() == nullptr) {
    own_gradients_.resize(count);
    gradients_ = absl::MakeSpan(own_gradients_);
  } else {
    MUSTER_CHECK_EQ(shared_gradients_.size(), static_cast<int64_t>(count * sizeof(float)));
    gradients_ = absl::MakeSpan(reinterpret_cast<float*>(shared_gradients_.data()), count);
    std::fill(gradients_.begin(), gradients_.end(), 0.0f);
  }
}

ReplicaCounters Replica::counters() const {
  MutexLock lock(&mutex_);
  return counters_;
}

void Replica::Initialize(uint64_t seed, const StateTag& tag) {
  MutexLock lock(&mutex_);
  InitializeParameters(layout_, seed, absl::MakeSpan(parameters_));
  for (std::vector<float>& slot : slots_) std::fill(slot.begin(), slot.end(), 0.0f);
  counters_ = ReplicaCounters{.tag = tag};
}

absl::Status Replica::Fill(
    const std::function<absl::StatusOr<ReplicaCounters>(
        absl::Span<float> parameters, absl::Span<const absl::Span<float>> slots)>& fill) {
  MutexLock lock(&mutex_);
  MUSTER_ASSIGN_OR_RETURN(counters_, fill(absl::MakeSpan(parameters_), SlotSpans()));
  return absl::OkStatus();
}

void Replica::Retag(const StateTag& tag) {
  MutexLock lock(&mutex_);
  MUSTER_CHECK_EQ(tag.step, counters_.tag.step);
  counters_.tag = tag;
}

void Replica::Apply(const CommitRecord& record, absl::Span<const float> gradient) {
  MutexLock lock(&mutex_);
  MUSTER_CHECK_EQ(record.step, counters_.tag.step + 1);
  if (record.finite) {
    const double norm_of_sum = record.gradient_norm * static_cast<double>(record.samples);
    UpdateScalars scalars;
    scalars.learning_rate = LearningRate(learning_rate_, record.step);
    scalars.gradient_scale =
        ComputeGradientScale(norm_of_sum * norm_of_sum, record.samples, clip_norm_).scale;
    scalars.update_count = counters_.update_count + 1;
    const Range whole = {0, layout_.padded_count()};
    const std::vector<absl::Span<float>> slots = SlotSpans();
    if (rule_.factor_count() > 0) {
      TensorSums sums(rule_.factor_count());
      rule_.Prepare(whole, scalars, parameters_, gradient, slots, sums);
      scalars.tensor_factors = rule_.TensorFactors(sums);
    }
    rule_.Apply(whole, scalars, absl::MakeSpan(parameters_), gradient, slots);
    ++counters_.update_count;
    counters_.nonfinite_in_row = 0;
  } else {
    ++counters_.nonfinite_in_row;
    ++counters_.skipped_steps;
  }
  counters_.tag.step = record.step;
  counters_.tag.epoch = record.epoch;
  if (!listeners_.empty()) {
    const auto copy = std::make_shared<const std::vector<float>>(gradient.begin(), gradient.end());
    for (ReplicaListener* listener : listeners_) listener->OnApplied(record, counters_.tag, copy);
  }
}

std::shared_ptr<const ReplicaSnapshot> Replica::Snapshot() {
  MutexLock lock(&mutex_);
  return SnapshotLocked();
}

std::shared_ptr<const ReplicaSnapshot> Replica::SnapshotAndListen(ReplicaListener* listener) {
  MutexLock lock(&mutex_);
  listeners_.push_back(listener);
  return SnapshotLocked();
}

void Replica::StopListening(ReplicaListener* listener) {
  MutexLock lock(&mutex_);
  listeners_.erase(std::remove(listeners_.begin(), listeners_.end(), listener), listeners_.end());
}

std::shared_ptr<const ReplicaSnapshot> Replica::SnapshotLocked() {
  auto snapshot = std::make_shared<ReplicaSnapshot>();
  snapshot->counters = counters_;
  snapshot->arrays.push_back(parameters_);
  for (const std::vector<float>& slot : slots_) snapshot->arrays.push_back(slot);
  return snapshot;
}

std::vector<absl::Span<float>> Replica::SlotSpans() {
  std::vector<absl::Span<float>> spans;
  for (std::vector<float>& slot : slots_) spans.push_back(absl::MakeSpan(slot));
  return spans;
}

}  // namespace muster
