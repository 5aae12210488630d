#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "base/text.h"
#include "worker/checkpoint/json.h"
#include "worker/checkpoint/safetensors.h"

namespace muster {
namespace {

using TensorInfo = SafetensorsReader::TensorInfo;

constexpr int64_t kPrefixBytes = 8;

// An array of integers that are not negative.
absl::StatusOr<std::vector<int64_t>> Dimensions(const nlohmann::json& object,
                                                const std::string& key, absl::string_view what) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_array()) {
    return absl::DataLossError(absl::StrCat(what, ": expected an array \"", key, "\""));
  }
  std::vector<int64_t> values;
  for (const nlohmann::json& element : *found) {
    if (!element.is_number_unsigned() ||
        element.get<uint64_t>() > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
      return absl::DataLossError(
          absl::StrCat(what, ": \"", key, "\": expected integers from 0 to 2^63-1"));
    }
    values.push_back(element.get<int64_t>());
  }
  return values;
}

// `what` names file and tensor.
absl::StatusOr<TensorInfo> ParseTensor(const nlohmann::json& entry, int64_t data_begin,
                                       const std::string& what) {
  MUSTER_ASSIGN_OR_RETURN(const std::string dtype_name, JsonString(entry, "dtype", what));
  if (entry.size() != 3) {
    return absl::DataLossError(
        absl::StrCat(what, ": expected exactly the members dtype, shape and data_offsets"));
  }
  TensorInfo tensor;
  auto dtype = DTypeFromSafetensorsName(dtype_name);
  if (!dtype.ok()) return Annotate(dtype.status(), what);
  tensor.dtype = *dtype;
  MUSTER_ASSIGN_OR_RETURN(tensor.shape, Dimensions(entry, "shape", what));
  MUSTER_ASSIGN_OR_RETURN(const std::vector<int64_t> offsets,
                          Dimensions(entry, "data_offsets", what));
  if (offsets.size() != 2 || offsets[1] < offsets[0] ||
      offsets[1] > std::numeric_limits<int64_t>::max() - data_begin) {
    return absl::DataLossError(
        absl::StrCat(what, ": data_offsets: expected a begin and an end not before it"));
  }
  int64_t bytes = static_cast<int64_t>(SizeOf(tensor.dtype));
  for (const int64_t dimension : tensor.shape) {
    if (__builtin_mul_overflow(bytes, dimension, &bytes)) {
      return absl::DataLossError(absl::StrCat(what, ": the shape is too large"));
    }
  }
  if (bytes != offsets[1] - offsets[0]) {
    return absl::DataLossError(absl::StrCat(what, ": dtype and shape need ", bytes,
                                            " bytes, data_offsets span ", offsets[1] - offsets[0]));
  }
  tensor.offset = data_begin + offsets[0];
  tensor.bytes = bytes;
  return tensor;
}

}  // namespace

absl::StatusOr<SafetensorsReader> SafetensorsReader::Open(FileSystem& files,
                                                          const std::string& path) {
  MUSTER_ASSIGN_OR_RETURN(std::unique_ptr<ReadableFile> file, files.Open(path));
  return Open(std::move(file), path);
}

