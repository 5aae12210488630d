// Pushes to dense tables: collecting, summing, applying.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "server/parameter_server/core/dense_table.h"
#include "state/step_scalars.h"

namespace muster {

absl::StatusOr<PushResult> DenseTable::Push(const DensePush& push, absl::Time now) {
  MUSTER_RETURN_IF_ERROR(CheckPush(push.from, push.id, push.samples, now));
  absl::Status status = CheckRange(push.range);
  if (status.ok()) status = CheckCount(push.range, push.values);
  if (!status.ok()) return Refused(status);
  touched_ = true;
  return sums() ? PushSynchronous(push) : PushOnArrival(push);
}

bool DenseTable::HasRoomFor(int64_t bytes, int64_t held) const {
  if (held == 0 || held + bytes <= partial_sums_bytes_) return true;
  return held + bytes <= limits_.held_bytes &&
         account_.taken_bytes() + bytes <= account_.budget_bytes() + pool_.idle_bytes();
}

// ---- synchronous -----------------------------------------------------------------------------

absl::Status DenseTable::NoteSamples(const DensePush& push) {
  auto& samples =
      samples_.try_emplace(push.id.step, static_cast<size_t>(spec_.micro_batches), kUnknown)
          .first->second;
  int64_t& known = samples[static_cast<size_t>(push.id.micro_batch)];
  if (known == kUnknown) known = push.samples;
  if (known == push.samples) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("step ", push.id.step, ", micro-batch ", push.id.micro_batch, ": expected ",
                   known, " samples, as in an earlier chunk, got ", push.samples));
}

int64_t DenseTable::SamplesOfStep(Step step) const {
  int64_t sum = 0;
  for (const int64_t samples : samples_.at(step)) {
    MUSTER_CHECK(samples != kUnknown);
    sum += samples;
  }
  return sum;
}

absl::StatusOr<PushResult> DenseTable::PushSynchronous(const DensePush& push) {
  const PushId id = push.id;
  const auto segments = parameters_->SegmentsIn(push.range);
  // No segment runs ahead of the others by more than a step.
  if (id.step > version_ + 2 && !trained_.empty()) {
    return MustWait(push.from,
                    {.what = Wait::For::kVersion, .value = id.step - 2, .range = range_});
  }
  for (int i = segments.first; i < segments.last; ++i) {
    if (still(i) || id.step <= VersionOfSegment(i) + 1) continue;
    return MustWait(push.from,
                    {.what = Wait::For::kVersion, .value = id.step - 1, .range = push.range});
  }
  const auto units = canonical_->UnitsIn(push.range);
  const auto part_of = [&](int unit) {
    const Range whole = canonical_->RangeOfUnit(unit);
    const int64_t begin = std::max(whole.offset, push.range.offset);
    return Range{begin, std::min(whole.end(), push.range.end()) - begin};
  };
  const auto is_new = [&](int unit) {
    return id.step == VersionOfSegment(canonical_->SegmentOfUnit(unit)) + 1 &&
           !canonical_->Received(unit, id.micro_batch, part_of(unit));
  };
  bool any = false;
  for (int u = units.first; u < units.last && !any; ++u) any = is_new(u);
  if (!any) return Duplicate();
  if (absl::Status status = CheckGradient(push.range, push.values); !status.ok()) {
    return Refused(std::move(status));
  }
  if (absl::Status status = NoteSamples(push); !status.ok()) return Refused(std::move(status));

  const int64_t folds = canonical_->folds();
  bool waits = false;
  for (int u = units.first; u < units.last; ++u) {
    const int segment = canonical_->SegmentOfUnit(u);
    if (IsWholeStepOf(push, segment)) {
      FinishSegment(segment, &push);
      ++progress_;
      u = canonical_->UnitsIn(parameters_->RangeOfSegment(segment)).last - 1;
      continue;
    }
    if (!is_new(u)) continue;
    const Range part = part_of(u);
    if (canonical_->MustHold(u, id.micro_batch, part) &&
        !HasRoomFor(BufferPool::BytesFor(canonical_->RangeOfUnit(u).count),
                    canonical_->held_bytes())) {
      waits = true;
      continue;
    }
    canonical_->Add(u, id.micro_batch, part, push.values, push.range.offset);
    if (canonical_->complete(u)) OnUnitComplete(u);
  }
  if (canonical_->folds() != folds) ++progress_;
  if (waits) return MustWait(push.from, {.what = Wait::For::kProgress});
  ++metrics_.pushes_added;
  metrics_.pushed_bytes += push.values.byte_count();
  return PushResult{.outcome = PushResult::Outcome::kAdded, .version = version_};
}

