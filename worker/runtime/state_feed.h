// Serves this worker's replica to learners: a snapshot, then every step applied.
#ifndef MUSTER_WORKER_RUNTIME_STATE_FEED_H_
#define MUSTER_WORKER_RUNTIME_STATE_FEED_H_

#include <memory>
#include <set>
#include <string>

#include "absl/base/thread_annotations.h"
#include "base/control/messages.h"
#include "base/mutex.h"
#include "worker/rpc/state_source.h"
#include "worker/runtime/replica.h"

namespace muster {

class ReplicaFeed;

// Thread-safe. Outlives the server that asks it; replicas come and go.
class ReplicaStateSource : public StateSource {
 public:
  // Bytes of gradients a feed buffers for its learner; beyond it the feed ends.
  explicit ReplicaStateSource(int64_t max_buffered_bytes = int64_t{256} << 20)
      : max_buffered_bytes_(max_buffered_bytes) {}

  // Offers `replica` to learners of `job`. It must stay alive until Withdraw returns. Repeating an
  // offer changes nothing.
  void Offer(const JobId& job, const std::string& fleet_id, Incarnation self, Replica* replica)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // Ends every feed with UNAVAILABLE and waits until none uses the replica any more.
  void Withdraw() ABSL_LOCKS_EXCLUDED(mutex_);
  // Tells the learners.
  void SetStable(const StateTag& stable) ABSL_LOCKS_EXCLUDED(mutex_);

  absl::StatusOr<std::unique_ptr<StateFeed>> Open(const LearnRequest& request) override
      ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  friend class ReplicaFeed;
  void Closed(ReplicaFeed* feed) ABSL_LOCKS_EXCLUDED(mutex_);

  const int64_t max_buffered_bytes_;
  Mutex mutex_;
  JobId job_ ABSL_GUARDED_BY(mutex_);
  std::string fleet_id_ ABSL_GUARDED_BY(mutex_);
  Incarnation self_ ABSL_GUARDED_BY(mutex_);
  Replica* replica_ ABSL_GUARDED_BY(mutex_) = nullptr;
  StateTag stable_ ABSL_GUARDED_BY(mutex_);
  std::set<ReplicaFeed*> feeds_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace muster

#endif  // MUSTER_WORKER_RUNTIME_STATE_FEED_H_
