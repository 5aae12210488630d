#include "worker/rpc/transfer_convert.h"

#include <bit>
#include <cstring>

#include "absl/strings/str_format.h"
#include "base/check.h"
#include "base/crc32c.h"
#include "base/status_macros.h"
#include "proto/convert/control.h"
#include "proto/convert/field.h"

namespace muster {
namespace {

static_assert(std::endian::native == std::endian::little,
              "elements travel in little-endian order; add a byte swap for other machines");

// The same errors, as what they are when a source sends them.
absl::Status AsDataLoss(const absl::Status& status) {
  return status.ok() ? status : absl::DataLossError(status.message());
}
template <typename Value>
absl::StatusOr<Value> AsDataLoss(absl::StatusOr<Value> value) {
  if (value.ok()) return value;
  return AsDataLoss(value.status());
}

}  // namespace

v1::LearnRequest ToProto(const LearnRequest& request) {
  v1::LearnRequest proto;
  proto.set_job_id(request.job);
  proto.set_fleet_id(request.fleet_id);
  proto.set_learner(request.learner.value);
  proto.set_source(request.source.value);
  proto.set_layout_fingerprint(request.layout_fingerprint);
  return proto;
}

absl::StatusOr<LearnRequest> FromProto(const v1::LearnRequest& request) {
  MUSTER_RETURN_IF_ERROR(CheckText("job_id", request.job_id(), kMaxIdBytes, /*required=*/true));
  MUSTER_RETURN_IF_ERROR(CheckText("fleet_id", request.fleet_id(), kMaxIdBytes));
  if (request.learner() == 0) return MissingField("learner");
  if (request.source() == 0) return MissingField("source");
  return LearnRequest{.job = request.job_id(),
                      .fleet_id = request.fleet_id(),
                      .learner = Incarnation{request.learner()},
                      .source = Incarnation{request.source()},
                      .layout_fingerprint = request.layout_fingerprint()};
}

v1::SnapshotHeader ToProto(const SnapshotHeader& header) {
  v1::SnapshotHeader proto;
  *proto.mutable_tag() = ToProto(header.tag);
  proto.set_update_count(header.update_count);
  proto.set_nonfinite_in_row(header.nonfinite_in_row);
  proto.set_skipped_steps(header.skipped_steps);
  proto.set_array_count(header.array_count);
  proto.set_array_elements(header.array_elements);
  return proto;
}

absl::StatusOr<SnapshotHeader> FromProto(const v1::SnapshotHeader& header) {
  MUSTER_ASSIGN_OR_RETURN(const StateTag tag, AsDataLoss(TagOf(header, "header")));
  MUSTER_RETURN_IF_ERROR(
      AsDataLoss(CheckRange("header.update_count", header.update_count(), 0, tag.step)));
  MUSTER_RETURN_IF_ERROR(
      AsDataLoss(CheckRange("header.skipped_steps", header.skipped_steps(), 0, tag.step)));
  MUSTER_RETURN_IF_ERROR(
      AsDataLoss(CheckRange("header.nonfinite_in_row", header.nonfinite_in_row(), 0, tag.step)));
  return SnapshotHeader{.tag = tag,
                        .update_count = header.update_count(),
                        .nonfinite_in_row = header.nonfinite_in_row(),
                        .skipped_steps = header.skipped_steps(),
                        .array_count = header.array_count(),
                        .array_elements = header.array_elements()};
}

v1::StepRecord ToProto(const StepItem& item) {
  v1::StepRecord proto;
  *proto.mutable_record() = ToProto(item.record);
  *proto.mutable_tag() = ToProto(item.tag);
  *proto.mutable_stable() = ToProto(item.stable);
  return proto;
}

absl::StatusOr<StepItem> FromProto(const v1::StepRecord& record) {
  if (!record.has_record()) return absl::DataLossError("step.record: is missing");
  MUSTER_ASSIGN_OR_RETURN(const CommitRecord commit,
                          AsDataLoss(FromProto(record.record(), "step.record")));
  MUSTER_ASSIGN_OR_RETURN(const StateTag tag, AsDataLoss(TagOf(record, "step")));
  MUSTER_ASSIGN_OR_RETURN(const StateTag stable,
                          AsDataLoss(FromProto(record.stable(), "step.stable")));
  if (tag.step != commit.step) {
    return absl::DataLossError(absl::StrFormat(
        "step record: is of step %d, but its tag is of step %d", commit.step, tag.step));
  }
  return StepItem{.record = commit, .tag = tag, .stable = stable};
}

std::string EncodeElements(absl::Span<const float> elements) {
  return std::string(reinterpret_cast<const char*>(elements.data()),
                     elements.size() * sizeof(float));
}

absl::StatusOr<int64_t> CheckElements(absl::string_view data, uint32_t crc32c) {
  if (data.empty() || data.size() % sizeof(float) != 0) {
    return absl::DataLossError(absl::StrFormat(
        "chunk: expected a whole number of f32 elements, got %d bytes", data.size()));
  }
  const uint32_t computed = Crc32c(data);
  if (computed != crc32c) {
    return absl::DataLossError(
        absl::StrFormat("chunk: its CRC-32C is %08x, the source said %08x", computed, crc32c));
  }
  return static_cast<int64_t>(data.size() / sizeof(float));
}

void DecodeElements(absl::string_view data, absl::Span<float> out) {
  MUSTER_CHECK_EQ(data.size(), out.size() * sizeof(float));
  std::memcpy(out.data(), data.data(), data.size());
}

}  // namespace muster
