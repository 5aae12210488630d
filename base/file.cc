#include "base/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status_macros.h"

namespace muster {
namespace {

absl::StatusCode CodeOf(int error) {
  switch (error) {
    case ENOENT:
      return absl::StatusCode::kNotFound;
    case EEXIST:
    case ENOTEMPTY:
      return absl::StatusCode::kAlreadyExists;
    case EACCES:
    case EPERM:
    case EROFS:
      return absl::StatusCode::kPermissionDenied;
    case ENOSPC:
    case EDQUOT:
    case EMFILE:
    case ENFILE:
      return absl::StatusCode::kResourceExhausted;
    case ENOTDIR:
    case EISDIR:
    case EINVAL:
    case ENAMETOOLONG:
      return absl::StatusCode::kInvalidArgument;
    default:
      return absl::StatusCode::kUnavailable;
  }
}

absl::Status FileError(absl::string_view operation, absl::string_view path, int error) {
  return absl::Status(CodeOf(error), absl::StrCat("cannot ", operation, " ", path, ": ",
                                                  std::generic_category().message(error)));
}

// Repeats a system call that a signal interrupted.
template <typename Call>
auto Retry(Call call) {
  decltype(call()) result;
  do {
    result = call();
  } while (result < 0 && errno == EINTR);
  return result;
}

class PosixWritableFile final : public WritableFile {
 public:
  PosixWritableFile(int descriptor, std::string path)
      : descriptor_(descriptor), path_(std::move(path)) {}
  ~PosixWritableFile() override {
    if (descriptor_ >= 0) close(descriptor_);
  }

  absl::Status Append(absl::string_view bytes) override {
    MUSTER_CHECK(descriptor_ >= 0) << path_ << " is closed";
    while (!bytes.empty()) {
      const ssize_t written = Retry([&] { return write(descriptor_, bytes.data(), bytes.size()); });
      if (written < 0) return FileError("write", path_, errno);
      bytes.remove_prefix(static_cast<size_t>(written));
    }
    return absl::OkStatus();
  }

  absl::Status Sync() override {
    MUSTER_CHECK(descriptor_ >= 0) << path_ << " is closed";
    if (Retry([&] { return fsync(descriptor_); }) != 0) return FileError("sync", path_, errno);
    return absl::OkStatus();
  }

  absl::Status Close() override {
    MUSTER_CHECK(descriptor_ >= 0) << path_ << " is closed";
    // After EINTR the descriptor is closed on Linux: never try again.
    const int result = close(std::exchange(descriptor_, -1));
    if (result != 0 && errno != EINTR) return FileError("close", path_, errno);
    return absl::OkStatus();
  }

 private:
  int descriptor_;
  const std::string path_;
};

class PosixReadableFile final : public ReadableFile {
 public:
  PosixReadableFile(int descriptor, int64_t size, std::string path)
      : descriptor_(descriptor), size_(size), path_(std::move(path)) {}
  ~PosixReadableFile() override { close(descriptor_); }

  int64_t size() const override { return size_; }

  absl::StatusOr<size_t> ReadAt(int64_t offset, absl::Span<char> out) const override {
    size_t done = 0;
    while (done < out.size()) {
      const ssize_t count = Retry([&] {
        return pread(descriptor_, out.data() + done, out.size() - done,
                     static_cast<off_t>(offset + static_cast<int64_t>(done)));
      });
      if (count < 0) return FileError("read", path_, errno);
      if (count == 0) break;
      done += static_cast<size_t>(count);
    }
    return done;
  }

 private:
  const int descriptor_;
  const int64_t size_;
  const std::string path_;
};

absl::StatusOr<std::unique_ptr<WritableFile>> OpenToWrite(const std::string& path, int flags) {
  const int descriptor =
      Retry([&] { return open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | flags, 0666); });
  if (descriptor < 0) return FileError("create", path, errno);
  return std::make_unique<PosixWritableFile>(descriptor, path);
}

}  // namespace

absl::StatusOr<std::unique_ptr<WritableFile>> PosixFileSystem::Create(const std::string& path) {
  return OpenToWrite(path, O_TRUNC);
}

absl::StatusOr<std::unique_ptr<WritableFile>> PosixFileSystem::OpenToAppend(
    const std::string& path) {
  return OpenToWrite(path, O_APPEND);
}

