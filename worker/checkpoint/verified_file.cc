#include "worker/checkpoint/verified_file.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/check.h"
#include "base/crc32c.h"
#include "base/status_macros.h"

namespace muster {

absl::Status VerifiedFile::CheckSize(const ReadableFile& file, const std::string& path,
                                     const CheckpointFile& expected) {
  if (file.size() == expected.bytes) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat(path, ": expected ", expected.bytes,
                                          " bytes as the manifest says, got ", file.size()));
}

absl::StatusOr<std::unique_ptr<ReadableFile>> VerifiedFile::Open(FileSystem& files,
                                                                 const std::string& path,
                                                                 const CheckpointFile& expected) {
  MUSTER_ASSIGN_OR_RETURN(std::unique_ptr<ReadableFile> file, files.Open(path));
  MUSTER_RETURN_IF_ERROR(CheckSize(*file, path, expected));
  return std::unique_ptr<ReadableFile>(new VerifiedFile(std::move(file), path, expected));
}

absl::StatusOr<size_t> VerifiedFile::ReadAt(int64_t offset, absl::Span<char> out) const {
  MutexLock lock(&mutex_);
  size_t done = 0;
  while (done < out.size() && offset < expected_.bytes) {
    const int64_t piece = offset / kCheckedBytes;
    if (loaded_ != piece) MUSTER_RETURN_IF_ERROR(Load(piece));
    const auto at = static_cast<size_t>(offset % kCheckedBytes);
    const size_t count = std::min(out.size() - done, bytes_.size() - at);
    std::copy_n(bytes_.data() + at, count, out.data() + done);
    done += count;
    offset += static_cast<int64_t>(count);
  }
  return done;
}

absl::Status VerifiedFile::Load(int64_t piece) const {
  MUSTER_CHECK_LT(static_cast<size_t>(piece), expected_.crc32c.size());
  loaded_ = -1;
  const int64_t begin = piece * kCheckedBytes;
  bytes_.resize(static_cast<size_t>(std::min(kCheckedBytes, expected_.bytes - begin)));
  MUSTER_ASSIGN_OR_RETURN(const size_t count, file_->ReadAt(begin, absl::MakeSpan(bytes_)));
  if (count < bytes_.size()) {
    return absl::DataLossError(absl::StrCat(path_, ": shrank while it was read"));
  }
  const uint32_t expected = expected_.crc32c[static_cast<size_t>(piece)];
  const uint32_t actual = Crc32c(absl::string_view(bytes_.data(), bytes_.size()));
  if (actual != expected) {
    return absl::DataLossError(absl::StrFormat(
        "%s: corrupt: bytes %d to %d have CRC-32C %08x, expected %08x as the manifest says", path_,
        begin, begin + static_cast<int64_t>(count), actual, expected));
  }
  loaded_ = piece;
  return absl::OkStatus();
}

}  // namespace muster
