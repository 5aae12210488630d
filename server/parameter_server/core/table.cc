#include "server/parameter_server/core/table.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status_macros.h"

namespace muster {

// Sums of samples do not overflow.
static_assert(TableSpec::kMaxMicroBatches <=
              std::numeric_limits<int64_t>::max() / kMaxSamplesOfPush);

Table::Table(const TableSpec& spec, const TableLimits& limits)
    : spec_(spec),
      limits_(limits),
      contributions_(spec.contributors, spec.micro_batches),
      contributors_(spec.name, spec.contributors) {
  if (spec.consistency != Consistency::kSynchronous) streams_.emplace(contributions_);
}

std::string Table::Label() const { return absl::StrCat("table \"", spec_.name, "\""); }

absl::StatusOr<AttachResult> Table::Attach(ContributorId id, absl::Time now, absl::Duration lease) {
  // Of the others, before this one counts.
  Step slowest = StepStreams::kNobody;
  if (spec_.consistency == Consistency::kBoundedStaleness) {
    slowest = streams_->Slowest(contributors_);
  }
  MUSTER_ASSIGN_OR_RETURN(const bool joins, contributors_.Attach(id, now, lease));
  if (joins) {
    DropIncomplete(id.index);
    if (slowest != StepStreams::kNobody) streams_->SkipTo(id.index, slowest);
    ++progress_;
  }
  AttachResult result{.version = version_};
  const MicroBatchShare share = contributions_.ShareOf(id.index);
  for (int32_t m = share.first; m < share.last; ++m) {
    result.next.push_back(
        {.micro_batch = m, .step = (streams_.has_value() ? streams_->applied(m) : version_) + 1});
  }
  return result;
}

void Table::Detach(ContributorId id) { contributors_.Detach(id); }

absl::Status Table::Heartbeat(ContributorId id, absl::Time now) {
  return contributors_.Check(id, now);
}

absl::Status Table::Remove(int32_t index) {
  MUSTER_RETURN_IF_ERROR(contributors_.Remove(index));
  DropIncomplete(index);
  ++progress_;
  return absl::OkStatus();
}

std::vector<int32_t> Table::Expire(absl::Time now) { return contributors_.Expire(now); }

std::vector<Ticket> Table::TakeReady() {
  const Step slowest =
      streams_.has_value() ? streams_->Slowest(contributors_) : StepStreams::kNobody;
  return waits_.TakeReady(
      progress_,
      [&](const Wait& wait) {
        return wait.what == Wait::For::kVersion ? Has(wait.range, wait.value)
                                                : slowest >= wait.value;
      },
      [&](ContributorId id) { return contributors_.attached(id); });
}

absl::Status Table::Refused(absl::Status status) {
  ++metrics_.pushes_refused;
  return Annotate(status, Label());
}

absl::Status Table::CheckPush(ContributorId from, PushId id, int64_t samples, absl::Time now) {
  if (restoring_.has_value()) {
    return absl::UnavailableError(absl::StrCat(Label(), " is being restored; try again"));
  }
  if (absl::Status status = contributors_.Check(from, now); !status.ok()) {
    ++metrics_.pushes_fenced;
    ++metrics_.pushes_refused;
    return status;
  }
  if (id.step < 1 || id.micro_batch < 0 || id.micro_batch >= spec_.micro_batches || samples < 0 ||
      samples > kMaxSamplesOfPush) {
    return Refused(absl::InvalidArgumentError(
        absl::StrCat("expected a step from 1 on, a micro-batch of 0 to ", spec_.micro_batches - 1,
                     " and 0 to ", kMaxSamplesOfPush, " samples, got step ", id.step,
                     ", micro-batch ", id.micro_batch, ", ", samples, " samples")));
  }
  const MicroBatchShare share = contributions_.ShareOf(from.index);
  if (id.micro_batch < share.first || id.micro_batch >= share.last) {
    return Refused(absl::InvalidArgumentError(absl::StrCat(
        "micro-batch ", id.micro_batch, " is for contributor ",
        contributions_.ContributorOf(id.micro_batch), " to push, and came from contributor ",
        from.index, ", which has ",
        share.count() == 0 ? std::string("none")
                           : absl::StrCat("micro-batches ", share.first, " to ", share.last - 1),
        " of ", spec_.micro_batches)));
  }
  return absl::OkStatus();
}

std::optional<Wait> Table::StalenessWait(Step step) const {
  if (spec_.consistency != Consistency::kBoundedStaleness) return std::nullopt;
  const Step least = step - spec_.staleness;
  if (streams_->Slowest(contributors_) >= least) return std::nullopt;
  return Wait{.what = Wait::For::kSlowest, .value = least};
}

absl::StatusOr<std::optional<Wait>> Table::CheckPull(const std::optional<ContributorId>& from,
                                                     Range range, Version min_version,
                                                     absl::Time now) {
  if (restoring_.has_value()) {
    return absl::UnavailableError(absl::StrCat(Label(), " is being restored; try again"));
  }
  std::optional<Wait> wait;
  if (from.has_value()) {
    MUSTER_RETURN_IF_ERROR(contributors_.Check(*from, now));
    if (streams_.has_value()) {
      const Step step = streams_->StepOf(from->index);
      if (step != StepStreams::kNobody) wait = StalenessWait(step);
    }
  }
  if (!wait.has_value() && !Has(range, min_version)) {
    wait = Wait{.what = Wait::For::kVersion, .value = min_version, .range = range};
  }
  if (wait.has_value()) {
    wait->from = from;
    ++metrics_.pull_waits;
  }
  return wait;
}

PushResult Table::MustWait(ContributorId from, Wait wait) {
  ++metrics_.push_waits;
  wait.from = from;
  return {.outcome = PushResult::Outcome::kMustWait, .wait = wait, .version = version_};
}

PushResult Table::Duplicate() {
  ++metrics_.pushes_duplicate;
  return {.outcome = PushResult::Outcome::kDuplicate, .version = version_};
}

TableSnapshot Table::Snapshot() const {
  TableSnapshot snapshot{.header = Header()};
  const SnapshotHeader& header = snapshot.header;
  for (int i = 0; i < header.array_count; ++i) {
    snapshot.arrays.emplace_back().resize(static_cast<size_t>(header.array_elements));
  }
  const absl::Status status =
      VisitArrays([&](int array, int64_t offset, absl::Span<const float> values) {
        std::copy(values.begin(), values.end(), snapshot.arrays[array].begin() + offset);
        return absl::OkStatus();
      });
  MUSTER_CHECK(status.ok()) << status;
  return snapshot;
}

absl::Status Table::BeginRestore(const SnapshotHeader& header) {
  if (restoring_.has_value()) {
    return absl::FailedPreconditionError(
        absl::StrCat(Label(), " is being restored by another call; wait until that is over"));
  }
  if (touched_) {
    return absl::FailedPreconditionError(
        absl::StrCat(Label(), " is in use; restore into a table that was just created"));
  }
  if (const auto difference = FirstDifference(spec_, header.spec); difference.has_value()) {
    return absl::FailedPreconditionError(
        absl::StrCat(Label(), " and the snapshot are of different specs: ", *difference));
  }
  const size_t streams = streams_.has_value() ? streams_->applied_steps().size() : 0;
  bool good = header.version >= 0 && header.update_count >= 0 &&
              header.update_count <= header.version && header.applied_steps.size() == streams;
  for (const Step step : header.applied_steps) good &= step >= 0;
  if (!good) {
    return absl::InvalidArgumentError(
        absl::StrCat(Label(), ": the snapshot's counts cannot be (version ", header.version, ", ",
                     header.update_count, " updates, ", header.applied_steps.size(),
                     " micro-batches of ", streams, ")"));
  }
  ++changes_;
  MUSTER_RETURN_IF_ERROR(Annotate(OnRestoreBegun(header), Label()));
  touched_ = true;
  restoring_ = Restoring{.header = header};
  restoring_->have.resize(static_cast<size_t>(header.array_count));
  return absl::OkStatus();
}

absl::Status Table::RestorePart(int array, int64_t offset, absl::Span<const float> values) {
  if (!restoring_.has_value()) {
    return absl::FailedPreconditionError(absl::StrCat(Label(), " is not being restored"));
  }
  const SnapshotHeader& header = restoring_->header;
  const auto count = static_cast<int64_t>(values.size());
  if (array < 0 || array >= header.array_count || offset < 0 || count > header.array_elements ||
      offset > header.array_elements - count) {
    return absl::InvalidArgumentError(absl::StrCat(Label(), ": expected a part of arrays 0 to ",
                                                   header.array_count - 1, ", elements 0 to ",
                                                   header.array_elements - 1, ", got array ", array,
                                                   ", ", count, " elements from ", offset, " on"));
  }
  ++changes_;
  WriteArray(array, offset, values);
  restoring_->have[static_cast<size_t>(array)].Add({.offset = offset, .count = count});
  return absl::OkStatus();
}

absl::Status Table::FinishRestore() {
  if (!restoring_.has_value()) {
    return absl::FailedPreconditionError(absl::StrCat(Label(), " is not being restored"));
  }
  SnapshotHeader& header = restoring_->header;
  for (size_t i = 0; i < restoring_->have.size(); ++i) {
    if (restoring_->have[i].size() == header.array_elements) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(Label(), ": the snapshot is not complete; array ", i, " has ",
                     restoring_->have[i].size(), " of ", header.array_elements, " elements"));
  }
  version_ = header.version;
  update_count_ = header.update_count;
  if (streams_.has_value()) streams_->Restore(std::move(header.applied_steps));
  OnRestored(header);
  restoring_.reset();
  ++progress_;
  return absl::OkStatus();
}

void Table::AbortRestore() {
  if (!restoring_.has_value()) return;
  restoring_.reset();
  ++changes_;
  OnRestoreAborted();
  touched_ = false;
}

absl::Status Table::Restore(const TableSnapshot& snapshot) {
  MUSTER_RETURN_IF_ERROR(BeginRestore(snapshot.header));
  absl::Status status;
  for (size_t i = 0; status.ok() && i < snapshot.arrays.size(); ++i) {
    status = RestorePart(static_cast<int>(i), 0, snapshot.arrays[i]);
  }
  if (status.ok()) status = FinishRestore();
  if (!status.ok()) AbortRestore();
  return status;
}

}  // namespace muster
