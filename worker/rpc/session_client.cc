#include "worker/rpc/session_client.h"

#include <algorithm>
#include <deque>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/random/random.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "proto/convert/control.h"
#include "proto/rpc/address.h"
#include "proto/rpc/status.h"
#include "worker/rpc/session_stream.h"

namespace muster {
namespace {

// A coordinator that answers so will never answer otherwise.
bool IsHopeless(const absl::Status& reason) {
  return absl::IsInvalidArgument(reason) || absl::IsUnimplemented(reason);
}

}  // namespace

class SessionClient::Impl {
 public:
  Impl(SessionClientOptions options, std::function<Hello()> hello, SessionObserver& observer)
      : options_(std::move(options)),
        peer_(absl::StrCat("coordinator ", options_.coordinator_address)),
        hello_(std::move(hello)),
        observer_(observer) {
    thread_ = std::thread([this] { Run(); });
  }

  void Send(Incarnation self, WorkerStatus status) {
    absl::MutexLock lock(&mutex());
    if (!attached_ || self != self_) return;
    pending_status_ = std::move(status);
    signal_->raised = true;
  }

  void Send(Incarnation self, Suspicion suspicion) {
    absl::MutexLock lock(&mutex());
    if (!attached_ || self != self_) return;
    pending_suspicions_.push_back(std::move(suspicion));
    while (static_cast<int>(pending_suspicions_.size()) > options_.max_pending_suspicions) {
      pending_suspicions_.pop_front();
    }
    signal_->raised = true;
  }

  void Rejoin() {
    absl::MutexLock lock(&mutex());
    rejoin_ = true;
    attached_ = false;
    signal_->raised = true;
  }

  void Shutdown(absl::Duration flush) {
    MUSTER_CHECK(std::this_thread::get_id() != thread_.get_id())
        << "a session client cannot be shut down from its own thread";
    {
      absl::MutexLock lock(&mutex());
      if (!stopping_) flush_until_ = absl::Now() + flush;
      stopping_ = true;
      signal_->raised = true;
    }
    absl::MutexLock join(&join_mutex_);
    if (thread_.joinable()) thread_.join();
  }

 private:
  enum class Outcome : uint8_t { kStopped, kRejoin, kLost };

  absl::Mutex& mutex() ABSL_LOCK_RETURNED(signal_->mutex) { return signal_->mutex; }

  void Run() {
    const absl::Time give_up_at = absl::Now() + options_.first_attach_timeout;
    while (true) {
      absl::Status reason;
      const Outcome outcome = RunSession(&reason);
      if (outcome == Outcome::kStopped) return;
      if (outcome == Outcome::kRejoin) {
        failures_ = 0;
        continue;
      }
      observer_.OnDetached(reason);
      if (IsHopeless(reason)) {
        observer_.OnGaveUp(reason);
        return;
      }
      if (!ever_attached_ && absl::Now() >= give_up_at) {
        observer_.OnGaveUp(absl::UnavailableError(absl::StrFormat(
            "no coordinator was reached within %s; is muster-coordinator running there? Last "
            "error: %s",
            absl::FormatDuration(options_.first_attach_timeout), reason.message())));
        return;
      }
      absl::Time until = absl::Now() + NextBackoff();
      if (!ever_attached_) until = std::min(until, give_up_at);
      absl::MutexLock lock(&mutex());
      const auto called = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(signal_->mutex) {
        return stopping_ || rejoin_;
      };
      mutex().AwaitWithDeadline(absl::Condition(&called), until);
      if (stopping_) return;
    }
  }

  absl::Duration NextBackoff() {
    const int doublings = std::min(failures_++, 30);
    const absl::Duration full =
        std::min(options_.initial_backoff * (int64_t{1} << doublings), options_.max_backoff);
    return full * absl::Uniform(absl::IntervalClosed, random_, 0.5, 1.0);
  }

  // One stream, from opening to its very end: after it returns gRPC holds nothing of the stream.
  // `reason` is set with kLost.
  Outcome RunSession(absl::Status* reason) {
    const Hello hello = hello_();
    {
      absl::MutexLock lock(&mutex());
      if (stopping_) return Outcome::kStopped;
      rejoin_ = false;
      attached_ = false;
      self_ = hello.self.incarnation;
      pending_status_.reset();
      pending_suspicions_.clear();
    }
    const std::shared_ptr<SessionStream> stream =
        SessionStream::Open(options_.coordinator_address, ToProto(WorkerMessage(hello)), signal_);
    const Outcome outcome = Drive(*stream, absl::Now() + options_.attach_timeout, reason);
    stream->Cancel();
    std::vector<std::shared_ptr<SessionStream>> done;  // goes after the lock
    absl::MutexLock lock(&mutex());
    attached_ = false;
    const auto all_done = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(signal_->mutex) {
      return signal_->open == 0;
    };
    mutex().Await(absl::Condition(&all_done));
    done.swap(signal_->done);
    return outcome;
  }

