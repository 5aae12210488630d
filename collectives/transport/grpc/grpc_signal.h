// Where gRPC's threads and the thread that drives a mesh meet. Shared by the mesh and its calls.
//
// Thread-safe. Nothing is called with the mutex held, so calls may be locked around it.
#ifndef MUSTER_COLLECTIVES_TRANSPORT_GRPC_GRPC_SIGNAL_H_
#define MUSTER_COLLECTIVES_TRANSPORT_GRPC_GRPC_SIGNAL_H_

#include <atomic>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "base/mutex.h"

namespace muster {

class GrpcSignal {
 public:
  // gRPC holds one more piece of posted memory, or one less; with `token`, that was the last of a
  // message.
  void Pin() ABSL_LOCKS_EXCLUDED(mu_);
  void Unpin(std::optional<uint64_t> token) ABSL_LOCKS_EXCLUDED(mu_);
  // A message has been copied.
  void Complete(uint64_t token) ABSL_LOCKS_EXCLUDED(mu_);
  // Something has arrived or a call was welcomed.
  void Raise() ABSL_LOCKS_EXCLUDED(mu_);
  // A call has ended or broken: for watchers, too.
  void RaiseTrouble() ABSL_LOCKS_EXCLUDED(mu_);
  // gRPC has done with a call, whose memory may be freed from then on.
  void SetDone(bool* done) ABSL_LOCKS_EXCLUDED(mu_);
  bool IsDone(const bool* done) const ABSL_LOCKS_EXCLUDED(mu_);

  // For the driver. Cheap enough to spin on.
  bool news() const { return news_.load(std::memory_order_relaxed); }
  struct Taken {
    bool trouble = false;
    bool woken = false;
  };
  // What came since the last time; appends the tokens of completed sends.
  Taken Take(std::vector<uint64_t>* completed) ABSL_LOCKS_EXCLUDED(mu_);
  void AwaitNews(absl::Time deadline) ABSL_LOCKS_EXCLUDED(mu_);
  void Wake() ABSL_LOCKS_EXCLUDED(mu_);
  // Trouble taken at a time when it was too early to tell is to be looked at again then.
  void SetNextLook(absl::Time when) ABSL_LOCKS_EXCLUDED(mu_);

  // Until there is trouble that no driver has taken, WakeWatcher or Close; and at the next look.
  void Watch(absl::Time deadline) ABSL_LOCKS_EXCLUDED(mu_);
  void WakeWatcher() ABSL_LOCKS_EXCLUDED(mu_);
  // The mesh has failed or closes: nobody waits any more.
  void Fail() ABSL_LOCKS_EXCLUDED(mu_);

  // For Close. False: not by then.
  bool AwaitUnpinned(absl::Time deadline) ABSL_LOCKS_EXCLUDED(mu_);
  bool AwaitDone(const bool* done, absl::Time deadline) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  bool HasNews() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return news_; }
  bool HasTrouble() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return trouble_ || watcher_woken_ || failed_;
  }
  bool Unpinned() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return pinned_ == 0; }

  mutable Mutex mu_;
  // Written under mu_, so that waiters see each change; read without it while spinning.
  std::atomic<bool> news_{false};
  std::vector<uint64_t> completed_ ABSL_GUARDED_BY(mu_);
  int64_t pinned_ ABSL_GUARDED_BY(mu_) = 0;
  bool trouble_ ABSL_GUARDED_BY(mu_) = false;
  bool woken_ ABSL_GUARDED_BY(mu_) = false;
  bool watcher_woken_ ABSL_GUARDED_BY(mu_) = false;
  bool failed_ ABSL_GUARDED_BY(mu_) = false;
  absl::Time next_look_ ABSL_GUARDED_BY(mu_) = absl::InfiniteFuture();
};

}  // namespace muster

#endif  // MUSTER_COLLECTIVES_TRANSPORT_GRPC_GRPC_SIGNAL_H_
