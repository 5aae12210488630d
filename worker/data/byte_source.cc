#include "worker/data/byte_source.h"

#include <zlib.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status_macros.h"

namespace muster {
namespace {

constexpr size_t kChunkBytes = size_t{256} << 10;
// Deflate's best case codes 258 bytes in two bits (zlib's technical notes, "Maximum Compression
// Factor").
constexpr int64_t kMaxDeflateFactor = 1032;

class PlainSource final : public ByteSource {
 public:
  explicit PlainSource(std::unique_ptr<ReadableFile> file) : file_(std::move(file)) {}

  absl::StatusOr<size_t> Read(absl::Span<char> out) override {
    MUSTER_ASSIGN_OR_RETURN(const size_t count, file_->ReadAt(offset_, out));
    offset_ += static_cast<int64_t>(count);
    return count;
  }
  int64_t size_bound() const override { return file_->size(); }
  const char* description() const override { return "the file"; }

 private:
  const std::unique_ptr<ReadableFile> file_;
  int64_t offset_ = 0;
};

class GzipSource final : public ByteSource {
 public:
  GzipSource(std::unique_ptr<ReadableFile> file, std::string path)
      : file_(std::move(file)), path_(std::move(path)), input_(kChunkBytes) {
    // 15: the largest window; 16: expect gzip's header and check its CRC and length.
    MUSTER_CHECK(inflateInit2(&stream_, 15 + 16) == Z_OK) << "out of memory";
  }
  ~GzipSource() override { inflateEnd(&stream_); }

  absl::StatusOr<size_t> Read(absl::Span<char> out) override {
    size_t done = 0;
    while (done < out.size()) {
      MUSTER_RETURN_IF_ERROR(FillInput());
      if (stream_.avail_in == 0) {
        if (member_ended_) break;
        return absl::DataLossError(absl::StrCat(
            path_, ": the gzip data ends in the middle of a stream; the file is truncated"));
      }
      if (member_ended_) {
        // RFC 1952, section 2.2: members simply follow one another.
        MUSTER_CHECK(inflateReset(&stream_) == Z_OK);
        member_ended_ = false;
      }
      const size_t room = std::min(out.size() - done, kChunkBytes);
      stream_.next_out = reinterpret_cast<Bytef*>(out.data() + done);
      stream_.avail_out = static_cast<uInt>(room);
      const int result = inflate(&stream_, Z_NO_FLUSH);
      done += room - stream_.avail_out;
      if (result == Z_STREAM_END) {
        member_ended_ = true;
      } else if (result != Z_OK) {
        MUSTER_CHECK(result != Z_MEM_ERROR) << "out of memory";
        return absl::DataLossError(
            absl::StrCat(path_, ": corrupt gzip data near byte ",
                         file_offset_ - static_cast<int64_t>(stream_.avail_in), ": ",
                         stream_.msg != nullptr ? stream_.msg : "unexpected data"));
      }
    }
    return done;
  }

  int64_t size_bound() const override { return file_->size() * kMaxDeflateFactor; }
  const char* description() const override { return "the decompressed file"; }

 private:
  absl::Status FillInput() {
    if (stream_.avail_in > 0) return absl::OkStatus();
    MUSTER_ASSIGN_OR_RETURN(const size_t count,
                            file_->ReadAt(file_offset_, absl::MakeSpan(input_)));
    file_offset_ += static_cast<int64_t>(count);
    stream_.next_in = reinterpret_cast<Bytef*>(input_.data());
    stream_.avail_in = static_cast<uInt>(count);
    return absl::OkStatus();
  }

  const std::unique_ptr<ReadableFile> file_;
  const std::string path_;
  std::vector<char> input_;
  int64_t file_offset_ = 0;  // of the end of `input_`
  z_stream stream_ = {};
  bool member_ended_ = false;
};

}  // namespace

absl::StatusOr<std::unique_ptr<ByteSource>> OpenByteSource(FileSystem& files,
                                                           const std::string& path) {
  MUSTER_ASSIGN_OR_RETURN(std::unique_ptr<ReadableFile> file, files.Open(path));
  unsigned char magic[2] = {};
  MUSTER_ASSIGN_OR_RETURN(const size_t count,
                          file->ReadAt(0, absl::MakeSpan(reinterpret_cast<char*>(magic), 2)));
  std::unique_ptr<ByteSource> source;
  if (count == 2 && magic[0] == 0x1f && magic[1] == 0x8b) {
    source = std::make_unique<GzipSource>(std::move(file), path);
  } else {
    source = std::make_unique<PlainSource>(std::move(file));
  }
  return source;
}

}  // namespace muster
