#include "base/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
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
  // O_NONBLOCK: to open a pipe that nobody reads would wait for ever. Writing may wait.
  const int descriptor = Retry([&] {
    return open(path.c_str(), O_WRONLY | O_CREAT | O_NONBLOCK | O_CLOEXEC | flags, 0666);
  });
  if (descriptor < 0 && errno == ENXIO) {
    return absl::UnavailableError(absl::StrCat(
        "cannot write ", path, ": it is a pipe or a socket that nobody reads; start its reader"));
  }
  if (descriptor < 0) return FileError("create", path, errno);
  auto file = std::make_unique<PosixWritableFile>(descriptor, path);
  const int modes = fcntl(descriptor, F_GETFL);
  if (modes < 0 || fcntl(descriptor, F_SETFL, modes & ~O_NONBLOCK) != 0) {
    return FileError("open", path, errno);
  }
  return file;
}

// What the kernel's names of this process's descriptors begin with.
constexpr absl::string_view kOwnDescriptors = "/proc/self/fd/";

// The directory in which `path` lies, without links.
std::string RealParent(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::canonical(ParentDirectory(path), ignored).string();
}

// Follows one link; absent if `path` is none.
absl::StatusOr<std::optional<std::string>> FollowLink(const std::string& path) {
  std::error_code error;
  const std::filesystem::file_status status = std::filesystem::symlink_status(path, error);
  if (status.type() == std::filesystem::file_type::not_found) return std::nullopt;
  if (error) return FileError("inspect", path, error.value());
  if (status.type() != std::filesystem::file_type::symlink) return std::nullopt;
  const std::filesystem::path target = std::filesystem::read_symlink(path, error);
  if (error) return FileError("follow", path, error.value());
  // An absolute target replaces what is before it.
  return (std::filesystem::path(ParentDirectory(path)) / target).string();
}

}  // namespace

absl::StatusOr<std::unique_ptr<WritableFile>> PosixFileSystem::Create(const std::string& path) {
  return OpenToWrite(path, O_TRUNC);
}

absl::StatusOr<std::unique_ptr<WritableFile>> PosixFileSystem::OpenToAppend(
    const std::string& path) {
  int own = -1;
  if (absl::StartsWith(path, kOwnDescriptors) &&
      absl::SimpleAtoi(absl::string_view(path).substr(kOwnDescriptors.size()), &own)) {
    // Opened anew, a file would have a second position, and one would write over the other.
    const int descriptor = fcntl(own, F_DUPFD_CLOEXEC, 0);
    if (descriptor < 0) return FileError("open", path, errno);
    return std::make_unique<PosixWritableFile>(descriptor, path);
  }
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

absl::StatusOr<FileDestination> PosixFileSystem::FindDestination(const std::string& path) {
  constexpr int kMostLinks = 40;  // as the kernel has it
  struct stat info;
  const bool exists = stat(path.c_str(), &info) == 0;
  if (!exists && errno != ENOENT) return FileError("inspect", path, errno);
  if (exists && S_ISDIR(info.st_mode)) {
    return absl::InvalidArgumentError(absl::StrCat("cannot write ", path, ": it is a directory"));
  }
  FileDestination found{.path = path, .is_stream = exists && !S_ISREG(info.st_mode)};
  for (int links = 0; links < kMostLinks; ++links) {
    MUSTER_ASSIGN_OR_RETURN(const std::optional<std::string> next, FollowLink(found.path));
    if (!next.has_value()) return found;
    // Links of /proc are no names of files: what stands in them may be none, and whoever has the
    // file open goes on writing it.
    const std::string parent = RealParent(found.path);
    if (absl::StartsWith(parent, "/proc/")) {
      if (parent == absl::StrCat("/proc/", getpid(), "/fd")) {
        const std::string number = std::filesystem::path(found.path).filename().string();
        return FileDestination{.path = absl::StrCat(kOwnDescriptors, number), .is_stream = true};
      }
      return FileDestination{.path = found.path, .is_stream = true};
    }
    found.path = *next;
  }
  return FileError("follow", path, ELOOP);
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
  MUSTER_ASSIGN_OR_RETURN(const FileDestination destination, files.FindDestination(path));
  if (destination.is_stream) {
    MUSTER_ASSIGN_OR_RETURN(const auto stream, files.OpenToAppend(destination.path));
    MUSTER_RETURN_IF_ERROR(stream->Append(contents));
    return stream->Close();
  }
  const std::string temporary = absl::StrCat(destination.path, ".tmp");
  absl::Status status = WriteFileDurably(files, temporary, contents);
  if (status.ok()) status = files.Rename(temporary, destination.path);
  if (!status.ok()) {
    files.RemoveAll(temporary).IgnoreError();  // the first error is the one to tell
    return status;
  }
  return files.SyncDirectory(ParentDirectory(destination.path));
}

}  // namespace muster
