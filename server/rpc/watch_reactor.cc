#include "server/rpc/watch_reactor.h"

#include <utility>

#include "proto/rpc/status.h"

namespace muster {

WatchReactor* WatchReactor::Create(std::shared_ptr<CoordinatorHost> host, const JobId& job) {
  std::shared_ptr<WatchReactor> reactor(new WatchReactor(std::move(host)));
  {
    absl::MutexLock lock(&reactor->mutex_);
    reactor->self_ = reactor;
  }
  if (absl::Status added = reactor->host_->AddWatcher(job, reactor); !added.ok()) {
    reactor->End(added);
  }
  return reactor.get();
}

void WatchReactor::OnJob(std::shared_ptr<const v1::Job> job, bool last) {
  absl::MutexLock lock(&mutex_);
  pending_ = std::move(job);
  if (last && !ending_) ending_ = absl::OkStatus();
  GoOn();
}

void WatchReactor::OnShutdown() { End(absl::UnavailableError("the coordinator is shutting down")); }

void WatchReactor::End(const absl::Status& status) {
  absl::MutexLock lock(&mutex_);
  if (!ending_) ending_ = status;
  GoOn();
}

void WatchReactor::GoOn() {
  if (writing_ || finished_) return;
  if (pending_ != nullptr) {
    writing_ = true;
    *response_.mutable_job() = *std::exchange(pending_, nullptr);
    StartWrite(&response_);
  } else if (ending_) {
    finished_ = true;
    Finish(ToGrpcStatus(*ending_));
  }
}

void WatchReactor::OnWriteDone(bool ok) {
  absl::MutexLock lock(&mutex_);
  writing_ = false;
  if (!ok) {
    pending_.reset();
    if (!ending_) ending_ = absl::CancelledError("the client has gone");
  }
  GoOn();
}

void WatchReactor::OnCancel() {
  absl::MutexLock lock(&mutex_);
  pending_.reset();
  if (!ending_) ending_ = absl::CancelledError("the client has gone");
  GoOn();
}

void WatchReactor::OnDone() {
  std::shared_ptr<WatchReactor> self;  // goes last
  {
    absl::MutexLock lock(&mutex_);
    self = std::move(self_);
  }
  host_->RemoveWatcher(this);
}

}  // namespace muster
