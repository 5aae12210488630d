#include "server/parameter_server/core/sparse_table.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "collectives/reduce/finite.h"
#include "state/gradient_norm.h"
#include "state/step_scalars.h"

namespace muster {

absl::StatusOr<std::unique_ptr<SparseTable>> SparseTable::Create(const TableSpec& spec,
                                                                 const TableLimits& limits,
                                                                 MemoryAccount& account) {
  MUSTER_CHECK(!spec.dense());
  MUSTER_ASSIGN_OR_RETURN(const TableSpec resolved, Resolve(spec));
  MUSTER_ASSIGN_OR_RETURN(Layout layout, LayoutOf(resolved));
  MUSTER_ASSIGN_OR_RETURN(auto rule, UpdateRule::Create(resolved.rule, layout));
  return std::unique_ptr<SparseTable>(
      new SparseTable(resolved, limits, account, std::move(layout), std::move(rule)));
}

SparseTable::SparseTable(const TableSpec& spec, const TableLimits& limits, MemoryAccount& account,
                         Layout layout, std::unique_ptr<UpdateRule> rule)
    : Table(spec, limits),
      layout_(std::move(layout)),
      rule_(std::move(rule)),
      account_(account),
      pool_(account, limits.idle_bytes),
      store_(layout_, spec.seed, *std::get<SparseShape>(spec.shape).range, *rule_, pool_, account),
      received_(contributions_, store_.width(), pool_, account) {}

SparseTable::~SparseTable() = default;

bool SparseTable::Has(Range, Version version) const { return version_ >= version; }

void SparseTable::DropIncomplete(int32_t contributor) {
  const MicroBatchShare share = contributions_.ShareOf(contributor);
  for (int32_t m = share.first; m < share.last; ++m) {
    const auto* const push = received_.Find(m);
    if (push != nullptr && !push->complete()) received_.Remove(m);
  }
}

absl::Status SparseTable::CheckRows(absl::Span<const int64_t> rows) const {
  const Range range = store_.range();
  for (const int64_t row : rows) {
    if (row >= range.offset && row < range.end()) continue;
    return absl::OutOfRangeError(absl::StrCat("expected rows of [", range.offset, ", ", range.end(),
                                              "), which this server has, got row ", row,
                                              "; ask the server that owns it"));
  }
  return absl::OkStatus();
}

absl::Status SparseTable::CheckValues(const SparsePush& push,
                                      absl::Span<const int64_t> rows) const {
  if (push.chunk_count < 1 || push.chunk < 0 || push.chunk >= push.chunk_count) {
    return absl::InvalidArgumentError(
        absl::StrCat("expected a chunk below the number of chunks, "
                     "got chunk ",
                     push.chunk, " of ", push.chunk_count));
  }
  MUSTER_RETURN_IF_ERROR(CheckRows(rows));
  return CheckCount(rows, push.values);
}

absl::Status SparseTable::CheckCount(absl::Span<const int64_t> rows,
                                     const GradientBytes& values) const {
  const int64_t expected = static_cast<int64_t>(rows.size()) * width();
  if (values.count() == expected) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("expected ", expected, " values (", rows.size(),
                                                 " rows of ", width(), "), got ", values.count(),
                                                 " of ", Name(values.dtype())));
}

absl::Status SparseTable::CheckFinite(absl::Span<const int64_t> rows,
                                      const GradientBytes& values) const {
  if (spec_.nonfinite != NonfinitePolicy::kRefuse) return absl::OkStatus();
  const auto found = values.FirstNonfinite(0, values.count());
  if (!found.has_value()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("expected finite values, got a NaN or an infinity in column ", *found % width(),
                   " of row ", rows[static_cast<size_t>(*found / width())]));
}

absl::StatusOr<PushResult> SparseTable::Push(const SparsePush& push, absl::Time now) {
  MUSTER_RETURN_IF_ERROR(CheckPush(push.from, push.id, push.samples, now));
  std::vector<int64_t> all;
  absl::Span<const int64_t> rows = push.rows;
  if (push.rows_range.has_value()) {
    const Range wanted = *push.rows_range;
    // Before as many numbers are written down.
    if (wanted.count <= 0 || !store_.range().Contains(wanted)) {
      return Refused(absl::OutOfRangeError(absl::StrCat(
          "expected a range within rows [", range().offset, ", ", range().end(), "), got ",
          wanted.count, " from ", wanted.offset, " on; ask the server that owns them")));
    }
    if (push.values.count() / width() == wanted.count) {
      all.resize(static_cast<size_t>(wanted.count));
      std::iota(all.begin(), all.end(), wanted.offset);
    }
    rows = all;
  }
  if (absl::Status status = CheckValues(push, rows); !status.ok()) return Refused(status);
  touched_ = true;
  absl::StatusOr<PushResult> result = PushChecked(push, rows);
  if (!result.ok()) return Refused(result.status());
  if (result->outcome == PushResult::Outcome::kAdded) {
    ++metrics_.pushes_added;
    metrics_.pushed_bytes += push.values.byte_count();
  }
  return result;
}