absl::StatusOr<std::unique_ptr<ReadableFile>> PosixFileSystem::Open(const std::string& path) {
  // O_NONBLOCK: to open a pipe that nobody writes to would wait for ever. It changes nothing for
  // files.
  const int descriptor =
      Retry([&] { return open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC); });
  if (descriptor < 0) return FileError("open", path, errno);
  struct stat info;
  if (fstat(descriptor, &info) != 0) {
    const int error = errno;
    close(descriptor);
    return FileError("inspect", path, error);
  }
  if (!S_ISREG(info.st_mode)) {
    close(descriptor);
    return absl::InvalidArgumentError(
        absl::StrCat("cannot read ", path, ": it is not a regular file"));
  }
  return std::make_unique<PosixReadableFile>(descriptor, info.st_size, path);
}

absl::StatusOr<bool> PosixFileSystem::Exists(const std::string& path) {
  struct stat info;
  if (lstat(path.c_str(), &info) == 0) return true;
  if (errno == ENOENT) return false;
  return FileError("inspect", path, errno);
}

absl::StatusOr<std::vector<std::string>> PosixFileSystem::ListDirectory(const std::string& path) {
  std::error_code error;
  std::vector<std::string> names;
  std::filesystem::directory_iterator entry(path, error);
  while (!error && entry != std::filesystem::directory_iterator()) {
    names.push_back(entry->path().filename().string());
    entry.increment(error);
  }
  if (error) return FileError("list", path, error.value());
  std::sort(names.begin(), names.end());
  return names;
}

absl::Status PosixFileSystem::CreateDirectories(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) return FileError("create directory", path, error.value());
  return absl::OkStatus();
}

absl::Status PosixFileSystem::Rename(const std::string& from, const std::string& to) {
  if (rename(from.c_str(), to.c_str()) != 0) {
    return FileError("rename", absl::StrCat(from, " to ", to), errno);
  }
  return absl::OkStatus();
}

absl::Status PosixFileSystem::SyncDirectory(const std::string& path) {
  const int descriptor =
      Retry([&] { return open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); });
  if (descriptor < 0) return FileError("open directory", path, errno);
  const int result = Retry([&] { return fsync(descriptor); });
  const int error = errno;
  close(descriptor);
  if (result != 0) return FileError("sync directory", path, error);
  return absl::OkStatus();
}

absl::Status PosixFileSystem::RemoveAll(const std::string& path) {
  std::error_code error;
  std::filesystem::remove_all(path, error);
  if (error) return FileError("remove", path, error.value());
  return absl::OkStatus();
}

std::string JoinPath(absl::string_view directory, absl::string_view name) {
  if (directory.empty()) return std::string(name);
  return absl::StrCat(directory, directory.back() == '/' ? "" : "/", name);
}

std::string ParentDirectory(absl::string_view path) {
  const std::string parent = std::filesystem::path(std::string(path)).parent_path().string();
  return parent.empty() ? "." : parent;
}

absl::StatusOr<std::string> ReadFile(FileSystem& files, const std::string& path,
                                     int64_t max_bytes) {
  MUSTER_ASSIGN_OR_RETURN(const auto file, files.Open(path));
  if (file->size() > max_bytes) {
    return absl::OutOfRangeError(
        absl::StrCat(path, " has ", file->size(), " bytes; at most ", max_bytes, " are accepted"));
  }
  std::string contents(static_cast<size_t>(file->size()), '\0');
  MUSTER_ASSIGN_OR_RETURN(const size_t count, file->ReadAt(0, absl::MakeSpan(contents)));
  contents.resize(count);
  return contents;
}

absl::Status CreateDirectoriesDurably(FileSystem& files, const std::string& path) {
  MUSTER_ASSIGN_OR_RETURN(const bool exists, files.Exists(path));
  if (exists) return absl::OkStatus();
  const std::string parent = ParentDirectory(path);
  if (parent != path) MUSTER_RETURN_IF_ERROR(CreateDirectoriesDurably(files, parent));
  MUSTER_RETURN_IF_ERROR(files.CreateDirectories(path));
  return files.SyncDirectory(parent);
}

absl::Status WriteFileDurably(FileSystem& files, const std::string& path,
                              absl::string_view contents) {
  MUSTER_ASSIGN_OR_RETURN(const auto file, files.Create(path));
  MUSTER_RETURN_IF_ERROR(file->Append(contents));
  MUSTER_RETURN_IF_ERROR(file->Sync());
  return file->Close();
}

absl::Status ReplaceFileAtomically(FileSystem& files, const std::string& path,
                                   absl::string_view contents) {
  const std::string temporary = absl::StrCat(path, ".tmp");
  absl::Status status = WriteFileDurably(files, temporary, contents);
  if (status.ok()) status = files.Rename(temporary, path);
  if (!status.ok()) {
    files.RemoveAll(temporary).IgnoreError();  // the first error is the one to tell
    return status;
  }
  return files.SyncDirectory(ParentDirectory(path));
}

}  // namespace muster
