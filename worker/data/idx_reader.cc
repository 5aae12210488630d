#include "worker/data/idx_reader.h"

#include <array>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "worker/data/byte_source.h"

namespace muster {
namespace {

constexpr uint8_t kUnsignedByte = 0x08;

struct IdxArray {
  std::vector<int64_t> dimensions;
  std::vector<uint8_t> data;
};

// A big-endian 32-bit number.
absl::StatusOr<uint32_t> ReadWord(ByteSource& source, const std::string& path,
                                  absl::string_view what) {
  std::array<char, 4> bytes;
  MUSTER_ASSIGN_OR_RETURN(const size_t count, source.Read(absl::MakeSpan(bytes)));
  if (count < bytes.size()) {
    return absl::DataLossError(absl::StrCat(path, ": the header is truncated: expected 4 bytes of ",
                                            what, ", ", source.description(), " has ", count,
                                            " left"));
  }
  uint32_t value = 0;
  for (const char byte : bytes) value = value << 8 | static_cast<unsigned char>(byte);
  return value;
}

struct IdxHeader {
  std::vector<int64_t> dimensions;
  int64_t bytes = 1;  // of data
};

absl::Status Truncated(const ByteSource& source, const std::string& path, const IdxHeader& header,
                       absl::string_view found) {
  return absl::DataLossError(absl::StrCat(
      path, ": the data is truncated: the dimensions (", absl::StrJoin(header.dimensions, ", "),
      ") need ", header.bytes, " bytes, ", source.description(), " has ", found));
}

// Of a file that must have exactly `dimension_count` dimensions of unsigned bytes. `kind`
// ("images", "labels") is for messages.
absl::StatusOr<IdxHeader> ReadHeader(ByteSource& source, const std::string& path,
                                     absl::string_view kind, size_t dimension_count,
                                     int64_t max_bytes) {
  MUSTER_ASSIGN_OR_RETURN(const uint32_t magic, ReadWord(source, path, "the magic number"));
  const uint32_t expected_magic = uint32_t{kUnsignedByte} << 8 | dimension_count;
  if (magic != expected_magic) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "%s: expected an IDX file of %s (magic number 0x%08x), got magic number 0x%08x", path, kind,
        expected_magic, magic));
  }
  IdxHeader header;
  for (size_t i = 0; i < dimension_count; ++i) {
    MUSTER_ASSIGN_OR_RETURN(const uint32_t dimension,
                            ReadWord(source, path, absl::StrCat("dimension ", i)));
    header.dimensions.push_back(dimension);
    if (dimension == 0) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ": dimension ", i, " of the ", kind, " is zero"));
    }
    if (__builtin_mul_overflow(header.bytes, int64_t{dimension}, &header.bytes) ||
        header.bytes > max_bytes) {
      return absl::ResourceExhaustedError(
          absl::StrCat(path, ": the header declares ", kind, " of dimensions (",
                       absl::StrJoin(header.dimensions, ", "), "...), more than the limit of ",
                       max_bytes, " bytes"));
    }
  }
  if (header.bytes > source.size_bound()) {
    return Truncated(source, path, header, absl::StrCat("at most ", source.size_bound()));
  }
  return header;
}

// The whole file.
absl::StatusOr<IdxArray> ReadIdx(FileSystem& files, const std::string& path, absl::string_view kind,
                                 size_t dimension_count, int64_t max_bytes) {
  MUSTER_ASSIGN_OR_RETURN(const std::unique_ptr<ByteSource> source, OpenByteSource(files, path));
  MUSTER_ASSIGN_OR_RETURN(const IdxHeader header,
                          ReadHeader(*source, path, kind, dimension_count, max_bytes));
  IdxArray array;
  array.dimensions = header.dimensions;
  array.data.resize(static_cast<size_t>(header.bytes));
  MUSTER_ASSIGN_OR_RETURN(
      const size_t count,
      source->Read(absl::MakeSpan(reinterpret_cast<char*>(array.data.data()), array.data.size())));
  if (count < array.data.size()) {
    return Truncated(*source, path, header, absl::StrCat(count));
  }
  char extra;
  MUSTER_ASSIGN_OR_RETURN(const size_t extra_count, source->Read(absl::MakeSpan(&extra, 1)));
  if (extra_count > 0) {
    return absl::DataLossError(
        absl::StrCat(path, ": expected the end of ", source->description(), " after ", header.bytes,
                     " bytes of data of dimensions (", absl::StrJoin(array.dimensions, ", "),
                     "), got more bytes"));
  }
  return array;
}

}  // namespace

absl::StatusOr<Dataset> ReadIdxDataset(FileSystem& files, const std::string& images_path,
                                       const std::string& labels_path, const IdxOptions& options) {
  // The labels first: they are small, and a mistaken path shows sooner.
  MUSTER_ASSIGN_OR_RETURN(IdxArray labels,
                          ReadIdx(files, labels_path, "labels", 1, options.max_bytes));
  MUSTER_ASSIGN_OR_RETURN(IdxArray images,
                          ReadIdx(files, images_path, "images", 3, options.max_bytes));
  if (images.dimensions[0] != labels.dimensions[0]) {
    return absl::InvalidArgumentError(
        absl::StrCat("expected one label per image, got ", images.dimensions[0], " images in ",
                     images_path, " and ", labels.dimensions[0], " labels in ", labels_path));
  }
  auto dataset = Dataset::Create(std::move(images.data), std::move(labels.data),
                                 {1, images.dimensions[1], images.dimensions[2]},
                                 options.class_count, options.normalization);
  if (!dataset.ok()) {
    return Annotate(dataset.status(), absl::StrCat(images_path, " with ", labels_path));
  }
  return dataset;
}

absl::StatusOr<DatasetShape> ReadIdxShape(FileSystem& files, const std::string& images_path,
                                          const IdxOptions& options) {
  MUSTER_ASSIGN_OR_RETURN(const std::unique_ptr<ByteSource> source,
                          OpenByteSource(files, images_path));
  MUSTER_ASSIGN_OR_RETURN(const IdxHeader header,
                          ReadHeader(*source, images_path, "images", 3, options.max_bytes));
  return DatasetShape{header.dimensions[0], {1, header.dimensions[1], header.dimensions[2]}};
}

}  // namespace muster
