// Reads job files: YAML, JSON or textproto, told apart by the file's ending, into one message.
//
// Thread-safe. Errors are INVALID_ARGUMENT (NOT_FOUND and the like if the file cannot be read) and
// read "FILE:LINE:COLUMN: FIELD: what is wrong", for example
//   jobs/mlp.yaml:12:3: training.batch: no such field; did you mean "global_batch"?
// Paths inside a job file are left as they are: they are seen by the workers, a relative one from
// the directory in which a worker was started.
#ifndef MUSTER_CLIENT_JOB_FILE_H_
#define MUSTER_CLIENT_JOB_FILE_H_

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "muster/v1/job.pb.h"

namespace muster {

enum class JobFileFormat : uint8_t { kYaml, kJson, kTextproto };

inline constexpr int64_t kMaxJobFileBytes = 64 << 10;

// By ending: .yaml .yml; .json; .textproto .txtpb .pbtxt. INVALID_ARGUMENT lists them.
absl::StatusOr<JobFileFormat> JobFileFormatOf(absl::string_view path);

// Fills in what the file may leave out where the job is read; called before the job is validated.
using JobDefaults = std::function<void(v1::JobDescription*)>;

// Reads, parses and validates a job file of at most kMaxJobFileBytes. A job without a name gets
// the file's name without its ending.
absl::StatusOr<v1::JobDescription> ReadJobFile(const std::string& path,
                                               const JobDefaults& defaults = nullptr);

// The same for a text; `path` is used for the name and in errors.
absl::StatusOr<v1::JobDescription> ParseJob(absl::string_view text, JobFileFormat format,
                                            const std::string& path,
                                            const JobDefaults& defaults = nullptr);

}  // namespace muster

#endif  // MUSTER_CLIENT_JOB_FILE_H_
