#include "worker/runtime/replica.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "collectives/reduce/half.h"
#include "state/initialize.h"
#include "state/mixed_precision.h"

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
      pool_(Size(layout.padded_count()) * Size(FloatsPerElement(rule)) * sizeof(float)),
      buffers_(layout, std::move(arena)) {}

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
  remaining_.reset();
  part_ = StatePart();  // first, so that both are never here at once
  part_ = StatePart(std::move(ranges), arrays(), &pool_);
  buffers_.residuals().Clear();  // they are of another state
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

void Replica::Apply(const CommitRecord& record, absl::Span<const float> gradient) {
  MutexLock lock(&mutex_);
  ApplyLocked(record, gradient);
}

void Replica::Apply(const CommitRecord& record) {
  MutexLock lock(&mutex_);
  ApplyLocked(record, std::nullopt);
}

std::vector<absl::Span<float>> Replica::SlotsOf(Range range) {
  std::vector<absl::Span<float>> slots;
  for (int array = 1; array < arrays(); ++array) slots.push_back(part_.Of(array, range));
  return slots;
}

absl::Status Replica::CheckRecord(const CommitRecord& record) const {
  const size_t expected = record.finite ? static_cast<size_t>(rule_.factor_count()) : 0;
  if (record.tensor_factors.size() == expected) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("commit record of step ", record.step, ": expected factors of ", expected,
                   " tensors for ", rule_.name(), ", got ", record.tensor_factors.size(),
                   "; the member that formed it trains another model"));
}

UpdateScalars Replica::ScalarsOf(Step step, double gradient_norm, int64_t samples,
                                 int64_t updates) const {
  const double norm_of_sum = gradient_norm * static_cast<double>(samples);
  return {
      .learning_rate = LearningRate(learning_rate_, step),
      .gradient_scale = ComputeGradientScale(norm_of_sum * norm_of_sum, samples, clip_norm_).scale,
      .update_count = updates + 1};
}

void Replica::ApplyLocked(const CommitRecord& record, FlatGradient gradient) {
  MUSTER_CHECK_EQ(record.step, counters_.tag.step + 1);
  if (record.finite) {
    UpdateScalars scalars =
        ScalarsOf(record.step, record.gradient_norm, record.samples, counters_.update_count);
    scalars.tensor_factors = record.tensor_factors;
    UpdatePart(scalars, gradient);
    // Of a step that this worker took; others it learns of.
    if (!gradient.has_value()) buffers_.residuals().Commit();
    ++counters_.update_count;
    counters_.nonfinite_in_row = 0;
  } else {
    ++counters_.nonfinite_in_row;
    ++counters_.skipped_steps;
  }
  counters_.tag.step = record.step;
  counters_.tag.epoch = record.epoch;
  if (!listeners_.empty()) {
    const auto copy = CopyGradient(gradient);
    for (ReplicaListener* listener : listeners_) listener->OnApplied(record, counters_.tag, copy);
  }
}

MixedPrecisionRange Replica::MixedOf(Range range, std::vector<absl::Span<float>>& slots) {
  slots = SlotsOf(range);
  return {.range = range,
          .dtype = buffers_.shape().gradients,
          .gradient = buffers_.ReducedHalves(range),
          .parameters =
              buffers_.rounds_parameters() ? buffers_.OwnHalves(range) : absl::Span<uint16_t>(),
          .master = part_.Of(0, range),
          .state = slots};
}

TensorSums Replica::PrepareUpdate(Step step, double gradient_norm, int64_t samples,
                                  const std::vector<Range>& ranges) {
  TensorSums sums(rule_.factor_count());
  if (rule_.factor_count() == 0) return sums;
  const UpdateScalars scalars = ScalarsOf(step, gradient_norm, samples, counters().update_count);
  std::vector<absl::Span<float>> slots;
  for (const Range& range : ranges) {
    if (buffers_.rounds_gradients()) {
      Prepare(rule_, MixedOf(range, slots), scalars, sums);
    } else {
      rule_.Prepare(range, scalars, part_.Of(0, range), buffers_.Reduced(range), SlotsOf(range),
                    sums);
    }
  }
  return sums;
}