void DenseTable::OnUnitComplete(int unit) {
  const int segment = canonical_->SegmentOfUnit(unit);
  if (--incomplete_units_[static_cast<size_t>(segment)] > 0) return;
  if (by_segments()) {
    FinishSegment(segment);
  } else if (--incomplete_segments_ == 0) {
    PrepareStep();
  }
}

bool DenseTable::IsWholeStepOf(const DensePush& push, int segment) const {
  const Range range = parameters_->RangeOfSegment(segment);
  if (!by_segments() || spec_.contributors > 1 || spec_.micro_batches > 1 ||
      push.id.step != parameters_->version(segment) + 1 || !push.range.Contains(range)) {
    return false;
  }
  const auto units = canonical_->UnitsIn(range);
  for (int u = units.first; u < units.last; ++u) {
    if (!canonical_->untouched(u)) return false;
  }
  return true;
}

void DenseTable::FinishSegment(int segment, const DensePush* whole) {
  const Step step = parameters_->version(segment) + 1;
  const int64_t samples = SamplesOfStep(step);
  const UpdateScalars scalars = {
      .learning_rate = LearningRate(spec_.learning_rate, step),
      .gradient_scale = 1 / static_cast<double>(std::max<int64_t>(1, samples)),
      .update_count = step};
  const Range range = parameters_->RangeOfSegment(segment);
  ++changes_;
  if (whole == nullptr && may_overflow() && !IsFinite(range, std::as_const(sum_).span())) {
    skipped_.insert(step);
  } else if (whole != nullptr) {
    parameters_->Apply(segment, scalars, whole->values, range.offset - whole->range.offset);
  } else {
    parameters_->Apply(segment, scalars, PartOf(std::as_const(sum_).span(), segment));
  }
  parameters_->SetVersion(segment, step);
  ResetSegment(segment);
  if (step == version_ + 1 && --incomplete_segments_ == 0) {
    ++(skipped_.erase(step) > 0 ? metrics_.updates_skipped : metrics_.updates);
    SettleVersions();
  }
}

// The table has what all of its segments have. Segments that are further on keep what they have
// received of their next step.
void DenseTable::SettleVersions() {
  incomplete_segments_ = 0;
  if (by_segments()) {
    std::optional<Version> oldest;
    for (int i = 0; i < parameters_->segment_count(); ++i) {
      if (still(i)) continue;
      const Version version = parameters_->version(i);
      if (!oldest.has_value() || version < *oldest) {
        oldest = version;
        incomplete_segments_ = 0;
      }
      if (version == *oldest) ++incomplete_segments_;
    }
    version_ = oldest.value_or(version_);
    update_count_ = version_;
  } else {
    for (int i = 0; i < parameters_->segment_count(); ++i) {
      if (!still(i)) ++incomplete_segments_;
    }
  }
  samples_.erase(samples_.begin(), samples_.upper_bound(version_));
}

void DenseTable::ResetSegment(int segment) {
  const auto units = canonical_->UnitsIn(parameters_->RangeOfSegment(segment));
  for (int u = units.first; u < units.last; ++u) canonical_->Reset(u);
  incomplete_units_[static_cast<size_t>(segment)] = units_in_segment_[static_cast<size_t>(segment)];
}

void DenseTable::PrepareStep() {
  const Step step = version_ + 1;
  prepared_ = PreparedStep{.step = step, .samples = SamplesOfStep(step)};
  if (needs_squares()) prepared_->squared_gradient = SquaresOf(std::as_const(sum_).span());
  if (spec_.commit == CommitMode::kAutomatic) CommitPrepared(prepared_->squared_gradient);
}

absl::Status DenseTable::Commit(Step step, const SquaredSum& squared_gradient) {
  if (step <= version_ && step >= 1) return absl::OkStatus();
  if (!prepared_.has_value() || prepared_->step != step) {
    return absl::FailedPreconditionError(
        absl::StrCat(Label(), ": step ", step, " is not prepared; ",
                     prepared_.has_value() ? absl::StrCat("step ", prepared_->step, " is")
                                           : absl::StrCat("step ", version_ + 1, " is under way")));
  }
  CommitPrepared(squared_gradient);
  ++progress_;
  return absl::OkStatus();
}

void DenseTable::CommitPrepared(const SquaredSum& squared_gradient) {
  const PreparedStep step = *prepared_;
  prepared_.reset();
  ApplyAll(step.step, step.samples, squared_gradient, std::as_const(sum_).span());
  version_ = step.step;
  for (int i = 0; i < parameters_->segment_count(); ++i) {
    parameters_->SetVersion(i, version_);
    ResetSegment(i);
  }
  SettleVersions();
}

// ---- on arrival ------------------------------------------------------------------------------

