#include "tests/worker/checkpoint/crashing_file_system.h"

#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status_macros.h"

namespace muster {
namespace {

// The path of the same file after `from` was renamed to `to`.
std::string Moved(const std::string& path, const std::string& from, const std::string& to) {
  const bool inside = path == from || absl::StartsWith(path, from + "/");
  return inside ? to + path.substr(from.size()) : path;
}

}  // namespace

class CrashingFileSystem::File final : public WritableFile {
 public:
  File(CrashingFileSystem& owner, std::string path, std::unique_ptr<WritableFile> file)
      : owner_(owner), path_(std::move(path)), file_(std::move(file)) {}

  absl::Status Append(absl::string_view bytes) override {
    const bool already_failed = owner_.failed_;
    const absl::Status next = owner_.Next("write", path_);
    // A write that fails may have done a part of its work.
    if (!next.ok()) bytes = bytes.substr(0, already_failed ? 0 : bytes.size() / 2);
    MUSTER_RETURN_IF_ERROR(file_->Append(bytes));
    bytes_ += static_cast<int64_t>(bytes.size());
    return next;
  }
  absl::Status Sync() override {
    MUSTER_RETURN_IF_ERROR(owner_.Next("sync", path_));
    if (!owner_.options_.ignore_sync) owner_.synced_bytes_[path_] = bytes_;
    return absl::OkStatus();
  }
  absl::Status Close() override {
    MUSTER_RETURN_IF_ERROR(owner_.Next("close", path_));
    return file_->Close();
  }

 private:
  CrashingFileSystem& owner_;
  const std::string path_;
  const std::unique_ptr<WritableFile> file_;
  int64_t bytes_ = 0;
};

absl::Status CrashingFileSystem::Next(absl::string_view operation, const std::string& path) {
  ++operations_;
  const bool fails =
      options_.fail_at != 0 && (operations_ == options_.fail_at ||
                                (options_.mode == Mode::kDie && operations_ > options_.fail_at));
  if (!fails) return absl::OkStatus();
  failed_ = true;
  return absl::UnavailableError(absl::StrCat("cannot ", operation, " ", path, ": injected"));
}

void CrashingFileSystem::Lose(Loss loss) {
  if (loss == Loss::kNothing) return;
  for (const auto& [path, bytes] : synced_bytes_) {
    std::error_code gone;  // a later operation may have removed it
    if (std::filesystem::exists(path, gone)) {
      std::filesystem::resize_file(path, static_cast<uintmax_t>(bytes));
    }
  }
  if (loss == Loss::kData) return;
  while (!names_.empty()) {
    const NameChange change = names_.back();
    names_.pop_back();
    if (change.renamed_from.empty()) {
      std::filesystem::remove_all(change.path);
    } else if (std::filesystem::exists(change.path)) {
      std::filesystem::rename(change.path, change.renamed_from);
      MoveNames(change.path, change.renamed_from);
    }
  }
}

absl::StatusOr<std::unique_ptr<WritableFile>> CrashingFileSystem::Create(const std::string& path) {
  MUSTER_RETURN_IF_ERROR(Next("create", path));
  MUSTER_ASSIGN_OR_RETURN(const bool exists, files_.Exists(path));
  MUSTER_ASSIGN_OR_RETURN(std::unique_ptr<WritableFile> file, files_.Create(path));
  if (!exists) names_.push_back({ParentDirectory(path), path, ""});
  synced_bytes_[path] = 0;
  return std::make_unique<File>(*this, path, std::move(file));
}

absl::StatusOr<std::unique_ptr<WritableFile>> CrashingFileSystem::OpenToAppend(
    const std::string& path) {
  return absl::UnimplementedError(absl::StrCat("append to ", path));
}

absl::StatusOr<std::unique_ptr<ReadableFile>> CrashingFileSystem::Open(const std::string& path) {
  return files_.Open(path);
}

absl::StatusOr<bool> CrashingFileSystem::Exists(const std::string& path) {
  return files_.Exists(path);
}

absl::StatusOr<std::vector<std::string>> CrashingFileSystem::ListDirectory(
    const std::string& path) {
  return files_.ListDirectory(path);
}

absl::Status CrashingFileSystem::CreateDirectories(const std::string& path) {
  MUSTER_RETURN_IF_ERROR(Next("create directory", path));
  std::vector<NameChange> created;  // innermost first
  for (std::string missing = path; !std::filesystem::exists(missing);
       missing = ParentDirectory(missing)) {
    created.push_back({ParentDirectory(missing), missing, ""});
  }
  names_.insert(names_.end(), created.rbegin(), created.rend());
  return files_.CreateDirectories(path);
}

absl::Status CrashingFileSystem::Rename(const std::string& from, const std::string& to) {
  MUSTER_RETURN_IF_ERROR(Next("rename", from));
  MUSTER_RETURN_IF_ERROR(files_.Rename(from, to));
  std::map<std::string, int64_t> moved;
  for (const auto& [path, bytes] : synced_bytes_) moved[Moved(path, from, to)] = bytes;
  synced_bytes_ = std::move(moved);
  MoveNames(from, to);
  names_.push_back({ParentDirectory(to), to, from});
  return absl::OkStatus();
}

void CrashingFileSystem::MoveNames(const std::string& from, const std::string& to) {
  for (NameChange& change : names_) {
    // Only what lies in the directory: its own name has a change of its own.
    change.directory = Moved(change.directory, from, to);
    if (change.path != from) change.path = Moved(change.path, from, to);
    if (change.renamed_from != from) change.renamed_from = Moved(change.renamed_from, from, to);
  }
}

absl::Status CrashingFileSystem::SyncDirectory(const std::string& path) {
  MUSTER_RETURN_IF_ERROR(Next("sync directory", path));
  if (!options_.ignore_sync) {
    std::erase_if(names_, [&](const NameChange& change) { return change.directory == path; });
  }
  return files_.SyncDirectory(path);
}

absl::Status CrashingFileSystem::RemoveAll(const std::string& path) {
  const bool already_failed = failed_;
  const absl::Status next = Next("remove", path);
  if (next.ok()) return files_.RemoveAll(path);
  // Removing a directory that fails may have removed a part of it.
  if (!already_failed && std::filesystem::is_directory(path)) {
    MUSTER_ASSIGN_OR_RETURN(const std::vector<std::string> names, files_.ListDirectory(path));
    for (size_t i = 1; i < names.size(); ++i) {
      MUSTER_RETURN_IF_ERROR(files_.RemoveAll(JoinPath(path, names[i])));
    }
  }
  return next;
}

}  // namespace muster
