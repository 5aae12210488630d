// Which job a checkpoint root belongs to: the one that began last.
//
// A job says so in <root>/owner.json when it begins, from initial weights or from a checkpoint,
//
//   {"format": 1, "fleet": "...", "job": "...", "since": "2026-05-04T03:02:01Z"}
//
// and reads it again before it publishes or removes anything there. So a job learns that a later
// one goes on in its place (which may be meant, or a mistake), and lets that one's files be. It is
// no lock: a job that begins just after the other has looked meets one last checkpoint of it. A
// root without the file, as older versions leave it, belongs to nobody.
//
// Functions are thread-safe. Errors of files are those of base/file.h.
#ifndef MUSTER_WORKER_CHECKPOINT_DIRECTORY_OWNER_H_
#define MUSTER_WORKER_CHECKPOINT_DIRECTORY_OWNER_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/file.h"
#include "base/ids.h"

namespace muster {

struct DirectoryOwner {
  std::string fleet;
  JobId job;
  bool operator==(const DirectoryOwner&) const = default;
};

// Makes `owner` the owner of `root` from `now` on, durably; nothing is written if it is that
// already. All members of the job may call it at the same time. Returns whom it took the root from,
// for a person; empty if nobody. INVALID_ARGUMENT for a name that is not UTF-8. `incarnation` keeps
// callers apart. Requires: `root` is there.
absl::StatusOr<std::string> TakeDirectory(FileSystem& files, const std::string& root,
                                          const DirectoryOwner& owner, Incarnation incarnation,
                                          absl::Time now);

// OK if the root is `owner`'s or nobody's. FAILED_PRECONDITION if another job has taken it over, or
// the file is of a newer format; DATA_LOSS if it can't be understood.
absl::Status CheckOwner(FileSystem& files, const std::string& root, const DirectoryOwner& owner);

}  // namespace muster

#endif  // MUSTER_WORKER_CHECKPOINT_DIRECTORY_OWNER_H_
