#include <bit>
#include <cstring>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/crc32c.h"
#include "base/status_macros.h"
#include "worker/checkpoint/json.h"
#include "worker/checkpoint/manifest.h"
#include "worker/checkpoint/safetensors.h"

namespace muster {

static_assert(std::endian::native == std::endian::little,
              "safetensors files are little-endian and are written as they lie in memory");

namespace {

constexpr size_t kHeaderAlignment = 8;

absl::StatusOr<int64_t> BytesOf(const SafetensorsEntry& entry, const std::string& path) {
  int64_t bytes = static_cast<int64_t>(SizeOf(entry.dtype));
  for (const int64_t dimension : entry.shape) {
    if (dimension < 0 || __builtin_mul_overflow(bytes, dimension, &bytes)) {
      return absl::InvalidArgumentError(absl::StrCat(
          path, ": tensor \"", entry.name, "\" has a negative dimension or is too large"));
    }
  }
  return bytes;
}

}  // namespace

absl::StatusOr<SafetensorsWriter> SafetensorsWriter::Create(
    FileSystem& files, const std::string& path, absl::Span<const SafetensorsEntry> entries,
    const SafetensorsMetadata& metadata) {
  nlohmann::json header = nlohmann::json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  int64_t offset = 0;
  for (const SafetensorsEntry& entry : entries) {
    if (entry.name == "__metadata__" || header.contains(entry.name)) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ": tensor name \"", entry.name, "\" is reserved or repeated"));
    }
    MUSTER_ASSIGN_OR_RETURN(const int64_t bytes, BytesOf(entry, path));
    int64_t end;
    if (__builtin_add_overflow(offset, bytes, &end)) {
      return absl::InvalidArgumentError(absl::StrCat(path, ": the tensors are too large together"));
    }
    header[entry.name] = {{"dtype", std::string(SafetensorsName(entry.dtype))},
                          {"shape", entry.shape},
                          {"data_offsets", {offset, end}}};
    offset = end;
  }
  MUSTER_ASSIGN_OR_RETURN(std::string text, SerializeJson(header, path));
  text.append((kHeaderAlignment - text.size() % kHeaderAlignment) % kHeaderAlignment, ' ');
  if (static_cast<int64_t>(text.size()) > SafetensorsReader::kMaxHeaderBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": the header would have ", text.size(), " bytes, at most ",
                     SafetensorsReader::kMaxHeaderBytes, " are allowed"));
  }

  SafetensorsWriter writer;
  MUSTER_ASSIGN_OR_RETURN(writer.file_, files.Create(path));
  const uint64_t length = text.size();
  char prefix[sizeof(length)];
  std::memcpy(prefix, &length, sizeof(length));
  writer.missing_bytes_ = static_cast<int64_t>(sizeof(prefix) + text.size()) + offset;
  MUSTER_RETURN_IF_ERROR(writer.Append(absl::string_view(prefix, sizeof(prefix))));
  MUSTER_RETURN_IF_ERROR(writer.Append(text));
  return writer;
}

absl::Status SafetensorsWriter::Append(absl::string_view bytes) {
  const int64_t count = static_cast<int64_t>(bytes.size());
  MUSTER_CHECK_LE(count, missing_bytes_);
  MUSTER_RETURN_IF_ERROR(file_->Append(bytes));
  hash_.Update(bytes);
  for (absl::string_view left = bytes; !left.empty();) {
    const int64_t into = file_bytes_ % kCheckedBytes;
    if (into == 0) crc32c_.push_back(0);
    const absl::string_view piece = left.substr(0, static_cast<size_t>(kCheckedBytes - into));
    crc32c_.back() = Crc32c(piece, crc32c_.back());
    file_bytes_ += static_cast<int64_t>(piece.size());
    left.remove_prefix(piece.size());
  }
  missing_bytes_ -= count;
  return absl::OkStatus();
}

absl::StatusOr<SafetensorsWriter::Result> SafetensorsWriter::Finish() {
  MUSTER_CHECK_EQ(missing_bytes_, 0);
  MUSTER_RETURN_IF_ERROR(file_->Sync());
  MUSTER_RETURN_IF_ERROR(file_->Close());
  return Result{file_bytes_, hash_.HexDigest(), std::move(crc32c_)};
}

}  // namespace muster
