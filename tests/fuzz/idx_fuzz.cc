// Data files: gzip streams, and the IDX images or labels in them.
#include <zlib.h>

#include <memory>

#include "base/check.h"
#include "server/rpc/job_files.h"
#include "tests/fuzz/memory_file_system.h"
#include "tests/fuzz/targets.h"
#include "worker/data/byte_source.h"
#include "worker/data/idx_reader.h"

namespace muster {
namespace {

using absl::StatusCode;

constexpr int64_t kMaxBytes = 1 << 20;
// Three images of 2 x 3 pixels in 10 classes, and their labels.
constexpr absl::string_view kImages(
    "\0\0\x08\x03\0\0\0\x03\0\0\0\x02\0\0\0\x03"
    "abcdefghijklmnopqr",
    34);
constexpr absl::string_view kLabels("\0\0\x08\x01\0\0\0\x03\0\x01\x09", 11);

std::string Compressed(absl::string_view bytes) {
  z_stream stream = {};
  MUSTER_CHECK(deflateInit2(&stream, 9, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) == Z_OK);
  std::string out(bytes.size() + 100, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  MUSTER_CHECK(deflate(&stream, Z_FINISH) == Z_STREAM_END);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

// The contents, read in pieces of `piece` bytes, up to kMaxBytes.
absl::StatusOr<std::string> ReadAll(FileSystem& files, size_t piece) {
  absl::StatusOr<std::unique_ptr<ByteSource>> source = OpenByteSource(files, "file");
  if (!source.ok()) return source.status();
  std::string contents;
  std::string buffer(piece, '\0');
  while (contents.size() < kMaxBytes) {
    const absl::StatusOr<size_t> count = (*source)->Read(absl::MakeSpan(buffer));
    if (!count.ok()) return count.status();
    MUSTER_CHECK(*count <= piece);
    contents.append(buffer, 0, *count);
    // Memory is allocated by this bound.
    MUSTER_CHECK(static_cast<int64_t>(contents.size()) <= (*source)->size_bound());
    if (*count < piece) break;
  }
  return contents;
}

FuzzOutcome RunGzip(absl::string_view bytes) {
  MemoryFileSystem files({{"file", std::string(bytes)}});
  const absl::StatusOr<std::string> contents = ReadAll(files, 4'096);
  const absl::StatusOr<std::string> in_other_pieces = ReadAll(files, 1'000);
  MUSTER_CHECK(contents.ok() == in_other_pieces.ok());
  if (!contents.ok()) return Refused(contents.status(), {StatusCode::kDataLoss});
  const size_t common = std::min(contents->size(), in_other_pieces->size());
  MUSTER_CHECK(contents->substr(0, common) == in_other_pieces->substr(0, common));
  return FuzzOutcome::kAccepted;
}

std::vector<std::string> GzipSeeds() {
  const std::string text = Compressed("The quick brown fox jumps over the lazy dog");
  return {"plain", text, text + Compressed(std::string(10'000, 'z')), Compressed("")};
}

// The first byte says which of the two files the rest is; the other one is valid.
FuzzOutcome RunIdx(absl::string_view bytes) {
  if (bytes.empty()) return FuzzOutcome::kRefused;
  const bool is_labels = (bytes.front() & 1) != 0;
  const std::string file(bytes.substr(1));
  MemoryFileSystem files({{"images", is_labels ? std::string(kImages) : file},
                          {"labels", is_labels ? file : std::string(kLabels)}});
  const absl::StatusOr<Dataset> dataset =
      ReadIdxDataset(files, "images", "labels", {.max_bytes = kMaxBytes});
  const absl::StatusOr<int64_t> count = CountIdxItems(files, is_labels ? "labels" : "images");
  if (!count.ok()) Refused(count.status(), {StatusCode::kInvalidArgument});
  if (!dataset.ok()) {
    return Refused(dataset.status(), {StatusCode::kDataLoss, StatusCode::kInvalidArgument,
                                      StatusCode::kResourceExhausted});
  }
  // The coordinator counts the steps of an epoch by what workers then read.
  MUSTER_CHECK(count.ok()) << count.status().ToString();
  MUSTER_CHECK(*count == dataset->size());
  MUSTER_CHECK(dataset->size() == 3);
  std::vector<float> inputs(static_cast<size_t>(dataset->feature_count()));
  int32_t label = -1;
  dataset->Gather({dataset->size() - 1}, absl::MakeSpan(inputs), absl::MakeSpan(&label, 1));
  MUSTER_CHECK(label >= 0 && label < dataset->class_count());
  return FuzzOutcome::kAccepted;
}

std::vector<std::string> IdxSeeds() {
  const std::string images(kImages);
  const std::string labels(kLabels);
  return {"0" + images, "1" + labels, "0" + Compressed(images), "1" + Compressed(labels)};
}

}  // namespace

const FuzzTarget kGzipTarget = {"gzip", RunGzip, GzipSeeds, 1'024};
const FuzzTarget kIdxTarget = {"idx", RunIdx, IdxSeeds, 256};

}  // namespace muster
