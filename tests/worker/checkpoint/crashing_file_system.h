// A file system that fails at its N-th changing operation, and can then lose what was not synced,
// as a machine that loses power does. Works on real files. Not thread-safe.
#ifndef MUSTER_TESTS_WORKER_CHECKPOINT_CRASHING_FILE_SYSTEM_H_
#define MUSTER_TESTS_WORKER_CHECKPOINT_CRASHING_FILE_SYSTEM_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/file.h"

namespace muster {

class CrashingFileSystem final : public FileSystem {
 public:
  enum class Mode {
    kDie,      // the failing operation and all later ones fail: the process is gone
    kFailOnce  // only this one fails: a full disk that is emptied, a network share that comes back
  };
  struct Options {
    int64_t fail_at = 0;  // the number of the failing operation, from 1; 0: none
    Mode mode = Mode::kDie;
    bool ignore_sync = false;  // a mutant: syncs succeed without making anything durable
  };
  explicit CrashingFileSystem(Options options) : options_(options) {}

  bool failed() const { return failed_; }

  // What the disk holds after the crash.
  enum class Loss {
    kNothing,       // the process was killed, the machine lives
    kData,          // bytes appended since the last sync of their file
    kDataAndNames,  // and names created or renamed since the last sync of their directory
  };
  void Lose(Loss loss);

  absl::StatusOr<std::unique_ptr<WritableFile>> Create(const std::string& path) override;
  absl::StatusOr<std::unique_ptr<WritableFile>> OpenToAppend(const std::string& path) override;
  absl::StatusOr<std::unique_ptr<ReadableFile>> Open(const std::string& path) override;
  absl::StatusOr<bool> Exists(const std::string& path) override;
  absl::StatusOr<std::vector<std::string>> ListDirectory(const std::string& path) override;
  absl::Status CreateDirectories(const std::string& path) override;
  absl::Status Rename(const std::string& from, const std::string& to) override;
  absl::Status SyncDirectory(const std::string& path) override;
  absl::Status RemoveAll(const std::string& path) override;

 private:
  class File;
  struct NameChange {
    std::string directory;  // whose sync makes it durable
    std::string path;
    std::string renamed_from;  // empty: created
  };

  // Counts one operation; an error if it is to fail.
  absl::Status Next(absl::string_view operation, const std::string& path);

  // Renames the paths of pending changes inside a directory that moved.
  void MoveNames(const std::string& from, const std::string& to);

  const Options options_;
  int64_t operations_ = 0;
  bool failed_ = false;
  PosixFileSystem files_;
  std::map<std::string, int64_t> synced_bytes_;  // of files that were written to
  std::vector<NameChange> names_;                // not synced, oldest first
};

}  // namespace muster

#endif  // MUSTER_TESTS_WORKER_CHECKPOINT_CRASHING_FILE_SYSTEM_H_
