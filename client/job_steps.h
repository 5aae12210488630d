// The number of a job's steps, where a command line changes it. Pure and thread-safe.
#ifndef MUSTER_CLIENT_JOB_STEPS_H_
#define MUSTER_CLIENT_JOB_STEPS_H_

#include <cstdint>

#include "muster/v1/job.pb.h"

namespace muster {

// The job has `steps` steps, however long it was before. A warm-up that would not leave a step
// after it becomes half as long as the job; true if it was one. Requires: steps >= 1.
bool SetSteps(int64_t steps, v1::JobDescription* job);

}  // namespace muster

#endif  // MUSTER_CLIENT_JOB_STEPS_H_
