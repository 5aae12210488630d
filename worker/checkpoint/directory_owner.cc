#include "worker/checkpoint/directory_owner.h"

#include <cstdint>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "base/text.h"
#include "worker/checkpoint/checkpoint_directory.h"
#include "worker/checkpoint/json.h"

namespace muster {
namespace {

constexpr int64_t kFormatVersion = 1;
constexpr int64_t kMaxOwnerBytes = int64_t{64} << 10;
constexpr size_t kMaxNameBytes = 200;  // in messages
// A writer that tidies just then removes the file that is to be renamed.
constexpr int kAttempts = 3;

struct OwnerRecord {
  DirectoryOwner owner;
  std::string since;
};

std::string Describe(const DirectoryOwner& owner) {
  return absl::StrCat("job ", TextForPeople(owner.job, kMaxNameBytes), " of fleet ",
                      TextForPeople(owner.fleet, kMaxNameBytes));
}

std::string PathOf(const std::string& root) { return JoinPath(root, kOwnerName); }

absl::StatusOr<OwnerRecord> Parse(absl::string_view text, const std::string& path) {
  MUSTER_ASSIGN_OR_RETURN(const nlohmann::json root, ParseJson(text, path));
  MUSTER_ASSIGN_OR_RETURN(const int64_t format, JsonCount(root, "format", path));
  if (format != kFormatVersion) {
    return absl::FailedPreconditionError(
        absl::StrCat(path, ": format ", format, ", this program reads format ", kFormatVersion));
  }
  OwnerRecord record;
  MUSTER_ASSIGN_OR_RETURN(record.owner.fleet, JsonString(root, "fleet", path));
  MUSTER_ASSIGN_OR_RETURN(record.owner.job, JsonString(root, "job", path));
  MUSTER_ASSIGN_OR_RETURN(record.since, JsonString(root, "since", path));
  return record;
}

// NOT_FOUND if there is no file.
absl::StatusOr<OwnerRecord> ReadOwner(FileSystem& files, const std::string& root) {
  const std::string path = PathOf(root);
  const absl::StatusOr<std::string> text = ReadFile(files, path, kMaxOwnerBytes);
  if (absl::IsOutOfRange(text.status())) return absl::DataLossError(text.status().message());
  if (!text.ok()) return text.status();
  absl::StatusOr<OwnerRecord> record = Parse(*text, path);
  if (!record.ok()) return StatusForPeople(record.status());  // it may quote the file
  return record;
}

}  // namespace

absl::StatusOr<std::string> TakeDirectory(FileSystem& files, const std::string& root,
                                          const DirectoryOwner& owner, Incarnation incarnation,
                                          absl::Time now) {
  const absl::StatusOr<OwnerRecord> before = ReadOwner(files, root);
  std::string taken_from;
  if (before.ok()) {
    if (before->owner == owner) return taken_from;
    taken_from = absl::StrCat(Describe(before->owner), ", whose it was since ",
                              TextForPeople(before->since, kMaxNameBytes));
  } else if (!absl::IsNotFound(before.status())) {
    taken_from = absl::StrCat("an unknown job: ", before.status().message());
  }
  const std::string path = PathOf(root);
  const nlohmann::json record = {
      {"format", kFormatVersion},
      {"fleet", owner.fleet},
      {"job", owner.job},
      {"since", absl::FormatTime("%Y-%m-%d%ET%H:%M:%SZ", now, absl::UTCTimeZone())}};
  MUSTER_ASSIGN_OR_RETURN(const std::string text, SerializeJson(record, path, 2));
  const std::string temporary = JoinPath(root, OwnerTemporaryName(incarnation));
  for (int attempt = 1;; ++attempt) {
    absl::Status status = WriteFileDurably(files, temporary, text + "\n");
    if (status.ok()) status = files.Rename(temporary, path);
    if (status.ok()) break;
    files.RemoveAll(temporary).IgnoreError();  // the first error is the one to tell
    if (!absl::IsNotFound(status) || attempt == kAttempts) return status;
  }
  MUSTER_RETURN_IF_ERROR(files.SyncDirectory(root));
  return taken_from;
}

absl::Status CheckOwner(FileSystem& files, const std::string& root, const DirectoryOwner& owner) {
  const absl::StatusOr<OwnerRecord> record = ReadOwner(files, root);
  if (absl::IsNotFound(record.status())) return absl::OkStatus();
  if (!record.ok()) {
    return Annotate(record.status(),
                    absl::StrCat("checkpoints.directory: which job ", root,
                                 " belongs to is not known, so nothing is published or removed "
                                 "there; if no other job uses it, remove ",
                                 PathOf(root)));
  }
  if (record->owner == owner) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "checkpoints.directory: ", root, " was taken over at ",
      TextForPeople(record->since, kMaxNameBytes), " by ", Describe(record->owner), ", so ",
      Describe(owner),
      " publishes and removes nothing there any more; two jobs can't share a directory: submit one "
      "of them again with another"));
}

}  // namespace muster