  Outcome Drive(SessionStream& stream, absl::Time attach_by, absl::Status* reason) {
    bool attached = false;
    while (true) {
      bool stopping = false;
      {
        absl::MutexLock lock(&mutex());
        const absl::Time wake_at = stopping_   ? flush_until_
                                   : !attached ? attach_by
                                               : absl::InfiniteFuture();
        mutex().AwaitWithDeadline(absl::Condition(&signal_->raised), wake_at);
        signal_->raised = false;
        stopping = stopping_;
        if (stopping && (!attached || absl::Now() >= flush_until_)) return Outcome::kStopped;
        if (rejoin_ && !stopping) return Outcome::kRejoin;
      }
      bool interrupted = false;
      while (std::optional<v1::SessionResponse> message = stream.TakeMessage()) {
        if (stopping) continue;  // nobody listens any more
        if (absl::Status bad = Deliver(*message, attached); !bad.ok()) {
          *reason = bad;
          return Outcome::kLost;
        }
        attached = true;
        absl::MutexLock lock(&mutex());
        interrupted = stopping_ || rejoin_;
        if (interrupted) break;
      }
      if (interrupted) continue;
      if (std::optional<grpc::Status> ended = stream.Ended()) {
        *reason = ended->ok() ? absl::UnavailableError(absl::StrCat(peer_, ": ended the session"))
                              : FromGrpcStatus(*ended, peer_);
        return stopping ? Outcome::kStopped : Outcome::kLost;
      }
      if (attached) {
        WritePending(stream, stopping);
      } else if (absl::Now() >= attach_by) {
        *reason = absl::UnavailableError(absl::StrFormat(
            "%s: no answer within %s", peer_, absl::FormatDuration(options_.attach_timeout)));
        return Outcome::kLost;
      }
    }
  }

  absl::Status Deliver(const v1::SessionResponse& response, bool attached) {
    absl::StatusOr<DirectiveMessage> message = FromProto(response);
    if (!message.ok()) {
      // Not this worker's fault, so not INVALID_ARGUMENT: another coordinator may do better.
      return absl::InternalError(
          absl::StrCat(peer_, ": sent what cannot be read: ", message.status().message()));
    }
    if (!attached) {
      failures_ = 0;
      ever_attached_ = true;
      {
        absl::MutexLock lock(&mutex());
        if (stopping_ || rejoin_) return absl::OkStatus();
        attached_ = true;
      }
      observer_.OnAttached();
    }
    observer_.OnDirective(message->term, message->directive, message->job);
    return absl::OkStatus();
  }

  // Suspicions first: they are urgent.
  void WritePending(SessionStream& stream, bool stopping) {
    if (!stream.CanWrite()) return;
    std::optional<WorkerMessage> next;
    {
      absl::MutexLock lock(&mutex());
      if (!pending_suspicions_.empty()) {
        next = std::move(pending_suspicions_.front());
        pending_suspicions_.pop_front();
      } else if (pending_status_) {
        next = *std::move(pending_status_);
        pending_status_.reset();
      }
    }
    if (next) {
      stream.Write(ToProto(*next));
    } else if (stopping && stream.WritesFlushed()) {
      stream.WritesDone();
    }
  }

  const SessionClientOptions options_;
  const std::string peer_;
  const std::function<Hello()> hello_;
  SessionObserver& observer_;
  const std::shared_ptr<SessionSignal> signal_ = std::make_shared<SessionSignal>();

  // Of the internal thread.
  absl::BitGen random_;  // back-off must differ between workers, so it is seeded by the system
  int failures_ = 0;     // attempts in a row
  bool ever_attached_ = false;

  bool stopping_ ABSL_GUARDED_BY(signal_->mutex) = false;
  absl::Time flush_until_ ABSL_GUARDED_BY(signal_->mutex);
  bool rejoin_ ABSL_GUARDED_BY(signal_->mutex) = false;
  bool attached_ ABSL_GUARDED_BY(signal_->mutex) = false;
  Incarnation self_ ABSL_GUARDED_BY(signal_->mutex);  // of the session
  std::optional<WorkerStatus> pending_status_ ABSL_GUARDED_BY(signal_->mutex);
  std::deque<Suspicion> pending_suspicions_ ABSL_GUARDED_BY(signal_->mutex);

  absl::Mutex join_mutex_;
  std::thread thread_;
};

absl::StatusOr<std::unique_ptr<SessionClient>> SessionClient::Start(SessionClientOptions options,
                                                                    std::function<Hello()> hello,
                                                                    SessionObserver& observer) {
  absl::Status address = ParseHostPort(options.coordinator_address).status();
  if (!address.ok()) return Annotate(address, "coordinator");
  auto impl = std::make_unique<Impl>(std::move(options), std::move(hello), observer);
  return std::unique_ptr<SessionClient>(new SessionClient(std::move(impl)));
}

SessionClient::SessionClient(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
SessionClient::~SessionClient() { Shutdown(absl::ZeroDuration()); }
void SessionClient::Send(Incarnation self, WorkerStatus status) {
  impl_->Send(self, std::move(status));
}
void SessionClient::Send(Incarnation self, Suspicion suspicion) {
  impl_->Send(self, std::move(suspicion));
}
void SessionClient::Rejoin() { impl_->Rejoin(); }
void SessionClient::Shutdown(absl::Duration flush) { impl_->Shutdown(flush); }

}  // namespace muster
