// Writes and reads safetensors files (https://github.com/huggingface/safetensors, section Format):
// a little-endian 64-bit header length, a JSON header {name: {dtype, shape, data_offsets}}, padded
// with spaces to 8 bytes, then the tensors' bytes without gaps.
//
// Writer and reader are thread-compatible; reading is thread-safe. Errors name the file.
#ifndef MUSTER_WORKER_CHECKPOINT_SAFETENSORS_H_
#define MUSTER_WORKER_CHECKPOINT_SAFETENSORS_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/dtype.h"
#include "base/file.h"
#include "base/sha256.h"

namespace muster {

using SafetensorsMetadata = std::map<std::string, std::string>;

struct SafetensorsEntry {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;  // empty for a scalar
};

// The bytes of all entries come through Append, in the order of the entries, in pieces of any size.
class SafetensorsWriter {
 public:
  // INVALID_ARGUMENT for a repeated or reserved name, a negative dimension, an overflow or text
  // that is not UTF-8.
  static absl::StatusOr<SafetensorsWriter> Create(FileSystem& files, const std::string& path,
                                                  absl::Span<const SafetensorsEntry> entries,
                                                  const SafetensorsMetadata& metadata);

  // Requires: no more than the entries need.
  absl::Status Append(absl::string_view bytes);

  struct Result {
    int64_t bytes = 0;             // of the whole file
    std::string sha256;            // of the whole file
    std::vector<uint32_t> crc32c;  // of each kCheckedBytes of it (manifest.h)
  };
  // Syncs and closes. Requires: every byte came.
  absl::StatusOr<Result> Finish();

 private:
  SafetensorsWriter() = default;
  std::unique_ptr<WritableFile> file_;
  Sha256 hash_;
  std::vector<uint32_t> crc32c_;
  int64_t file_bytes_ = 0;
  int64_t missing_bytes_ = 0;
};

class SafetensorsReader {
 public:
  static constexpr int64_t kMaxHeaderBytes = 100'000'000;  // as the reference implementation

  struct TensorInfo {
    DType dtype = DType::kF32;
    std::vector<int64_t> shape;
    int64_t offset = 0;  // in bytes, from the start of the file
    int64_t bytes = 0;
  };

  // Reads and checks the header. DATA_LOSS for a truncated file, a bad header, repeated names,
  // offsets that overlap, leave a gap or disagree with dtype and shape; INVALID_ARGUMENT for a
  // dtype that Muster does not know.
  static absl::StatusOr<SafetensorsReader> Open(FileSystem& files, const std::string& path);
  static absl::StatusOr<SafetensorsReader> Open(std::unique_ptr<ReadableFile> file,
                                                const std::string& path);

  const std::map<std::string, TensorInfo>& tensors() const { return tensors_; }
  const SafetensorsMetadata& metadata() const { return metadata_; }
  const std::string& path() const { return path_; }

  // All bytes of one tensor. Requires: out.size() == tensor.bytes.
  absl::Status Read(const TensorInfo& tensor, absl::Span<char> out) const;
  // The bytes of one tensor from `begin` on. Requires: the tensor has them.
  absl::Status ReadFrom(const TensorInfo& tensor, int64_t begin, absl::Span<char> out) const;

 private:
  SafetensorsReader() = default;
  absl::Status ParseHeader(absl::string_view header, int64_t data_begin);

  std::string path_;
  std::unique_ptr<ReadableFile> file_;
  std::map<std::string, TensorInfo> tensors_;
  SafetensorsMetadata metadata_;
};

}  // namespace muster

#endif  // MUSTER_WORKER_CHECKPOINT_SAFETENSORS_H_
