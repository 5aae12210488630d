// The worker's end of the session: keeps one stream to the coordinator alive, and reconnects with
// exponential backoff and jitter when it breaks.
//
// Every call is thread-safe and none blocks, except Start, Shutdown and the destructor. The
// observer is called from one internal thread, one call at a time, in order. It may call everything
// here but Shutdown and the destructor.
#ifndef MUSTER_WORKER_RPC_SESSION_CLIENT_H_
#define MUSTER_WORKER_RPC_SESSION_CLIENT_H_

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/control/messages.h"
#include "base/job_spec.h"

namespace muster {

struct SessionClientOptions {
  std::string coordinator_address;  // host:port; an IPv6 address in brackets
  // Before the n-th attempt in a row: a random time in [1/2, 1] of initial * 2^(n-1), at most max.
  absl::Duration initial_backoff = absl::Milliseconds(50);
  absl::Duration max_backoff = absl::Seconds(1);
  // How long the coordinator may take to answer Hello, connecting included.
  absl::Duration attach_timeout = absl::Seconds(5);
  // The first attach must succeed within this time, or the client gives up. Later ones are tried
  // for ever: a worker outlives its coordinator.
  absl::Duration first_attach_timeout = absl::Seconds(30);
  // Suspicions that wait to be sent; the oldest are dropped beyond this.
  int max_pending_suspicions = 64;
};

class SessionObserver {
 public:
  virtual ~SessionObserver() = default;
  // The coordinator has answered Hello; the answer comes next, through OnDirective. Statuses and
  // suspicions of earlier sessions are forgotten, so send the current status now.
  virtual void OnAttached() = 0;
  // The session is lost, or an attempt to attach has failed; the client tries again. The status
  // says why, with the coordinator's address. Comes once per attempt: log it when it changes.
  virtual void OnDetached(const absl::Status& reason) = 0;
  // `job` is there if the directive names a job.
  virtual void OnDirective(Term term, const Directive& directive,
                           const std::optional<JobSpec>& job) = 0;
  // The client stops for good: the first attach took too long (UNAVAILABLE), or the coordinator
  // refuses every session of this worker (INVALID_ARGUMENT, UNIMPLEMENTED). Nothing follows.
  virtual void OnGaveUp(const absl::Status& reason) = 0;
};

class SessionClient {
 public:
  // `hello` is called from the internal thread at each attempt. `observer` must outlive the client.
  // INVALID_ARGUMENT for an address of another form.
  static absl::StatusOr<std::unique_ptr<SessionClient>> Start(SessionClientOptions options,
                                                              std::function<Hello()> hello,
                                                              SessionObserver& observer);
  // Shuts down.
  ~SessionClient();

  // Sends the status; one that has not left yet is replaced. `self` names the incarnation that
  // speaks: words of another one than the session's are dropped, as are all words while detached.
  void Send(Incarnation self, WorkerStatus status);
  void Send(Incarnation self, Suspicion suspicion);

  // Ends the present session, without OnDetached, and attaches anew at once, with a new Hello: how
  // an evicted worker joins as a new incarnation. May be called while attached or not.
  void Rejoin();

  // Sends what is pending, for at most `flush` if attached, then ends the session. No observer call
  // begins after it returns. Idempotent.
  void Shutdown(absl::Duration flush = absl::Milliseconds(200));

 private:
  class Impl;
  explicit SessionClient(std::unique_ptr<Impl> impl);
  const std::unique_ptr<Impl> impl_;
};

}  // namespace muster

#endif  // MUSTER_WORKER_RPC_SESSION_CLIENT_H_
