#include "server/rpc/job_files.h"

#include <zlib.h>

#include <array>
#include <memory>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status_macros.h"

namespace muster {
namespace {

constexpr size_t kIdxHeaderBytes = 8;  // magic and the first dimension

// The first bytes of a gzip stream.
absl::StatusOr<std::string> Inflate(absl::string_view compressed, size_t count,
                                    const std::string& path) {
  z_stream stream = {};
  constexpr int kGzipOnly = 16 + MAX_WBITS;
  if (inflateInit2(&stream, kGzipOnly) != Z_OK) return absl::InternalError("zlib cannot start");
  const std::unique_ptr<z_stream, int (*)(z_stream*)> owner(&stream, &inflateEnd);
  std::string out(count, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(compressed.data()));
  stream.avail_in = static_cast<uInt>(compressed.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  inflate(&stream, Z_SYNC_FLUSH);
  if (stream.avail_out != 0) {
    return absl::InvalidArgumentError(
        absl::StrFormat("%s: is a gzip file that is corrupt or too short for an IDX header", path));
  }
  return out;
}

}  // namespace

absl::StatusOr<int64_t> CountIdxItems(FileSystem& files, const std::string& path) {
  MUSTER_ASSIGN_OR_RETURN(const std::unique_ptr<ReadableFile> file, files.Open(path));
  // Enough for a gzip header with a file name and the first block.
  std::array<char, 4096> buffer;
  MUSTER_ASSIGN_OR_RETURN(const size_t got, file->ReadAt(0, absl::MakeSpan(buffer)));
  std::string head(buffer.data(), got);
  if (absl::StartsWith(head, "\x1f\x8b")) {
    MUSTER_ASSIGN_OR_RETURN(head, Inflate(head, kIdxHeaderBytes, path));
  }
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(head[i]); };
  if (head.size() < kIdxHeaderBytes || byte(0) != 0 || byte(1) != 0 || byte(2) != 0x08 ||
      byte(3) == 0) {
    return absl::InvalidArgumentError(
        absl::StrFormat("%s: is no IDX file of unsigned bytes", path));
  }
  return int64_t{byte(4)} << 24 | int64_t{byte(5)} << 16 | int64_t{byte(6)} << 8 | byte(7);
}

absl::StatusOr<Step> ResolveTotalSteps(FileSystem& files, const JobSpec& spec) {
  int64_t samples = 0;
  if (spec.training.steps == 0) {
    absl::StatusOr<int64_t> count = CountIdxItems(files, spec.data.train_images);
    if (!count.ok()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "training.epochs: the coordinator cannot read the number of samples (",
          count.status().message(),
          "); make data.idx.train_images readable for it, or give training.steps instead"));
    }
    samples = *count;
  }
  return ResolveSteps(spec, samples);
}

}  // namespace muster
