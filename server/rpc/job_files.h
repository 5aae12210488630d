// What the coordinator must read of a job's files when the job is submitted: how many samples there
// are, where steps are given as passes over the data. It never reads the data itself, nor
// checkpoints, which it may not even reach: workers find and verify those.
//
// Thread-safe.
#ifndef MUSTER_SERVER_RPC_JOB_FILES_H_
#define MUSTER_SERVER_RPC_JOB_FILES_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "base/file.h"
#include "base/ids.h"
#include "base/job_spec.h"

namespace muster {

// The first dimension in the header of an IDX file, plain or gzip. INVALID_ARGUMENT names the file
// and what is wrong with it; NOT_FOUND and the like if it cannot be read.
absl::StatusOr<int64_t> CountIdxItems(FileSystem& files, const std::string& path);

// The number of steps the job asks for. INVALID_ARGUMENT names the field and says what to do.
absl::StatusOr<Step> ResolveTotalSteps(FileSystem& files, const JobSpec& spec);

}  // namespace muster

#endif  // MUSTER_SERVER_RPC_JOB_FILES_H_
