// What the coordinator must read of a job's files when the job is submitted: how many samples there
// are, where steps are given as passes over the data, and the newest checkpoint, where the job
// resumes. It never reads the data itself.
//
// Thread-safe. May take as long as reading a checkpoint takes.
#ifndef MUSTER_SERVER_RPC_JOB_FILES_H_
#define MUSTER_SERVER_RPC_JOB_FILES_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/control/messages.h"
#include "base/file.h"
#include "base/job_spec.h"

namespace muster {

// The first dimension in the header of an IDX file, plain or gzip. INVALID_ARGUMENT names the file
// and what is wrong with it; NOT_FOUND and the like if it cannot be read.
absl::StatusOr<int64_t> CountIdxItems(FileSystem& files, const std::string& path);

struct ResumePoint {
  std::optional<CheckpointReport> newest;  // none: nothing to resume from
  std::vector<std::string> warnings;       // one per torn or corrupt checkpoint passed over
};

// The newest checkpoint <directory>/step-* whose files all have the sizes and checksums its
// manifest says; by branch, then by step. A directory that does not exist has none.
absl::StatusOr<ResumePoint> FindResumePoint(FileSystem& files, const std::string& directory);

struct ResolvedJob {
  Step total_steps = 0;
  ResumePoint resume;
};

// INVALID_ARGUMENT names the field and says what to do.
absl::StatusOr<ResolvedJob> ResolveJobFiles(FileSystem& files, const JobSpec& spec);

}  // namespace muster

#endif  // MUSTER_SERVER_RPC_JOB_FILES_H_
