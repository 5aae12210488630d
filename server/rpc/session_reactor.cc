#include "server/rpc/session_reactor.h"

#include <utility>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "base/status_macros.h"
#include "proto/convert/control.h"
#include "proto/rpc/address.h"
#include "proto/rpc/status.h"

namespace muster {
SessionReactor* SessionReactor::Create(std::shared_ptr<CoordinatorHost> host,
                                       grpc::CallbackServerContext* context,
                                       const SessionLimits& limits, std::function<void()> ended) {
  std::shared_ptr<SessionReactor> reactor(
      new SessionReactor(std::move(host), context, limits, std::move(ended)));
  absl::MutexLock lock(&reactor->mutex_);
  reactor->self_ = reactor;
  reactor->SetAlarm(reactor->hello_alarm_, limits.hello_timeout, &SessionReactor::OnHelloTimeout);
  reactor->StartRead(&reactor->incoming_);
  return reactor.get();
}

SessionReactor* SessionReactor::Refuse(std::shared_ptr<CoordinatorHost> host,
                                       grpc::CallbackServerContext* context,
                                       const absl::Status& reason) {
  std::shared_ptr<SessionReactor> reactor(
      new SessionReactor(std::move(host), context, SessionLimits(), [] {}));
  absl::MutexLock lock(&reactor->mutex_);
  reactor->self_ = reactor;
  reactor->CloseLocked(reason);
  return reactor.get();
}

// ---- reading -----------------------------------------------------------------------------------

void SessionReactor::OnReadDone(bool ok) {
  absl::Status status;
  if (ok) {
    status = TakeRequest();
  } else if (!worker_) {
    status = absl::InvalidArgumentError("the session ended before a readable Hello came");
  } else {
    // The worker has said all it wants to say.
    status = absl::CancelledError("the worker ended the session");
  }
  if (status.ok()) {
    StartRead(&incoming_);
    return;
  }
  absl::MutexLock lock(&mutex_);
  CloseLocked(status);
}

absl::Status SessionReactor::TakeRequest() {
  MUSTER_ASSIGN_OR_RETURN(WorkerMessage message, FromProto(incoming_));
  if (Hello* hello = std::get_if<Hello>(&message)) {
    if (worker_) return absl::InvalidArgumentError("hello: came twice in one session");
    // Others dial both, and an unusable one would break each view that its worker is in.
    MUSTER_RETURN_IF_ERROR(
        Annotate(ParseAddressToDial(hello->self.data_address).status(), "hello.self.data_address"));
    MUSTER_RETURN_IF_ERROR(
        Annotate(ParseAddressToDial(hello->self.rpc_address).status(), "hello.self.rpc_address"));
    worker_ = hello->self.incarnation;
    {
      absl::MutexLock lock(&mutex_);
      greeted_ = true;
    }
    hello_alarm_.Cancel();
    host_->OpenSession(*hello, shared_from_this());
    return absl::OkStatus();
  }
  if (!worker_) return absl::InvalidArgumentError("a session starts with hello");
  if (WorkerStatus* status = std::get_if<WorkerStatus>(&message)) {
    host_->OnStatus(worker_, this, std::move(*status));
  } else {
    host_->OnSuspicion(worker_, this, std::get<Suspicion>(std::move(message)));
  }
  return absl::OkStatus();
}

void SessionReactor::OnHelloTimeout() {
  absl::MutexLock lock(&mutex_);
  if (greeted_) return;
  CloseLocked(absl::DeadlineExceededError(
      absl::StrFormat("no hello came within %s", absl::FormatDuration(limits_.hello_timeout))));
}

// ---- writing and ending ------------------------------------------------------------------------

void SessionReactor::Send(std::shared_ptr<const v1::SessionResponse> directive) {
  absl::MutexLock lock(&mutex_);
  if (closing_ || finished_) return;
  if (static_cast<int>(queue_.size()) >= limits_.max_queued_directives) {
    AbortLocked(absl::ResourceExhaustedError(
        absl::StrFormat("%d directives wait and the worker takes none", queue_.size())));
    return;
  }
  queue_.push_back(std::move(directive));
  GoOn();
}

void SessionReactor::Close(const absl::Status& reason) {
  absl::MutexLock lock(&mutex_);
  CloseLocked(reason);
}

void SessionReactor::CloseLocked(const absl::Status& reason) {
  if (closing_ || finished_) return;
  closing_ = reason;
  GoOn();
  if (!finished_) SetAlarm(linger_alarm_, limits_.linger, &SessionReactor::OnLingerOver);
}

void SessionReactor::AbortLocked(const absl::Status& reason) {
  if (finished_) return;
  queue_.clear();
  if (!closing_) closing_ = reason;
  // A write that the peer does not take ends only by cancelling the call.
  if (outgoing_ != nullptr) context_->TryCancel();
  GoOn();
}

void SessionReactor::OnLingerOver() {
  absl::MutexLock lock(&mutex_);
  AbortLocked(absl::DeadlineExceededError("the worker does not take its last directives"));
}

void SessionReactor::GoOn() {
  if (finished_ || outgoing_ != nullptr) return;
  if (!queue_.empty()) {
    outgoing_ = std::move(queue_.front());
    queue_.pop_front();
    StartWrite(outgoing_.get());
  } else if (closing_) {
    finished_ = true;
    Finish(ToGrpcStatus(*closing_));
  }
}

void SessionReactor::OnWriteDone(bool ok) {
  absl::MutexLock lock(&mutex_);
  outgoing_.reset();
  if (!ok) AbortLocked(absl::UnavailableError("the connection to the worker is lost"));
  GoOn();
}

void SessionReactor::OnCancel() {
  absl::MutexLock lock(&mutex_);
  AbortLocked(absl::CancelledError("the connection to the worker is lost"));
}

void SessionReactor::OnDone() {
  hello_alarm_.Cancel();
  linger_alarm_.Cancel();
  std::shared_ptr<SessionReactor> self;  // goes last
  absl::Status reason;
  {
    absl::MutexLock lock(&mutex_);
    self = std::move(self_);
    reason = *closing_;
  }
  if (worker_) host_->SessionEnded(worker_, this, absl::StatusCodeToString(reason.code()));
  ended_();
}

void SessionReactor::SetAlarm(grpc::Alarm& alarm, absl::Duration after,
                              void (SessionReactor::*then)()) {
  // The alarm keeps its function until it is destroyed: a strong reference would be a cycle.
  alarm.Set(absl::ToChronoTime(absl::Now() + after), [weak = weak_from_this(), then](bool fired) {
    if (!fired) return;
    if (const std::shared_ptr<SessionReactor> self = weak.lock()) (self.get()->*then)();
  });
}

}  // namespace muster
