// Creation, checks, and what a table shows; pushes are in dense_push.cc.
#include "server/parameter_server/core/dense_table.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "collectives/reduce/finite.h"
#include "state/initialize.h"

namespace muster {
namespace {

// What a range and a segment have in common.
struct Piece {
  int64_t in_segment = 0;  // where it begins there
  int64_t in_part = 0;     // and in the range
  int64_t count = 0;
};

// Calls visit(segment, piece) for each segment that `part` touches, in order.
template <typename Visit>
void ForEachPiece(const VersionedParameters& parameters, Range part, Visit visit) {
  const auto span = parameters.SegmentsIn(part);
  for (int i = span.first; i < span.last; ++i) {
    const Range segment = parameters.RangeOfSegment(i);
    const int64_t begin = std::max(part.offset, segment.offset);
    const int64_t end = std::min(part.end(), segment.end());
    visit(i, Piece{begin - segment.offset, begin - part.offset, end - begin});
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<DenseTable>> DenseTable::Create(const TableSpec& spec,
                                                               const TableLimits& limits,
                                                               MemoryAccount& account) {
  MUSTER_CHECK(spec.dense());
  MUSTER_CHECK(limits.segment_elements > 0);
  MUSTER_ASSIGN_OR_RETURN(const TableSpec resolved, Resolve(spec));
  MUSTER_ASSIGN_OR_RETURN(Layout layout, LayoutOf(resolved));
  MUSTER_ASSIGN_OR_RETURN(auto rule, UpdateRule::Create(resolved.rule, layout));
  const Range range = *std::get<DenseShape>(resolved.shape).range;
  auto table = std::unique_ptr<DenseTable>(
      new DenseTable(resolved, limits, account, std::move(layout), std::move(rule), range));
  if (absl::Status status = table->Allocate(); !status.ok()) {
    return Annotate(status, table->Label());
  }
  return table;
}

DenseTable::DenseTable(const TableSpec& spec, const TableLimits& limits, MemoryAccount& account,
                       Layout layout, std::unique_ptr<UpdateRule> rule, Range range)
    : Table(spec, limits),
      layout_(std::move(layout)),
      rule_(std::move(rule)),
      range_(range),
      account_(account),
      pool_(account, limits.idle_bytes) {}

DenseTable::~DenseTable() = default;

absl::Status DenseTable::Reserve(int64_t bytes, absl::string_view what, bool keep) {
  if (pool_.TryReserve(bytes, keep)) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("its ", range_.count, " elements need ", bytes, " bytes for ", what,
                   "; the server has ", account_.taken_bytes(), " of its ", account_.budget_bytes(),
                   " bytes in use: drop a table, raise the budget, or use more servers"));
}

absl::Status DenseTable::Allocate() {
  const int64_t segment_elements = limits_.segment_elements;
  const int64_t parameter_bytes = VersionedParameters::BytesFor(range_, segment_elements, *rule_);
  if (sums()) {
    MUSTER_RETURN_IF_ERROR(Reserve(parameter_bytes + BufferPool::BytesFor(range_.count),
                                   "parameters, optimizer state and sums", /*keep=*/false));
  } else {
    MUSTER_RETURN_IF_ERROR(
        Reserve(parameter_bytes, "parameters and optimizer state", /*keep=*/false));
  }
  parameters_.emplace(range_, segment_elements, *rule_, pool_);
  for (const Tensor& tensor : layout_.tensors()) {
    const int64_t begin = std::max(tensor.offset, range_.offset);
    const int64_t end = std::min(tensor.offset + tensor.count, range_.end());
    if (begin < end && !tensor.spec.frozen) trained_.push_back({begin, end - begin});
  }
  SetInitialValues();
  if (!sums()) {
    assembly_.emplace(range_, pool_);
    return absl::OkStatus();
  }
  sum_ = pool_.Take(range_.count);
  // Padding is never summed; it stays zero.
  std::fill(sum_.span().begin(), sum_.span().end(), 0.0f);
  MUSTER_ASSIGN_OR_RETURN(canonical_, CanonicalSum::Create(layout_, range_, segment_elements,
                                                           contributions_, pool_, sum_.span()));
  if (spec_.micro_batches > spec_.contributors) {
    partial_sums_bytes_ = canonical_->BytesOfPartialSums();
    MUSTER_RETURN_IF_ERROR(
        Reserve(partial_sums_bytes_,
                "the partial sums of contributors with several micro-batches (let these add them "
                "up themselves, and push one)",
                /*keep=*/true));
  }
  units_in_segment_.assign(static_cast<size_t>(parameters_->segment_count()), 0);
  for (int u = 0; u < canonical_->unit_count(); ++u) {
    ++units_in_segment_[static_cast<size_t>(canonical_->SegmentOfUnit(u))];
  }
  incomplete_units_ = units_in_segment_;
  SettleVersions();
  return absl::OkStatus();
}

void DenseTable::SetInitialValues() {
  const auto clear = [](absl::Span<float> values) {
    std::fill(values.begin(), values.end(), 0.0f);
  };
  for (int i = 0; i < parameters_->segment_count(); ++i) {
    const absl::Span<float> values = parameters_->mutable_values(i);
    clear(values);  // padding
    InitializeRange(layout_, spec_.seed, parameters_->RangeOfSegment(i), values);
    for (int slot = 0; slot < rule_->state_slots(); ++slot) {
      clear(parameters_->mutable_slot(i, slot));
    }
  }
}

Version DenseTable::VersionOfSegment(int segment) const {
  return by_segments() ? parameters_->version(segment) : version_;
}

bool DenseTable::Has(Range range, Version version) const {
  // A table in which nothing trains never changes: it has every version.
  if (trained_.empty() || version_ >= version) return true;
  if (!by_segments()) return false;
  const auto span = parameters_->SegmentsIn(range);
  for (int i = span.first; i < span.last; ++i) {
    if (!still(i) && parameters_->version(i) < version) return false;
  }
  return true;
}

void DenseTable::ForEachTrained(Range range, absl::FunctionRef<void(Range part)> visit) const {
  auto it = std::partition_point(trained_.begin(), trained_.end(),
                                 [&](const Range& r) { return r.end() <= range.offset; });
  for (; it != trained_.end() && it->offset < range.end(); ++it) {
    const int64_t begin = std::max(it->offset, range.offset);
    const int64_t end = std::min(it->end(), range.end());
    visit({.offset = begin, .count = end - begin});
  }
}

std::string DenseTable::ElementName(int64_t element) const {
  for (const Tensor& tensor : layout_.tensors()) {
    if (element < tensor.offset || element >= tensor.offset + tensor.count) continue;
    return absl::StrCat("element ", element - tensor.offset, " of tensor \"", tensor.spec.name,
                        "\"");
  }
  return absl::StrCat("padding element ", element);
}

absl::Status DenseTable::CheckRange(Range range) const {
  if (range.count > 0 && range_.Contains(range)) return absl::OkStatus();
  return absl::OutOfRangeError(absl::StrCat("expected elements of [", range_.offset, ", ",
                                            range_.end(), "), which this server has of ",
                                            layout_.padded_count(), ", got ", range.count, " from ",
                                            range.offset, " on; ask the server that owns them"));
}

absl::Status DenseTable::CheckCount(Range range, const GradientBytes& values) const {
  if (values.count() == range.count) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("expected ", range.count, " values (elements ",
                                                 range.offset, " to ", range.end() - 1, "), got ",
                                                 values.count(), " of ", Name(values.dtype())));
}

absl::Status DenseTable::CheckFinite(Range part, Range range, const GradientBytes& values) const {
  const std::optional<int64_t> found =
      values.FirstNonfinite(part.offset - range.offset, part.count);
  if (!found.has_value()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "expected finite values, got a NaN or an infinity in ", ElementName(range.offset + *found)));
}

absl::Status DenseTable::CheckGradient(Range range, const GradientBytes& values) const {
  absl::Status status;
  if (spec_.nonfinite != NonfinitePolicy::kRefuse) return status;
  ForEachTrained(range, [&](Range part) {
    if (status.ok()) status = CheckFinite(part, range, values);
  });
  if (status.ok()) return status;
  return absl::InvalidArgumentError(absl::StrCat(
      status.message(), "; lower the learning rate, clip, or let the table skip such steps"));
}

bool DenseTable::IsFinite(Range range, absl::Span<const float> gradient) const {
  bool finite = true;
  ForEachTrained(range, [&](Range part) {
    finite = finite && !FirstNonfinite(DType::kF32, gradient.data() + (part.offset - range_.offset),
                                       part.count)
                            .has_value();
  });
  return finite;
}

absl::StatusOr<DensePullResult> DenseTable::Pull(const DensePull& pull, absl::Time now) {
  if (absl::Status status = CheckRange(pull.range); !status.ok()) return Annotate(status, Label());
  DensePullResult result;
  MUSTER_ASSIGN_OR_RETURN(result.wait, CheckPull(pull.from, pull.range, pull.min_version, now));
  if (result.wait.has_value()) return result;
  if (parameters_->retired_bytes() > limits_.retired_bytes) {
    ++metrics_.pull_waits;
    result.wait = Wait{.what = Wait::For::kProgress, .from = pull.from};
    return result;
  }
  touched_ = true;
  result.version = version_;
  if (by_segments()) {
    const auto span = parameters_->SegmentsIn(pull.range);
    std::optional<Version> oldest;
    for (int i = span.first; i < span.last; ++i) {
      if (still(i)) continue;
      oldest = std::min(oldest.value_or(parameters_->version(i)), parameters_->version(i));
    }
    result.version = oldest.value_or(version_);
  }
  // What never changes is of every version.
  result.version = std::max(result.version, pull.min_version);
  result.pin = parameters_->Pin(pull.range, &result.pieces);
  if (pull.from.has_value()) contributors_.SetPulled(pull.from->index, result.version);
  ++metrics_.pulls;
  metrics_.pulled_bytes += pull.range.count * static_cast<int64_t>(sizeof(float));
  return result;
}

void DenseTable::Release(PinId pin) {
  const int64_t retired = parameters_->retired_bytes();
  parameters_->Unpin(pin);
  if (parameters_->retired_bytes() < retired) ++progress_;
}

absl::Status DenseTable::Assign(ContributorId from, Range range, const GradientBytes& values,
                                absl::Time now) {
  MUSTER_RETURN_IF_ERROR(contributors_.Check(from, now));
  if (touched_) {
    return absl::FailedPreconditionError(
        absl::StrCat(Label(), " is in use; initial values come before the first push and pull"));
  }
  absl::Status status = CheckRange(range);
  if (status.ok()) status = CheckCount(range, values);
  if (!status.ok()) return Annotate(status, Label());
  // Of the range, what lies in one tensor and one segment.
  struct Part {
    Range range;
    int segment = 0;
  };
  std::vector<Part> parts;
  const auto span = parameters_->SegmentsIn(range);
  for (const Tensor& tensor : layout_.tensors()) {
    for (int i = span.first; i < span.last; ++i) {
      const Range segment = parameters_->RangeOfSegment(i);
      const int64_t begin = std::max({tensor.offset, segment.offset, range.offset});
      const int64_t end = std::min({tensor.offset + tensor.count, segment.end(), range.end()});
      if (begin < end) parts.push_back({.range = {begin, end - begin}, .segment = i});
    }
  }
  for (const Part& part : parts) {
    if (spec_.nonfinite != NonfinitePolicy::kRefuse) break;
    status = CheckFinite(part.range, range, values);
    if (!status.ok()) return Annotate(status, Label());
  }
  ++changes_;
  for (const Part& part : parts) {
    const int64_t at = part.range.offset - parameters_->RangeOfSegment(part.segment).offset;
    values.CopyTo(part.range.offset - range.offset,
                  parameters_->mutable_values(part.segment).subspan(at, part.range.count));
  }
  return absl::OkStatus();
}

TableMetrics DenseTable::Metrics() const {
  TableMetrics metrics = metrics_;
  metrics.held_bytes = sums() ? canonical_->held_bytes() : assembly_->held_bytes();
  metrics.retired_bytes = parameters_->retired_bytes();
  metrics.idle_bytes = pool_.idle_bytes() + pool_.reserved_bytes();
  metrics.table_bytes = pool_.used_bytes() - metrics.held_bytes - metrics.retired_bytes;
  metrics.pins = static_cast<int64_t>(parameters_->pin_count());
  return metrics;
}

SnapshotHeader DenseTable::Header() const {
  SnapshotHeader header{.spec = spec_, .version = version_, .update_count = update_count_};
  for (int i = 0; by_segments() && i < parameters_->segment_count(); ++i) {
    header.segment_versions.push_back(parameters_->version(i));
  }
  if (streams_.has_value()) header.applied_steps = streams_->applied_steps();
  header.array_count = 1 + rule_->state_slots();
  header.array_elements = range_.count;
  return header;
}

absl::Status DenseTable::VisitArrays(VisitPart visit) const {
  for (int array = 0; array < 1 + rule_->state_slots(); ++array) {
    for (int i = 0; i < parameters_->segment_count(); ++i) {
      MUSTER_RETURN_IF_ERROR(
          visit(array, parameters_->RangeOfSegment(i).offset - range_.offset,
                array == 0 ? parameters_->values(i) : parameters_->slot(i, array - 1)));
    }
  }
  return absl::OkStatus();
}

absl::Status DenseTable::OnRestoreBegun(const SnapshotHeader& header) {
  const size_t segments = by_segments() ? static_cast<size_t>(parameters_->segment_count()) : 0;
  bool good = header.array_count == 1 + rule_->state_slots() &&
              header.array_elements == range_.count && header.segment_versions.size() == segments;
  for (const Version version : header.segment_versions) good &= version >= 0;
  if (good) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "expected a snapshot of ", 1 + rule_->state_slots(), " arrays of ", range_.count,
      " elements, ", segments, " segments with versions, got ", header.array_count, " of ",
      header.array_elements, ", ", header.segment_versions.size(), " segments"));
}

