// A file of a checkpoint that compares what it hands out with the checksums in the manifest.
// Internal to this folder.
//
// It reads, and verifies, whole pieces of kCheckedBytes, of which it keeps the last one.
// Thread-safe.
#ifndef MUSTER_WORKER_CHECKPOINT_VERIFIED_FILE_H_
#define MUSTER_WORKER_CHECKPOINT_VERIFIED_FILE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/file.h"
#include "base/mutex.h"
#include "worker/checkpoint/manifest.h"

namespace muster {

class VerifiedFile final : public ReadableFile {
 public:
  // DATA_LOSS if its size is another than the manifest says; errors of FileSystem::Open.
  static absl::StatusOr<std::unique_ptr<ReadableFile>> Open(FileSystem& files,
                                                            const std::string& path,
                                                            const CheckpointFile& expected);
  static absl::Status CheckSize(const ReadableFile& file, const std::string& path,
                                const CheckpointFile& expected);

  int64_t size() const override { return file_->size(); }
  // DATA_LOSS names the damaged bytes. Requires: `expected` has checksums.
  absl::StatusOr<size_t> ReadAt(int64_t offset, absl::Span<char> out) const override;

 private:
  VerifiedFile(std::unique_ptr<ReadableFile> file, std::string path, CheckpointFile expected)
      : file_(std::move(file)), path_(std::move(path)), expected_(std::move(expected)) {}

  absl::Status Load(int64_t piece) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::unique_ptr<ReadableFile> file_;
  const std::string path_;
  const CheckpointFile expected_;
  mutable Mutex mutex_;
  mutable int64_t loaded_ ABSL_GUARDED_BY(mutex_) = -1;
  mutable std::vector<char> bytes_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace muster

#endif  // MUSTER_WORKER_CHECKPOINT_VERIFIED_FILE_H_