void Replica::UpdatePart(const UpdateScalars& scalars, FlatGradient flat) {
  std::vector<absl::Span<float>> slots;
  for (const Range& range : part_.ranges()) {
    if (!flat.has_value() && buffers_.rounds_gradients()) {
      muster::Apply(rule_, MixedOf(range, slots), scalars);
    } else {
      const absl::Span<const float> gradient =
          flat.has_value() ? flat->subspan(Size(range.offset), Size(range.count))
                           : buffers_.Reduced(range);
      rule_.Apply(range, scalars, part_.Of(0, range), gradient, SlotsOf(range));
    }
  }
}

std::shared_ptr<const std::vector<float>> Replica::CopyGradient(FlatGradient gradient) const {
  const Range all{0, layout_.padded_count()};
  if (!gradient.has_value() && buffers_.rounds_gradients()) {
    auto copy = std::make_shared<std::vector<float>>(Size(all.count));
    WidenHalf(buffers_.shape().gradients, buffers_.ReducedHalves(all).data(), copy->data(),
              all.count);
    return copy;
  }
  const absl::Span<const float> values = gradient.has_value() ? *gradient : buffers_.Reduced(all);
  return std::make_shared<const std::vector<float>>(values.begin(), values.end());
}

// ---- memory of a step ------------------------------------------------------------------------

absl::Status Replica::Equip(const StepMemoryShape& shape) {
  MUSTER_RETURN_IF_ERROR(buffers_.Equip(shape, part_.ranges()));
  if (!buffers_.rounds_parameters()) return absl::OkStatus();
  // The part may have been loaded, learned or moved here since.
  for (const Range& range : part_.ranges()) {
    const absl::Span<const float> master = part_.Of(0, range);
    NarrowToHalf(shape.parameters, master.data(), buffers_.OwnHalves(range).data(), range.count);
  }
  return absl::OkStatus();
}

const void* Replica::OwnParameters(Range range) {
  if (range.count == 0) return nullptr;
  if (buffers_.rounds_parameters()) return buffers_.OwnHalves(range).data();
  return part_.Of(0, range).data();
}

// ---- moving ----------------------------------------------------------------------------------

void Replica::BeginMove(std::vector<Range> ranges, bool receives_all) {
  MutexLock lock(&mutex_);
  coming_.reset();
  remaining_.reset();
  if (receives_all) {
    part_ = StatePart();
    buffers_.residuals().Clear();
  }
  if (ranges == part_.ranges()) return;
  const auto held = [this](Range range) { return part_.Holds(range); };
  if (!ranges.empty() && std::ranges::all_of(ranges, held)) {
    remaining_ = std::move(ranges);
    return;
  }
  coming_ = StatePart::Unset(std::move(ranges), arrays(), &pool_);
  coming_->CopyFrom(part_);
}

void Replica::PackRange(Range range, absl::Span<std::byte> bytes) const {
  part_.Pack(range, bytes);
}

void Replica::UnpackRange(Range range, absl::Span<const std::byte> bytes) {
  MutexLock lock(&mutex_);
  MUSTER_CHECK(coming_.has_value()) << "a range came that no move asked for";
  coming_->Unpack(range, bytes);
}

void Replica::FinishMove(const ReplicaCounters& counters) {
  MutexLock lock(&mutex_);
  counters_ = counters;
}

void Replica::KeepOnly(bool newest) {
  MutexLock lock(&mutex_);
  if (newest && coming_.has_value()) part_ = *std::move(coming_);
  if (newest && remaining_.has_value()) part_.ShrinkTo(*std::move(remaining_));
  coming_.reset();
  remaining_.reset();
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
