// Files as an argument: code that must survive crashes takes a FileSystem, so that a test can make
// its N-th operation fail. PosixFileSystem is the real one.
//
// Paths are UTF-8 or whatever bytes the kernel takes. Every error names the operation, the path and
// the reason; codes are NOT_FOUND, ALREADY_EXISTS, PERMISSION_DENIED, RESOURCE_EXHAUSTED (disk
// full, quota, too many open files), INVALID_ARGUMENT (not a directory, is a directory) and
// otherwise UNAVAILABLE. A FileSystem is thread-safe; one open file is thread-compatible, except
// that ReadAt is thread-safe.
//
// What survives a crash of the machine: the bytes of a file once Sync() returned, and a name (new,
// renamed or removed) once SyncDirectory() of its directory returned.
#ifndef MUSTER_BASE_FILE_H_
#define MUSTER_BASE_FILE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace muster {

class WritableFile {
 public:
  virtual ~WritableFile() = default;  // closes, ignoring errors
  // Hands all of `bytes` to the kernel; nothing stays in a buffer of this process.
  virtual absl::Status Append(absl::string_view bytes) = 0;
  virtual absl::Status Sync() = 0;
  // At most once; nothing may be called afterwards.
  virtual absl::Status Close() = 0;
};

class ReadableFile {
 public:
  virtual ~ReadableFile() = default;
  // Size when the file was opened.
  virtual int64_t size() const = 0;
  // Fills `out` from `offset` on and returns the bytes read: fewer than asked only at the end of
  // the file.
  virtual absl::StatusOr<size_t> ReadAt(int64_t offset, absl::Span<char> out) const = 0;
};

struct FileDestination {
  std::string path;
  // A device, a pipe or a descriptor of a process: to be written, for it is no file to replace.
  bool is_stream = false;
};

class FileSystem {
 public:
  virtual ~FileSystem() = default;

  // Creates the file, or empties the one that is there.
  virtual absl::StatusOr<std::unique_ptr<WritableFile>> Create(const std::string& path) = 0;
  // Opens the file to write after its end; creates it if it is missing.
  // A pipe that nobody reads is UNAVAILABLE, here and with Create, and no reason to wait.
  virtual absl::StatusOr<std::unique_ptr<WritableFile>> OpenToAppend(const std::string& path) = 0;
  virtual absl::StatusOr<std::unique_ptr<ReadableFile>> Open(const std::string& path) = 0;

  // Where a file goes that is written as `path`: behind all links, of which the last may be
  // dangling. INVALID_ARGUMENT if a directory is there. A file system that has neither links nor
  // devices says: to `path`.
  virtual absl::StatusOr<FileDestination> FindDestination(const std::string& path) {
    return FileDestination{.path = path};
  }

  // True for a file or a directory.
  virtual absl::StatusOr<bool> Exists(const std::string& path) = 0;
  // Names (not paths) in the directory, sorted, without "." and "..".
  virtual absl::StatusOr<std::vector<std::string>> ListDirectory(const std::string& path) = 0;

  // Creates the directory and its missing parents; fine if it is there already.
  virtual absl::Status CreateDirectories(const std::string& path) = 0;
  // Atomic within one file system. Replaces an existing file; fails on a directory with content.
  virtual absl::Status Rename(const std::string& from, const std::string& to) = 0;
  virtual absl::Status SyncDirectory(const std::string& path) = 0;
  // A file, or a directory with everything in it; fine if it is not there. Follows no links.
  virtual absl::Status RemoveAll(const std::string& path) = 0;
};

class PosixFileSystem final : public FileSystem {
 public:
  absl::StatusOr<std::unique_ptr<WritableFile>> Create(const std::string& path) override;
  absl::StatusOr<std::unique_ptr<WritableFile>> OpenToAppend(const std::string& path) override;
  absl::StatusOr<std::unique_ptr<ReadableFile>> Open(const std::string& path) override;
  absl::StatusOr<FileDestination> FindDestination(const std::string& path) override;
  absl::StatusOr<bool> Exists(const std::string& path) override;
  absl::StatusOr<std::vector<std::string>> ListDirectory(const std::string& path) override;
  absl::Status CreateDirectories(const std::string& path) override;
  absl::Status Rename(const std::string& from, const std::string& to) override;
  absl::Status SyncDirectory(const std::string& path) override;
  absl::Status RemoveAll(const std::string& path) override;
};

// "a" and "b" to "a/b".
std::string JoinPath(absl::string_view directory, absl::string_view name);
// "a/b" to "a"; "b" to ".".
std::string ParentDirectory(absl::string_view path);

// The whole file. OUT_OF_RANGE if it is larger than `max_bytes`.
absl::StatusOr<std::string> ReadFile(FileSystem& files, const std::string& path, int64_t max_bytes);

// Creates the directory and its missing parents, and makes their names durable.
absl::Status CreateDirectoriesDurably(FileSystem& files, const std::string& path);

// Writes, syncs and closes a new file. Its name is durable only after SyncDirectory.
absl::Status WriteFileDurably(FileSystem& files, const std::string& path,
                              absl::string_view contents);

// Replaces `path` so that a reader, or a machine that crashed, sees either the old contents or the
// new: writes `path`.tmp, syncs it, renames it, syncs the directory. Leaves no `path`.tmp behind.
// Links are followed and stay; a device, a pipe or this process's /dev/stdout is written as it is.
absl::Status ReplaceFileAtomically(FileSystem& files, const std::string& path,
                                   absl::string_view contents);

}  // namespace muster

#endif  // MUSTER_BASE_FILE_H_
