#include "worker/rpc/transfer_receiver.h"

#include <utility>

#include "absl/strings/str_format.h"
#include "absl/types/span.h"
#include "base/status_macros.h"
#include "proto/convert/control.h"
#include "worker/rpc/transfer_convert.h"

namespace muster {

absl::Status TransferReceiver::Take(const v1::LearnResponse& response) {
  switch (response.message_case()) {
    case v1::LearnResponse::kHeader:
      return TakeHeader(response.header());
    case v1::LearnResponse::kSnapshot:
      return TakeSnapshot(response.snapshot());
    case v1::LearnResponse::kGradient:
      return TakeGradient(response.gradient());
    case v1::LearnResponse::kRecord:
      return TakeRecord(response.record());
    case v1::LearnResponse::kStable:
      return TakeStable(response.stable());
    case v1::LearnResponse::MESSAGE_NOT_SET:
      break;
  }
  return absl::DataLossError("the source sent an empty message, or one not known here");
}

absl::Status TransferReceiver::TakeHeader(const v1::SnapshotHeader& proto) {
  if (has_header_) return absl::DataLossError("the source sent a second header");
  MUSTER_ASSIGN_OR_RETURN(const SnapshotHeader header, FromProto(proto));
  if (header.array_count != options_.expected_array_count || header.array_elements != elements()) {
    return absl::DataLossError(absl::StrFormat(
        "expected %d arrays of %d elements, the source has %d of %d", options_.expected_array_count,
        elements(), header.array_count, header.array_elements));
  }
  has_header_ = true;
  next_step_ = header.tag.step + 1;
  MUSTER_RETURN_IF_ERROR(sink_.OnHeader(header));
  return FinishSnapshotIfComplete();
}

absl::Status TransferReceiver::TakeSnapshot(const v1::SnapshotChunk& chunk) {
  if (!has_header_ || snapshot_done_) {
    return absl::DataLossError("a chunk of the snapshot came before the header or after the end");
  }
  if (chunk.array() != array_ || chunk.offset() != offset_) {
    return absl::DataLossError(
        absl::StrFormat("expected element %d of array %d, got a chunk at %d of array %d", offset_,
                        array_, chunk.offset(), chunk.array()));
  }
  MUSTER_ASSIGN_OR_RETURN(const int64_t count, CheckElements(chunk.data(), chunk.crc32c()));
  if (count > elements() - offset_) return TooMuch(count);
  values_.resize(static_cast<size_t>(count));
  DecodeElements(chunk.data(), absl::MakeSpan(values_));
  MUSTER_RETURN_IF_ERROR(sink_.OnSnapshotChunk(array_, offset_, values_));
  offset_ += count;
  if (offset_ == elements()) {
    offset_ = 0;
    ++array_;
  }
  return FinishSnapshotIfComplete();
}

absl::Status TransferReceiver::FinishSnapshotIfComplete() {
  if (array_ < options_.expected_array_count && elements() > 0) return absl::OkStatus();
  snapshot_done_ = true;
  offset_ = 0;
  values_ = std::vector<float>();
  return sink_.OnSnapshotDone();
}

absl::Status TransferReceiver::TakeGradient(const v1::GradientChunk& chunk) {
  if (!snapshot_done_) return absl::DataLossError("a gradient came before the end of the snapshot");
  if (chunk.step() != next_step_ || chunk.offset() != offset_) {
    return absl::DataLossError(
        absl::StrFormat("expected element %d of the gradient of step %d, got a chunk at %d of "
                        "step %d",
                        offset_, next_step_, chunk.offset(), chunk.step()));
  }
  MUSTER_ASSIGN_OR_RETURN(const int64_t count, CheckElements(chunk.data(), chunk.crc32c()));
  if (count > elements() - offset_) return TooMuch(count);
  if (offset_ == 0) gradient_ = std::make_shared<std::vector<float>>(elements());
  DecodeElements(chunk.data(), absl::MakeSpan(*gradient_).subspan(offset_, count));
  offset_ += count;
  return absl::OkStatus();
}

absl::Status TransferReceiver::TakeRecord(const v1::StepRecord& record) {
  if (!snapshot_done_) return absl::DataLossError("a record came before the end of the snapshot");
  MUSTER_ASSIGN_OR_RETURN(StepItem item, FromProto(record));
  if (item.record.step != next_step_ || offset_ != elements()) {
    return absl::DataLossError(absl::StrFormat(
        "expected the record of step %d after %d elements, got the one of step %d after %d",
        next_step_, elements(), item.record.step, offset_));
  }
  if (gradient_ == nullptr) gradient_ = std::make_shared<std::vector<float>>();
  item.gradient = std::move(gradient_);
  gradient_.reset();
  offset_ = 0;
  ++next_step_;
  return sink_.OnStep(std::move(item));
}

absl::Status TransferReceiver::TakeStable(const v1::StateTag& proto) {
  if (!snapshot_done_) {
    return absl::DataLossError("a stable tag came before the end of the snapshot");
  }
  absl::StatusOr<StateTag> stable = FromProto(proto, "stable");
  if (!stable.ok()) return absl::DataLossError(stable.status().message());
  return sink_.OnStable(*stable);
}

absl::Status TransferReceiver::TooMuch(int64_t count) const {
  return absl::DataLossError(absl::StrFormat(
      "a chunk of %d elements at %d goes beyond the %d of an array", count, offset_, elements()));
}

}  // namespace muster
