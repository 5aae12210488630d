// The coordinator's end of one WatchJob call. Level-triggered: at most one state waits while one is
// being written, and a newer one replaces it. Thread-safe; it deletes itself after gRPC's last
// callback.
#ifndef MUSTER_SERVER_RPC_WATCH_REACTOR_H_
#define MUSTER_SERVER_RPC_WATCH_REACTOR_H_

#include <grpcpp/support/server_callback.h>

#include <memory>
#include <optional>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "muster/v1/coordinator.pb.h"
#include "server/rpc/coordinator_host.h"

namespace muster {

class WatchReactor final : public grpc::ServerWriteReactor<v1::WatchJobResponse>,
                           public JobWatcher {
 public:
  // gRPC owns the result until OnDone.
  static WatchReactor* Create(std::shared_ptr<CoordinatorHost> host, const JobId& job);

  void OnJob(std::shared_ptr<const v1::Job> job, bool last) override ABSL_LOCKS_EXCLUDED(mutex_);
  void OnShutdown() override ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  explicit WatchReactor(std::shared_ptr<CoordinatorHost> host) : host_(std::move(host)) {}

  void OnWriteDone(bool ok) override ABSL_LOCKS_EXCLUDED(mutex_);
  void OnCancel() override ABSL_LOCKS_EXCLUDED(mutex_);
  void OnDone() override ABSL_LOCKS_EXCLUDED(mutex_);
  void End(const absl::Status& status) ABSL_LOCKS_EXCLUDED(mutex_);
  // Starts what comes next: a write, or the end.
  void GoOn() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::shared_ptr<CoordinatorHost> host_;
  absl::Mutex mutex_;
  std::shared_ptr<WatchReactor> self_ ABSL_GUARDED_BY(mutex_);  // until OnDone
  std::shared_ptr<const v1::Job> pending_ ABSL_GUARDED_BY(mutex_);
  v1::WatchJobResponse response_;  // gRPC's while writing_
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<absl::Status> ending_ ABSL_GUARDED_BY(mutex_);  // once `pending_` is written
};

}  // namespace muster

#endif  // MUSTER_SERVER_RPC_WATCH_REACTOR_H_