void DenseTable::ReadArray(const SnapshotHeader&, int array, int64_t offset,
                           absl::Span<float> values) const {
  const Range part = {range_.offset + offset, static_cast<int64_t>(values.size())};
  ForEachPiece(*parameters_, part, [&](int segment, Piece piece) {
    const auto from =
        array == 0 ? parameters_->values(segment) : parameters_->slot(segment, array - 1);
    const auto taken = from.subspan(piece.in_segment, piece.count);
    std::copy(taken.begin(), taken.end(), values.begin() + piece.in_part);
  });
}

void DenseTable::WriteArray(int array, int64_t offset, absl::Span<const float> values) {
  const Range part = {range_.offset + offset, static_cast<int64_t>(values.size())};
  ForEachPiece(*parameters_, part, [&](int segment, Piece piece) {
    const absl::Span<float> to = array == 0 ? parameters_->mutable_values(segment)
                                            : parameters_->mutable_slot(segment, array - 1);
    const auto given = values.subspan(piece.in_part, piece.count);
    std::copy(given.begin(), given.end(), to.begin() + piece.in_segment);
  });
}

void DenseTable::OnRestored(const SnapshotHeader& header) {
  for (int i = 0; i < parameters_->segment_count(); ++i) {
    parameters_->SetVersion(
        i, by_segments() ? header.segment_versions[static_cast<size_t>(i)] : header.version);
  }
  if (sums()) SettleVersions();
}

}  // namespace muster