absl::StatusOr<PushResult> DenseTable::PushOnArrival(const DensePush& push) {
  const PushId id = push.id;
  const Step next = streams_->applied(id.micro_batch) + 1;
  if (id.step < next) return Duplicate();
  if (id.step > next) {
    return Refused(absl::FailedPreconditionError(
        absl::StrCat("micro-batch ", id.micro_batch, ": expected step ", next, ", got ", id.step,
                     "; steps come one after the other")));
  }
  if (const auto wait = StalenessWait(id.step - 1); wait.has_value())
    return MustWait(push.from, *wait);
  if (assembly_->Received(id.micro_batch, push.range)) return Duplicate();
  if (absl::Status status = CheckGradient(push.range, push.values); !status.ok()) {
    return Refused(std::move(status));
  }
  const PushAssembly::Push* const under_way = assembly_->Find(id.micro_batch);
  const bool whole = push.range == range_;
  if (under_way == nullptr && whole && push.values.AsFloats().has_value()) {
    ApplyPush(push, *push.values.AsFloats());
  } else {
    if (under_way != nullptr && under_way->samples != push.samples) {
      return Refused(absl::InvalidArgumentError(absl::StrCat(
          "step ", id.step, ", micro-batch ", id.micro_batch, ": expected ", under_way->samples,
          " samples, as in an earlier chunk, got ", push.samples)));
    }
    if (under_way == nullptr && !HasRoomFor(assembly_->bytes_of_push(), assembly_->held_bytes())) {
      return MustWait(push.from, {.what = Wait::For::kProgress});
    }
    PushAssembly::Push& assembled = assembly_->Add(id, push.samples, push.range, push.values);
    const bool complete = std::all_of(trained_.begin(), trained_.end(),
                                      [&](Range range) { return assembled.have.Contains(range); });
    if (complete) {
      ApplyPush(push, std::as_const(assembled.values).span());
      assembly_->Remove(id.micro_batch);
    }
  }
  ++metrics_.pushes_added;
  metrics_.pushed_bytes += push.values.byte_count();
  return PushResult{.outcome = PushResult::Outcome::kAdded, .version = version_};
}

void DenseTable::ApplyPush(const DensePush& push, absl::Span<const float> gradient) {
  metrics_.staleness.Observe(
      std::max<int64_t>(0, version_ - contributors_.pulled(push.from.index)));
  ApplyAll(push.id.step, push.samples, needs_squares() ? SquaresOf(gradient) : SquaredSum(),
           gradient);
  ++version_;
  streams_->SetApplied(push.id.micro_batch, push.id.step);
  ++progress_;
}

void DenseTable::DropIncomplete(int32_t contributor) {
  // Contributions to a synchronous step are the same whoever makes them.
  if (!assembly_.has_value()) return;
  const MicroBatchShare share = contributions_.ShareOf(contributor);
  for (int32_t m = share.first; m < share.last; ++m) assembly_->Remove(m);
}

// ---- applying --------------------------------------------------------------------------------

bool DenseTable::needs_squares() const {
  return spec_.clip_norm > 0 || spec_.nonfinite == NonfinitePolicy::kSkip ||
         spec_.commit == CommitMode::kExternal;
}

SquaredSum DenseTable::SquaresOf(absl::Span<const float> gradient) const {
  SquaredSum sum;
  // Padding may hold anything that was pushed.
  for (const Range part : trained_) {
    sum.Add(gradient.subspan(part.offset - range_.offset, part.count));
  }
  return sum;
}

absl::Span<const float> DenseTable::PartOf(absl::Span<const float> gradient, int segment) const {
  const Range range = parameters_->RangeOfSegment(segment);
  return gradient.subspan(range.offset - range_.offset, range.count);
}

void DenseTable::ApplyAll(Step step, int64_t samples, const SquaredSum& squared_gradient,
                          absl::Span<const float> gradient) {
  const bool finite =
      needs_squares() || !may_overflow() ? squared_gradient.finite() : IsFinite(range_, gradient);
  if (!finite) {
    ++metrics_.updates_skipped;
    return;
  }
  const GradientScale scale = ComputeGradientScale(squared_gradient.Value(),
                                                   std::max<int64_t>(1, samples), spec_.clip_norm);
  ++changes_;
  ++update_count_;
  ++metrics_.updates;
  metrics_.updates_clipped += scale.clipped ? 1 : 0;
  UpdateScalars scalars = {.learning_rate = LearningRate(spec_.learning_rate, step),
                           .gradient_scale = scale.scale,
                           .update_count = update_count_};
  const int segments = parameters_->segment_count();
  if (rule_->factor_count() > 0) {
    TensorSums sums(rule_->factor_count());
    for (int i = 0; i < segments; ++i) {
      parameters_->Prepare(i, scalars, PartOf(gradient, i), sums);
    }
    scalars.tensor_factors = rule_->TensorFactors(sums);
  }
  for (int i = 0; i < segments; ++i) parameters_->Apply(i, scalars, PartOf(gradient, i));
}

}  // namespace muster
