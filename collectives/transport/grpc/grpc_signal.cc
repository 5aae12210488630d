#include "collectives/transport/grpc/grpc_signal.h"

#include <algorithm>
#include <utility>

namespace muster {

void GrpcSignal::Pin() {
  MutexLock lock(&mu_);
  ++pinned_;
}

void GrpcSignal::Unpin(std::optional<uint64_t> token) {
  MutexLock lock(&mu_);
  --pinned_;
  if (!token.has_value()) return;
  completed_.push_back(*token);
  news_ = true;
}

void GrpcSignal::Complete(uint64_t token) {
  MutexLock lock(&mu_);
  completed_.push_back(token);
  news_ = true;
}

void GrpcSignal::Raise() {
  MutexLock lock(&mu_);
  news_ = true;
}

void GrpcSignal::RaiseTrouble() {
  MutexLock lock(&mu_);
  trouble_ = true;
  news_ = true;
}

void GrpcSignal::SetDone(bool* done) {
  MutexLock lock(&mu_);
  *done = true;
  trouble_ = true;
  news_ = true;
}

bool GrpcSignal::IsDone(const bool* done) const {
  MutexLock lock(&mu_);
  return *done;
}

GrpcSignal::Taken GrpcSignal::Take(std::vector<uint64_t>* completed) {
  MutexLock lock(&mu_);
  news_ = failed_;
  completed->insert(completed->end(), completed_.begin(), completed_.end());
  completed_.clear();
  return {std::exchange(trouble_, false), std::exchange(woken_, false)};
}

void GrpcSignal::AwaitNews(absl::Time deadline) {
  MutexLock lock(&mu_);
  mu_.AwaitWithDeadline(Condition(this, &GrpcSignal::HasNews), std::min(deadline, next_look_));
}

void GrpcSignal::Wake() {
  MutexLock lock(&mu_);
  woken_ = true;
  news_ = true;
}

void GrpcSignal::SetNextLook(absl::Time when) {
  MutexLock lock(&mu_);
  next_look_ = when;
}

void GrpcSignal::Watch(absl::Time deadline) {
  MutexLock lock(&mu_);
  mu_.AwaitWithDeadline(Condition(this, &GrpcSignal::HasTrouble), std::min(deadline, next_look_));
  watcher_woken_ = false;
}

void GrpcSignal::WakeWatcher() {
  MutexLock lock(&mu_);
  watcher_woken_ = true;
}

void GrpcSignal::Fail() {
  MutexLock lock(&mu_);
  failed_ = true;
  news_ = true;
}

bool GrpcSignal::AwaitUnpinned(absl::Time deadline) {
  MutexLock lock(&mu_);
  return mu_.AwaitWithDeadline(Condition(this, &GrpcSignal::Unpinned), deadline);
}

bool GrpcSignal::AwaitDone(const bool* done, absl::Time deadline) {
  MutexLock lock(&mu_);
  return mu_.AwaitWithDeadline(Condition(done), deadline);
}

}  // namespace muster
