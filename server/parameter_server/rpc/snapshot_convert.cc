#include "server/parameter_server/rpc/snapshot_convert.h"

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "base/crc32c.h"
#include "base/status_macros.h"
#include "proto/convert/field.h"
#include "proto/rpc/bulk.h"
#include "proto/rpc/payload_frame.h"
#include "server/parameter_server/rpc/table_convert.h"

namespace muster {
namespace {

constexpr int64_t kChunkElements = kBulkChunkBytes / static_cast<int64_t>(sizeof(float));
constexpr size_t kChunkRows = kBulkChunkBytes / 16;  // varints are up to 10 bytes
constexpr int64_t kMaxArrays = 8;

}  // namespace

// ---- writing -----------------------------------------------------------------------------------

grpc::ByteBuffer SnapshotWriter::Header() {
  v1::TableSnapshotPart part;
  v1::TableSnapshotHeader& header = *part.mutable_header();
  *header.mutable_spec() = std::move(spec_);
  header.set_version(snapshot_.version);
  header.set_update_count(snapshot_.update_count);
  for (const Version version : snapshot_.segment_versions) header.add_segment_versions(version);
  for (const Step step : snapshot_.applied_steps) header.add_applied_steps(step);
  header.set_row_count(static_cast<int64_t>(snapshot_.rows.size()));
  header.set_array_count(snapshot_.array_count);
  header.set_array_elements(snapshot_.array_elements);
  return EncodeFrame(part, {});
}

absl::StatusOr<std::optional<grpc::ByteBuffer>> SnapshotWriter::Next(Read read) {
  if (!std::exchange(begun_, true)) return Header();
  v1::TableSnapshotPart part;
  if (rows_ < snapshot_.rows.size()) {
    const size_t count = std::min(kChunkRows, snapshot_.rows.size() - rows_);
    for (size_t i = 0; i < count; ++i) part.add_rows(snapshot_.rows[rows_ + i]);
    rows_ += count;
    return EncodeFrame(part, {});
  }
  if (element_ == snapshot_.array_elements) {
    ++array_;
    element_ = 0;
  }
  if (array_ >= snapshot_.array_count || snapshot_.array_elements == 0) return std::nullopt;
  const int64_t count = std::min(kChunkElements, snapshot_.array_elements - element_);
  MUSTER_ASSIGN_OR_RETURN(const grpc::Slice slice, read(array_, element_, count));
  part.set_array(array_);
  part.set_crc32c(Crc32c({reinterpret_cast<const char*>(slice.begin()), slice.size()}));
  element_ += count;
  return EncodeFrame(part, {&slice, 1});
}

// ---- reading -----------------------------------------------------------------------------------

absl::StatusOr<SnapshotReader> SnapshotReader::Create(const grpc::ByteBuffer& first) {
  v1::TableSnapshotPart part;
  Payload payload;
  MUSTER_RETURN_IF_ERROR(DecodeFrame(first, &part, &payload));
  if (!part.has_header() || payload.size() != 0 || part.rows_size() != 0) {
    return absl::InvalidArgumentError("header: a snapshot begins with it, and it alone");
  }
  const v1::TableSnapshotHeader& from = part.header();
  SnapshotReader reader;
  SnapshotHeader& header = reader.header_;
  MUSTER_ASSIGN_OR_RETURN(const TableSpec spec, TableSpecFromProto(from.spec()));
  MUSTER_ASSIGN_OR_RETURN(header.spec, Resolve(spec));
  constexpr int64_t kMost = TableSpec::kMaxElements;
  MUSTER_RETURN_IF_ERROR(CheckRange("header.version", from.version(), 0, kMost));
  MUSTER_RETURN_IF_ERROR(CheckRange("header.update_count", from.update_count(), 0, kMost));
  MUSTER_RETURN_IF_ERROR(CheckRange("header.row_count", from.row_count(), 0, kMost));
  MUSTER_RETURN_IF_ERROR(CheckRange("header.array_count", from.array_count(), 0, kMaxArrays));
  MUSTER_RETURN_IF_ERROR(CheckRange("header.array_elements", from.array_elements(), 0, kMost));
  header.version = from.version();
  header.update_count = from.update_count();
  header.segment_versions.assign(from.segment_versions().begin(), from.segment_versions().end());
  header.applied_steps.assign(from.applied_steps().begin(), from.applied_steps().end());
  header.array_count = from.array_count();
  header.array_elements = from.array_elements();
  reader.row_count_ = from.row_count();
  reader.read_.resize(static_cast<size_t>(from.array_count()));
  return reader;
}

absl::StatusOr<SnapshotReader::Part> SnapshotReader::Read(const grpc::ByteBuffer& message) {
  v1::TableSnapshotPart from;
  Payload payload;
  MUSTER_RETURN_IF_ERROR(DecodeFrame(message, &from, &payload));
  if (from.has_header()) return absl::InvalidArgumentError("header: came twice");
  std::vector<int64_t>& rows = header_.rows;
  rows.insert(rows.end(), from.rows().begin(), from.rows().end());
  MUSTER_RETURN_IF_ERROR(CheckRange("rows", static_cast<int64_t>(rows.size()), 0, row_count_));
  Part part;
  if (payload.size() == 0) return part;
  MUSTER_RETURN_IF_ERROR(
      CheckRange("array", from.array(), 0, static_cast<int64_t>(read_.size()) - 1));
  int64_t& read = read_[static_cast<size_t>(from.array())];
  const int64_t left = header_.array_elements - read;
  const auto element_bytes = static_cast<int64_t>(sizeof(float));
  if (payload.size() % element_bytes != 0 || payload.size() > left * element_bytes) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "data: must be whole f32, at most the %d that array %d still lacks, got %d bytes", left,
        from.array(), payload.size()));
  }
  part.array = from.array();
  part.offset = read;
  const auto bytes = static_cast<size_t>(payload.size());
  part.values.resize(bytes / sizeof(float));
  std::byte* const to = reinterpret_cast<std::byte*>(part.values.data());
  payload.Read({to, bytes});
  read += static_cast<int64_t>(part.values.size());
  const uint32_t sum = Crc32c({reinterpret_cast<const char*>(to), bytes});
  if (sum != from.crc32c()) {
    return absl::InvalidArgumentError(
        absl::StrFormat("crc32c: the data of array %d have %08x, the message says %08x",
                        from.array(), sum, from.crc32c()));
  }
  return part;
}

absl::StatusOr<SnapshotHeader> SnapshotReader::Header() const {
  if (static_cast<int64_t>(header_.rows.size()) == row_count_) return header_;
  return absl::InvalidArgumentError(
      absl::StrFormat("the snapshot has %d of its %d rows", header_.rows.size(), row_count_));
}

absl::Status SnapshotReader::CheckComplete() const {
  MUSTER_RETURN_IF_ERROR(Header().status());
  for (size_t i = 0; i < read_.size(); ++i) {
    if (read_[i] == header_.array_elements) continue;
    return absl::InvalidArgumentError(
        absl::StrFormat("the snapshot ended after %d of %d elements of array %d", read_[i],
                        header_.array_elements, i));
  }
  return absl::OkStatus();
}

}  // namespace muster