absl::StatusOr<PushResult> SparseTable::PushChecked(const SparsePush& push,
                                                    absl::Span<const int64_t> rows) {
  const PushId id = push.id;
  const bool on_arrival = streams_.has_value();
  const Step next = (on_arrival ? streams_->applied(id.micro_batch) : version_) + 1;
  if (id.step < next) return Duplicate();
  if (id.step > next) {
    if (on_arrival) {
      return absl::FailedPreconditionError(absl::StrCat("micro-batch ", id.micro_batch,
                                                        ": expected step ", next, ", got ", id.step,
                                                        "; steps come one after the other"));
    }
    return MustWait(push.from, {.what = Wait::For::kVersion, .value = id.step - 1});
  }
  if (const auto wait = StalenessWait(id.step - 1); wait.has_value())
    return MustWait(push.from, *wait);
  const auto* const under_way = received_.Find(id.micro_batch);
  if (under_way != nullptr) {
    if (under_way->samples != push.samples || under_way->chunk_count != push.chunk_count) {
      return absl::InvalidArgumentError(absl::StrCat(
          "step ", id.step, ", micro-batch ", id.micro_batch, ": expected ", under_way->samples,
          " samples in ", under_way->chunk_count, " chunks, as in an earlier chunk, got ",
          push.samples, " in ", push.chunk_count));
    }
    if (under_way->chunks.contains(push.chunk)) return Duplicate();
  }
  MUSTER_RETURN_IF_ERROR(CheckFinite(rows, push.values));
  const int64_t bytes = received_.BytesFor(static_cast<int64_t>(rows.size()));
  const int64_t held = received_.held_bytes();
  if (held > 0 && held + bytes > limits_.held_bytes) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "pushes that are not complete hold ", held, " bytes, and ", bytes, " more are beyond the ",
        limits_.held_bytes, " that may be held; push fewer rows at a time, or raise the limit"));
  }
  if (!store_.Touch(rows)) {
    return absl::ResourceExhaustedError(
        absl::StrCat("no room for new rows beside ", store_.row_count(), "; the server has ",
                     account_.taken_bytes(), " of its ", account_.budget_bytes(),
                     " bytes in use: drop a table, raise the budget, or use more servers"));
  }
  const bool complete = received_.Add(push, rows).complete();
  if (on_arrival && complete) {
    metrics_.staleness.Observe(
        std::max<int64_t>(0, version_ - contributors_.pulled(push.from.index)));
    const RowSums sums = received_.SumOfPush(id.micro_batch, &metrics_.rows_merged);
    received_.Remove(id.micro_batch);
    Apply(id.step, push.samples, sums);
    streams_->SetApplied(id.micro_batch, id.step);
  } else if (!on_arrival && received_.complete_count() == spec_.micro_batches) {
    const RowSums sums = received_.SumOfStep(&metrics_.rows_merged);
    const int64_t samples = received_.SamplesOfStep();
    received_.Clear();
    Apply(id.step, samples, sums);
  }
  return PushResult{.outcome = PushResult::Outcome::kAdded, .version = version_};
}

void SparseTable::Apply(Step step, int64_t samples, const RowSums& sums) {
  ++version_;
  ++progress_;
  const absl::Span<const float> values = sums.all_values();
  // Finite gradients, too, may have a sum that is not.
  if (FirstNonfinite(DType::kF32, values.data(), static_cast<int64_t>(values.size()))) {
    ++metrics_.updates_skipped;
    return;
  }
  SquaredSum squares;
  if (spec_.clip_norm > 0) squares.Add(values);
  const GradientScale scale =
      ComputeGradientScale(squares.Value(), std::max<int64_t>(1, samples), spec_.clip_norm);
  ++changes_;
  ++update_count_;
  ++metrics_.updates;
  metrics_.updates_clipped += scale.clipped ? 1 : 0;
  const UpdateScalars scalars = {.learning_rate = LearningRate(spec_.learning_rate, step),
                                 .gradient_scale = scale.scale,
                                 .update_count = update_count_};
  for (size_t i = 0; i < sums.rows().size(); ++i) {
    store_.Apply(sums.rows()[i], scalars, sums.values(i));
  }
}

absl::StatusOr<SparsePullResult> SparseTable::Pull(const SparsePull& pull, absl::Span<float> values,
                                                   absl::Time now) {
  MUSTER_CHECK_EQ(static_cast<int64_t>(values.size()),
                  static_cast<int64_t>(pull.rows.size()) * width());
  if (absl::Status status = CheckRows(pull.rows); !status.ok()) return Annotate(status, Label());
  SparsePullResult result;
  MUSTER_ASSIGN_OR_RETURN(result.wait, CheckPull(pull.from, {}, pull.min_version, now));
  if (result.wait.has_value()) return result;
  touched_ = true;
  for (size_t i = 0; i < pull.rows.size(); ++i) {
    store_.Read(pull.rows[i], values.subspan(i * static_cast<size_t>(width()), width()));
  }
  result.version = version_;
  if (pull.from.has_value()) contributors_.SetPulled(pull.from->index, version_);
  ++metrics_.pulls;
  metrics_.pulled_bytes += static_cast<int64_t>(values.size() * sizeof(float));
  return result;
}

