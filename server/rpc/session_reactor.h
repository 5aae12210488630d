// The coordinator's end of one Session call, on gRPC's callback API.
//
// One read and one write are under way at most. What waits to be written is limited: a worker that
// does not take its directives is disconnected. The first message must be Hello and come in time.
// Thread-safe; it deletes itself after gRPC's last callback.
#ifndef MUSTER_SERVER_RPC_SESSION_REACTOR_H_
#define MUSTER_SERVER_RPC_SESSION_REACTOR_H_

#include <grpcpp/alarm.h>
#include <grpcpp/server_context.h>
#include <grpcpp/support/server_callback.h>

#include <deque>
#include <memory>
#include <optional>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "muster/v1/coordinator.pb.h"
#include "server/rpc/coordinator_host.h"

namespace muster {

struct SessionLimits {
  absl::Duration hello_timeout = absl::Seconds(5);
  // How long directives that wait may take to leave after Close.
  absl::Duration linger = absl::Seconds(2);
  int max_queued_directives = 64;
};

class SessionReactor final
    : public grpc::ServerBidiReactor<v1::SessionRequest, v1::SessionResponse>,
      public SessionLink,
      public std::enable_shared_from_this<SessionReactor> {
 public:
  // gRPC owns the result until OnDone. `ended` is called last, after the host has heard of the end.
  static SessionReactor* Create(std::shared_ptr<CoordinatorHost> host,
                                grpc::CallbackServerContext* context, const SessionLimits& limits,
                                std::function<void()> ended);
  // Ends at once with this status.
  static SessionReactor* Refuse(std::shared_ptr<CoordinatorHost> host,
                                grpc::CallbackServerContext* context, const absl::Status& reason);

  void Send(std::shared_ptr<const v1::SessionResponse> directive) override
      ABSL_LOCKS_EXCLUDED(mutex_);
  void Close(const absl::Status& reason) override ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  SessionReactor(std::shared_ptr<CoordinatorHost> host, grpc::CallbackServerContext* context,
                 const SessionLimits& limits, std::function<void()> ended)
      : host_(std::move(host)), context_(context), limits_(limits), ended_(std::move(ended)) {}

  void OnReadDone(bool ok) override ABSL_LOCKS_EXCLUDED(mutex_);
  void OnWriteDone(bool ok) override ABSL_LOCKS_EXCLUDED(mutex_);
  void OnCancel() override ABSL_LOCKS_EXCLUDED(mutex_);
  void OnDone() override ABSL_LOCKS_EXCLUDED(mutex_);

  absl::Status TakeRequest();
  void SetAlarm(grpc::Alarm& alarm, absl::Duration after, void (SessionReactor::*then)());
  void OnHelloTimeout();
  void OnLingerOver();
  void CloseLocked(const absl::Status& reason) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Drops what waits, and ends even if the peer takes nothing.
  void AbortLocked(const absl::Status& reason) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Starts what comes next: a write, or the end.
  void GoOn() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::shared_ptr<CoordinatorHost> host_;
  grpc::CallbackServerContext* const context_;
  const SessionLimits limits_;
  const std::function<void()> ended_;

  // Of the reading callbacks, which come one at a time.
  v1::SessionRequest incoming_;
  Incarnation worker_;  // set by Hello

  absl::Mutex mutex_;
  std::shared_ptr<SessionReactor> self_ ABSL_GUARDED_BY(mutex_);  // until OnDone
  bool greeted_ ABSL_GUARDED_BY(mutex_) = false;
  std::deque<std::shared_ptr<const v1::SessionResponse>> queue_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<const v1::SessionResponse> outgoing_ ABSL_GUARDED_BY(mutex_);  // being written
  std::optional<absl::Status> closing_ ABSL_GUARDED_BY(mutex_);
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
  grpc::Alarm hello_alarm_;
  grpc::Alarm linger_alarm_;
};

}  // namespace muster

#endif  // MUSTER_SERVER_RPC_SESSION_REACTOR_H_
