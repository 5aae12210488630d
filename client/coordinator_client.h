// Talks to a coordinator: submits, follows and ends jobs, lists members.
//
// Thread-safe. Every call has a deadline. Errors keep the coordinator's code and message; if it
// cannot be reached they are UNAVAILABLE (DEADLINE_EXCEEDED if it does not answer), name the
// address and say what to do. An address is host:port, an IPv6 host in brackets.
#ifndef MUSTER_CLIENT_COORDINATOR_CLIENT_H_
#define MUSTER_CLIENT_COORDINATOR_CLIENT_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "muster/v1/coordinator.pb.h"

namespace muster {

struct CoordinatorClientOptions {
  std::string address = "127.0.0.1:7070";
  // Deadline of one call.
  absl::Duration timeout = absl::Seconds(10);
  // No call but WatchJob lasts beyond it.
  absl::Time deadline = absl::InfiniteFuture();
  // WatchJob gives up so long after it has lost the coordinator, unless that was reached again;
  // after `timeout` if it has never been reached.
  absl::Duration watch_patience = absl::Seconds(60);
};

class CoordinatorClient {
 public:
  explicit CoordinatorClient(CoordinatorClientOptions options);
  ~CoordinatorClient();
  CoordinatorClient(const CoordinatorClient&) = delete;
  CoordinatorClient& operator=(const CoordinatorClient&) = delete;

  // Queues a job, and repeats the call while the coordinator cannot be reached and the deadline
  // allows: the job is never queued twice. What was submitted under the same `request_id` before is
  // not queued again either; that job is returned. Empty: a request id drawn anew.
  absl::StatusOr<v1::Job> SubmitJob(const v1::JobDescription& description,
                                    const std::string& request_id = "");

  absl::StatusOr<v1::Job> GetJob(const std::string& job_id);

  // Newest first, at most `limit`.
  absl::StatusOr<std::vector<v1::Job>> ListJobs(size_t limit);

  // The job after the call. FAILED_PRECONDITION if it has ended.
  absl::StatusOr<v1::Job> SwitchJob(const std::string& job_id, const v1::Strategy& strategy);

  // FAILED_PRECONDITION if it has ended, or too little is known of it.
  absl::StatusOr<v1::ExplainStrategyResponse> ExplainStrategy(const std::string& job_id);

  // The job after the call. Cancelling a job that had ended changes nothing; the answer says so.
  absl::StatusOr<v1::CancelJobResponse> CancelJob(const std::string& job_id,
                                                  const std::string& reason);

  absl::StatusOr<v1::ListMembersResponse> ListMembers();

  // What one rank of the job's view has been doing. Errors are the coordinator's; those about the
  // worker name it.
  absl::StatusOr<v1::GetOperationsResponse> GetOperations(const std::string& job_id, int rank);

  // Calls `on_update`, on this thread, with the job's state now and after each change, until the
  // job has ended (its last state is also returned) or `on_update` returns false (CANCELLED). A
  // lost connection is taken up again; `on_lost`, if set, hears of it once each time.
  absl::StatusOr<v1::Job> WatchJob(const std::string& job_id,
                                   const std::function<bool(const v1::Job&)>& on_update,
                                   const std::function<void(const absl::Status&)>& on_lost = {});

  // Makes calls under way and all later ones return CANCELLED. From any thread.
  void Shutdown();

 private:
  struct Impl;
  const std::unique_ptr<Impl> impl_;
};

// Succeeded, failed or cancelled.
bool HasEnded(const v1::Job& job);

}  // namespace muster

#endif  // MUSTER_CLIENT_COORDINATOR_CLIENT_H_
