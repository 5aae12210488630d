#include "worker/runtime/replica.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/status_macros.h"
#include "state/initialize.h"

namespace muster {
namespace {

size_t Size(int64_t count) { return static_cast<size_t>(count); }

}  // namespace

Replica::Replica(const Layout& layout, const UpdateRule& rule,
                 const LearningRateOptions& learning_rate, double clip_norm,
                 std::shared_ptr<SharedArena> arena)
    : layout_(layout),
      rule_(rule),
      learning_rate_(learning_rate),
      clip_norm_(clip_norm),
      arena_(std::move(arena)) {}

ReplicaCounters Replica::counters() const {
  MutexLock lock(&mutex_);
  return counters_;
}

// ---- the state -------------------------------------------------------------------------------

void Replica::Initialize(uint64_t seed, const StateTag& tag) {
  Initialize(seed, tag, {{0, layout_.padded_count()}});
}

void Replica::Initialize(uint64_t seed, const StateTag& tag, std::vector<Range> ranges) {
  const absl::Status filled = FillPart(std::move(ranges), [&](StatePart& part) {
    std::vector<float> values;
    for (const Tensor& tensor : layout_.tensors()) {
      values.resize(Size(tensor.count));
      InitializeTensor(tensor, seed, absl::MakeSpan(values));
      part.Put(0, tensor.offset, values);
    }
    return ReplicaCounters{.tag = tag};
  });
  MUSTER_CHECK(filled.ok()) << filled;
}

absl::Status Replica::FillPart(
    std::vector<Range> ranges,
    const std::function<absl::StatusOr<ReplicaCounters>(StatePart& part)>& fill) {
  MutexLock lock(&mutex_);
  coming_.reset();
  part_ = StatePart();  // first, so that both are never here at once
  part_ = StatePart(std::move(ranges), arrays());
  MUSTER_ASSIGN_OR_RETURN(counters_, fill(part_));
  return absl::OkStatus();
}

absl::Status Replica::Fill(
    const std::function<absl::StatusOr<ReplicaCounters>(
        absl::Span<float> parameters, absl::Span<const absl::Span<float>> slots)>& fill) {
  return FillPart({{0, layout_.padded_count()}}, [&](StatePart& part) {
    std::vector<absl::Span<float>> slots;
    for (int array = 1; array < arrays(); ++array) slots.push_back(part.Array(array));
    return fill(part.Array(0), slots);
  });
}

void Replica::Retag(const StateTag& tag) {
  MutexLock lock(&mutex_);
  MUSTER_CHECK_EQ(tag.step, counters_.tag.step);
  counters_.tag = tag;
}

void Replica::Apply(const CommitRecord& record, absl::Span<const float> gradient) {
  MutexLock lock(&mutex_);
  ApplyLocked(record, [gradient](Range range) {
    return gradient.subspan(Size(range.offset), Size(range.count));
  });
}

void Replica::Apply(const CommitRecord& record) {
  MutexLock lock(&mutex_);
  ApplyLocked(record, [this](Range range) { return Reduced(range); });
}

template <typename Visit>
void Replica::ForEachRange(GradientOf gradient, const Visit& visit) {
  for (const Range& range : part_.ranges()) {
    std::vector<absl::Span<float>> slots;
    for (int array = 1; array < arrays(); ++array) slots.push_back(part_.Of(array, range));
    visit(range, part_.Of(0, range), gradient(range), slots);
  }
}

void Replica::ApplyLocked(const CommitRecord& record, GradientOf gradient) {
  MUSTER_CHECK_EQ(record.step, counters_.tag.step + 1);
  if (record.finite) {
    const double norm_of_sum = record.gradient_norm * static_cast<double>(record.samples);
    UpdateScalars scalars;
    scalars.learning_rate = LearningRate(learning_rate_, record.step);
    scalars.gradient_scale =
        ComputeGradientScale(norm_of_sum * norm_of_sum, record.samples, clip_norm_).scale;
    scalars.update_count = counters_.update_count + 1;
    if (rule_.factor_count() > 0) {
      // Only of a state that is whole (proto/convert/job.h).
      MUSTER_CHECK(whole()) << "tensor sums of a part of the state";
      TensorSums sums(rule_.factor_count());
      ForEachRange(gradient,
                   [&](Range range, absl::Span<float> parameters, absl::Span<const float> values,
                       absl::Span<const absl::Span<float>> slots) {
                     rule_.Prepare(range, scalars, parameters, values, slots, sums);
                   });
      scalars.tensor_factors = rule_.TensorFactors(sums);
    }
    ForEachRange(gradient,
                 [&](Range range, absl::Span<float> parameters, absl::Span<const float> values,
                     absl::Span<const absl::Span<float>> slots) {
                   rule_.Apply(range, scalars, parameters, values, slots);
                 });
    ++counters_.update_count;
    counters_.nonfinite_in_row = 0;
  } else {
    ++counters_.nonfinite_in_row;
    ++counters_.skipped_steps;
  }
  counters_.tag.step = record.step;
  counters_.tag.epoch = record.epoch;
  if (!listeners_.empty()) {
    const absl::Span<const float> all = gradient({0, layout_.padded_count()});
    const auto copy = std::make_shared<const std::vector<float>>(all.begin(), all.end());
    for (ReplicaListener* listener : listeners_) listener->OnApplied(record, counters_.tag, copy);
  }
}

// ---- memory of a step ------------------------------------------------------------------------

absl::Status Replica::Equip(const StepMemoryShape& shape) {
  const bool caches = shape.computes && (shape.stage == 1 || shape.stage == 2);
  const bool flat_gradient = shape.stage < 2 || shape.accumulates;
  if (!flat_gradient && reduced_.ranges() != part_.ranges())
    reduced_ = StatePart(part_.ranges(), 1);
  if (shape_ == shape) return absl::OkStatus();
  shape_.reset();
  int64_t largest = 0;
  for (int block = 0; block < layout_.block_count(); ++block) {
    largest = std::max(largest, layout_.RangeOfBlock(block).count);
  }
  // What goes makes room for what comes.
  if (!caches) cache_ = FloatBuffer();
  if (!flat_gradient) gradients_ = FloatBuffer();
  if (flat_gradient) reduced_ = StatePart();
  if (flat_gradient) gradient_buffers_.clear();
  if (shape.stage < 3) parameter_buffers_.clear();
  const auto allocate = [&](FloatBuffer& buffer, int64_t count) -> absl::Status {
    if (!buffer.empty()) return absl::OkStatus();
    MUSTER_ASSIGN_OR_RETURN(buffer, FloatBuffer::Allocate(arena_, count));
    return absl::OkStatus();
  };
  if (caches) {
    MUSTER_RETURN_IF_ERROR(allocate(cache_, layout_.padded_count()));
  }
  if (flat_gradient) {
    MUSTER_RETURN_IF_ERROR(allocate(gradients_, layout_.padded_count()));
  } else {
    gradient_buffers_.resize(kBlockBuffers);
    for (FloatBuffer& buffer : gradient_buffers_) {
      MUSTER_RETURN_IF_ERROR(allocate(buffer, largest));
    }
  }
  if (shape.stage == 3) {
    parameter_buffers_.resize(kBlockBuffers);
    for (FloatBuffer& buffer : parameter_buffers_) {
      MUSTER_RETURN_IF_ERROR(allocate(buffer, largest));
    }
  }
  shape_ = shape;
  return absl::OkStatus();
}

absl::Span<const float> Replica::parameters() const {
  return whole() && cache_.empty() ? part_.Array(0) : cache_.span();
}

void Replica::StoreReduced(Range block, absl::Span<const float> values) {
  reduced_.Put(0, block.offset, values.subspan(0, Size(block.count)));
}

absl::Span<const float> Replica::Reduced(Range range) const {
  if (!gradients_.empty()) {
    return gradients_.span().subspan(Size(range.offset), Size(range.count));
  }
  return reduced_.Of(0, range);
}

absl::Status Replica::RenewBuffers() {
  MUSTER_RETURN_IF_ERROR(cache_.Renew());
  MUSTER_RETURN_IF_ERROR(gradients_.Renew());
  for (FloatBuffer& buffer : gradient_buffers_) MUSTER_RETURN_IF_ERROR(buffer.Renew());
  for (FloatBuffer& buffer : parameter_buffers_) MUSTER_RETURN_IF_ERROR(buffer.Renew());
  return absl::OkStatus();
}

// ---- moving ----------------------------------------------------------------------------------

void Replica::BeginMove(std::vector<Range> ranges, bool receives_all) {
  MutexLock lock(&mutex_);
  coming_.reset();
  if (receives_all) part_ = StatePart();
  if (ranges == part_.ranges()) return;
  coming_.emplace(std::move(ranges), arrays());
  coming_->CopyFrom(part_);
}

void Replica::PackRange(Range range, absl::Span<float> values) const {
  auto out = values.begin();
  for (int array = 0; array < arrays(); ++array) {
    const absl::Span<const float> from = part_.Of(array, range);
    out = std::copy(from.begin(), from.end(), out);
  }
}

void Replica::UnpackRange(Range range, absl::Span<const float> values) {
  MutexLock lock(&mutex_);
  MUSTER_CHECK(coming_.has_value()) << "a range came that no move asked for";
  for (int array = 0; array < arrays(); ++array) {
    const absl::Span<const float> from =
        values.subspan(Size(array) * Size(range.count), Size(range.count));
    std::copy(from.begin(), from.end(), coming_->Of(array, range).begin());
  }
}

void Replica::FinishMove(const ReplicaCounters& counters) {
  MutexLock lock(&mutex_);
  counters_ = counters;
}

void Replica::KeepOnly(bool newest) {
  MutexLock lock(&mutex_);
  if (newest && coming_.has_value()) part_ = *std::move(coming_);
  coming_.reset();
}

// ---- copies ----------------------------------------------------------------------------------

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
  MUSTER_CHECK(whole()) << "a snapshot of a part of the state";
  auto snapshot = std::make_shared<ReplicaSnapshot>();
  snapshot->counters = counters_;
  for (int array = 0; array < arrays(); ++array) {
    const absl::Span<const float> values = part_.Array(array);
    snapshot->arrays.emplace_back(values.begin(), values.end());
  }
  return snapshot;
}

}  // namespace muster
