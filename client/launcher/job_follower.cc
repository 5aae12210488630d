#include "client/launcher/job_follower.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <utility>

#include "base/check.h"
#include "base/status_macros.h"

namespace muster {

JobFollower::JobFollower(const std::string& coordinator_address, v1::JobDescription job)
    : address_(coordinator_address),
      client_({.address = coordinator_address}),
      event_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  MUSTER_CHECK(event_ >= 0) << "eventfd";
  thread_ = std::thread([this, job = std::move(job)] { Run(job); });
}

JobFollower::~JobFollower() {
  client_.Shutdown();
  thread_.join();
  close(event_);
}

void JobFollower::Wake() { eventfd_write(event_, 1); }

void JobFollower::Publish(const v1::Job& job) {
  {
    absl::MutexLock lock(&mutex_);
    news_.job = job;
    job_id_ = job.id();
  }
  Wake();
}

void JobFollower::Run(const v1::JobDescription& description) {
  absl::Status status;
  const absl::StatusOr<v1::Job> submitted = client_.SubmitJob(description);
  if (submitted.ok()) {
    Publish(*submitted);
    status = client_
                 .WatchJob(submitted->id(),
                           [this](const v1::Job& job) {
                             Publish(job);
                             return true;
                           })
                 .status();
  } else {
    status = submitted.status();
  }
  {
    absl::MutexLock lock(&mutex_);
    news_.finished = status;
  }
  Wake();
}

JobFollower::News JobFollower::Take() {
  eventfd_t ignored;
  eventfd_read(event_, &ignored);
  absl::MutexLock lock(&mutex_);
  return std::exchange(news_, {});
}

absl::StatusOr<std::optional<v1::Job>> JobFollower::Cancel(const std::string& reason,
                                                           absl::Duration timeout) {
  std::string job_id;
  {
    absl::MutexLock lock(&mutex_);
    job_id = job_id_;
  }
  if (job_id.empty()) return std::optional<v1::Job>();
  CoordinatorClient client({.address = address_, .timeout = timeout});
  MUSTER_ASSIGN_OR_RETURN(v1::CancelJobResponse response, client.CancelJob(job_id, reason));
  return std::optional<v1::Job>(std::move(*response.mutable_job()));
}

}  // namespace muster