absl::Status SparseTable::Assign(ContributorId from, absl::Span<const int64_t> rows,
                                 const GradientBytes& values, absl::Time now) {
  MUSTER_RETURN_IF_ERROR(contributors_.Check(from, now));
  if (touched_) {
    return absl::FailedPreconditionError(
        absl::StrCat(Label(), " is in use; initial values come before the first push and pull"));
  }
  absl::Status status = CheckRows(rows);
  if (status.ok()) status = CheckCount(rows, values);
  if (status.ok()) status = CheckFinite(rows, values);
  if (status.ok() && !store_.Touch(rows)) {
    status = absl::ResourceExhaustedError(
        absl::StrCat("no room for ", rows.size(), " rows; the server has ", account_.taken_bytes(),
                     " of its ", account_.budget_bytes(), " bytes in use"));
  }
  if (!status.ok()) return Annotate(status, Label());
  ++changes_;
  for (size_t i = 0; i < rows.size(); ++i) {
    values.CopyTo(static_cast<int64_t>(i) * width(), store_.MutableArray(rows[i], 0));
  }
  return absl::OkStatus();
}

TableMetrics SparseTable::Metrics() const {
  TableMetrics metrics = metrics_;
  metrics.table_bytes = store_.bytes();
  metrics.held_bytes = received_.held_bytes();
  metrics.idle_bytes = pool_.idle_bytes() + pool_.reserved_bytes();
  metrics.rows = store_.row_count();
  return metrics;
}

SnapshotHeader SparseTable::Header() const {
  SnapshotHeader header{.spec = spec_, .version = version_, .update_count = update_count_};
  if (streams_.has_value()) header.applied_steps = streams_->applied_steps();
  header.rows = store_.Rows();
  header.array_count = 1 + rule_->state_slots();
  header.array_elements = static_cast<int64_t>(header.rows.size()) * width();
  return header;
}

absl::Status SparseTable::VisitArrays(VisitPart visit) const {
  const std::vector<int64_t> rows = store_.Rows();
  for (int array = 0; array < 1 + rule_->state_slots(); ++array) {
    for (size_t i = 0; i < rows.size(); ++i) {
      MUSTER_RETURN_IF_ERROR(
          visit(array, static_cast<int64_t>(i) * width(), store_.Array(rows[i], array)));
    }
  }
  return absl::OkStatus();
}

absl::Status SparseTable::OnRestoreBegun(const SnapshotHeader& header) {
  bool good = header.array_count == 1 + rule_->state_slots() && header.segment_versions.empty() &&
              header.array_elements == static_cast<int64_t>(header.rows.size()) * width();
  for (size_t i = 1; i < header.rows.size(); ++i) good &= header.rows[i - 1] < header.rows[i];
  if (!good) {
    return absl::InvalidArgumentError(
        absl::StrCat("expected a snapshot of ", 1 + rule_->state_slots(), " arrays of ",
                     header.rows.size(), " rows of ", width(), ", the rows rising, got ",
                     header.array_count, " of ", header.array_elements, " elements"));
  }
  MUSTER_RETURN_IF_ERROR(CheckRows(header.rows));
  store_.Clear();  // rows that were assigned and are not the snapshot's
  if (!store_.Touch(header.rows)) {
    store_.Clear();
    return absl::ResourceExhaustedError(
        absl::StrCat("no room for ", header.rows.size(), " rows; the server has ",
                     account_.taken_bytes(), " of its ", account_.budget_bytes(),
                     " bytes in use: drop a table, raise the budget, or use more servers"));
  }
  restored_rows_ = header.rows;
  return absl::OkStatus();
}

void SparseTable::ReadArray(const SnapshotHeader& header, int array, int64_t offset,
                            absl::Span<float> values) const {
  for (int64_t i = 0; i < static_cast<int64_t>(values.size());) {
    const int64_t at = offset + i;
    const int64_t column = at % width();
    const int64_t n = std::min(width() - column, static_cast<int64_t>(values.size()) - i);
    const auto from = store_.Array(header.rows[static_cast<size_t>(at / width())], array);
    std::copy_n(from.begin() + column, n, values.begin() + i);
    i += n;
  }
}

void SparseTable::WriteArray(int array, int64_t offset, absl::Span<const float> values) {
  for (int64_t i = 0; i < static_cast<int64_t>(values.size());) {
    const int64_t at = offset + i;
    const int64_t column = at % width();
    const int64_t n = std::min(width() - column, static_cast<int64_t>(values.size()) - i);
    const auto from = values.subspan(i, n);
    std::copy(
        from.begin(), from.end(),
        store_.MutableArray(restored_rows_[static_cast<size_t>(at / width())], array).begin() +
            column);
    i += n;
  }
}

void SparseTable::OnRestored(const SnapshotHeader&) { restored_rows_ = {}; }

void SparseTable::OnRestoreAborted() {
  store_.Clear();
  restored_rows_ = {};
}

}  // namespace muster
