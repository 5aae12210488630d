// Submits a job and follows it on a thread of its own, so that the main thread can look after child
// processes. Thread-safe.
#ifndef MUSTER_CLIENT_LAUNCHER_JOB_FOLLOWER_H_
#define MUSTER_CLIENT_LAUNCHER_JOB_FOLLOWER_H_

#include <optional>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "client/coordinator_client.h"

namespace muster {

class JobFollower {
 public:
  JobFollower(const std::string& coordinator_address, v1::JobDescription job);
  // Stops following; does not end the job.
  ~JobFollower();

  // Readable while there is news.
  int descriptor() const { return event_; }

  struct News {
    // The newest state, if it has changed since the last call.
    std::optional<v1::Job> job;
    // Set at the end: OK when the job has ended (whatever its outcome), otherwise why it could not
    // be followed.
    std::optional<absl::Status> finished;
  };
  News Take();

  // Ends the job and gives its last state; nothing if it has not been submitted. Waits at most
  // `timeout`.
  absl::StatusOr<std::optional<v1::Job>> Cancel(const std::string& reason, absl::Duration timeout);

 private:
  void Run(const v1::JobDescription& job);
  void Publish(const v1::Job& job);
  void Wake();

  const std::string address_;
  CoordinatorClient client_;
  const int event_;

  absl::Mutex mutex_;
  News news_ ABSL_GUARDED_BY(mutex_);
  std::string job_id_ ABSL_GUARDED_BY(mutex_);

  std::thread thread_;  // last: it uses all of the above
};

}  // namespace muster

#endif  // MUSTER_CLIENT_LAUNCHER_JOB_FOLLOWER_H_