absl::StatusOr<SafetensorsReader> SafetensorsReader::Open(std::unique_ptr<ReadableFile> file,
                                                          const std::string& path) {
  SafetensorsReader reader;
  reader.path_ = path;
  reader.file_ = std::move(file);
  const int64_t file_bytes = reader.file_->size();
  char prefix[kPrefixBytes];
  MUSTER_ASSIGN_OR_RETURN(const size_t prefix_count,
                          reader.file_->ReadAt(0, absl::MakeSpan(prefix)));
  if (prefix_count < sizeof(prefix)) {
    return absl::DataLossError(absl::StrCat(path,
                                            ": expected a safetensors file, which has at "
                                            "least 8 bytes, got ",
                                            prefix_count));
  }
  uint64_t length;
  std::memcpy(&length, prefix, sizeof(length));
  if (length > static_cast<uint64_t>(kMaxHeaderBytes)) {
    return absl::DataLossError(absl::StrCat(path, ": expected a header of at most ",
                                            kMaxHeaderBytes, " bytes, the file says ", length));
  }
  const int64_t data_begin = kPrefixBytes + static_cast<int64_t>(length);
  if (data_begin > file_bytes) {
    return absl::DataLossError(absl::StrCat(path, ": the header is truncated: expected ", length,
                                            " bytes after the first 8, the file has ",
                                            file_bytes - kPrefixBytes));
  }
  std::string header(length, '\0');
  MUSTER_ASSIGN_OR_RETURN(const size_t count,
                          reader.file_->ReadAt(kPrefixBytes, absl::MakeSpan(header)));
  if (count < header.size()) {
    return absl::DataLossError(absl::StrCat(path, ": shrank while it was read"));
  }
  const absl::Status parsed = reader.ParseHeader(header, data_begin);
  if (!parsed.ok()) return StatusForPeople(parsed);  // it may quote the file
  return reader;
}

absl::Status SafetensorsReader::ParseHeader(absl::string_view header, int64_t data_begin) {
  if (header.empty() || header[0] != '{') {
    return absl::DataLossError(absl::StrCat(path_, ": expected a header that begins with '{'"));
  }
  MUSTER_ASSIGN_OR_RETURN(const nlohmann::json root, ParseJson(header, path_));
  for (const auto& [name, entry] : root.items()) {
    const std::string what = absl::StrCat(path_, ": tensor \"", name, "\"");
    if (!entry.is_object()) {
      return absl::DataLossError(
          absl::StrCat(what, ": expected a JSON object, got a JSON ", entry.type_name()));
    }
    if (name == "__metadata__") {
      for (const auto& [key, value] : entry.items()) {
        if (!value.is_string()) {
          return absl::DataLossError(absl::StrCat(path_, ": metadata \"", key,
                                                  "\": expected a string, got a JSON ",
                                                  value.type_name()));
        }
        metadata_[key] = value.get<std::string>();
      }
      continue;
    }
    MUSTER_ASSIGN_OR_RETURN(tensors_[name], ParseTensor(entry, data_begin, what));
  }

  std::vector<std::pair<std::string, const TensorInfo*>> in_order;
  for (const auto& [name, tensor] : tensors_) in_order.emplace_back(name, &tensor);
  std::sort(in_order.begin(), in_order.end(), [](const auto& a, const auto& b) {
    return std::pair(a.second->offset, a.second->bytes) <
           std::pair(b.second->offset, b.second->bytes);
  });
  int64_t next = data_begin;
  for (const auto& [name, tensor] : in_order) {
    if (tensor->offset != next) {
      return absl::DataLossError(absl::StrCat(path_, ": tensor \"", name, "\" begins at byte ",
                                              tensor->offset, ", expected byte ", next,
                                              ": tensors must neither overlap nor leave a gap"));
    }
    next = tensor->offset + tensor->bytes;
  }
  if (next != file_->size()) {
    return absl::DataLossError(absl::StrCat(path_, ": the header describes ", next,
                                            " bytes, the file has ", file_->size()));
  }
  return absl::OkStatus();
}

absl::Status SafetensorsReader::Read(const TensorInfo& tensor, absl::Span<char> out) const {
  MUSTER_CHECK_EQ(static_cast<int64_t>(out.size()), tensor.bytes);
  return ReadFrom(tensor, 0, out);
}

absl::Status SafetensorsReader::ReadFrom(const TensorInfo& tensor, int64_t begin,
                                         absl::Span<char> out) const {
  MUSTER_CHECK_LE(begin + static_cast<int64_t>(out.size()), tensor.bytes);
  MUSTER_ASSIGN_OR_RETURN(const size_t count, file_->ReadAt(tensor.offset + begin, out));
  if (count < out.size()) {
    return absl::DataLossError(absl::StrCat(path_, ": shrank while it was read"));
  }
  return absl::OkStatus();
}

}  // namespace muster
