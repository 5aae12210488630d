// A learner's half of state transfer: takes in a snapshot and later steps, and applies those that
// are stable (protocol rule 10).
//
// One object per attempt. Thread-safe: the transfer's thread feeds it, the job's thread ends it.
#ifndef MUSTER_WORKER_RUNTIME_LEARNING_H_
#define MUSTER_WORKER_RUNTIME_LEARNING_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "base/control/messages.h"
#include "base/mutex.h"
#include "worker/rpc/state_learner.h"
#include "worker/runtime/replica.h"

namespace muster {

// Called on the transfer's thread, or within LearnUpTo.
class LearningObserver {
 public:
  virtual ~LearningObserver() = default;
  // `applied`: the replica's state, once complete. `learned`: everything up to here is buffered.
  virtual void OnLearned(uint64_t attempt, const std::optional<StateTag>& applied,
                         const std::optional<StateTag>& learned, bool caught_up) = 0;
  virtual void OnLearningFailed(uint64_t attempt, const absl::Status& reason) = 0;
};

class Learning : private StateSink {
 public:
  // At most this many steps behind the source's newest stable step counts as caught up.
  static constexpr Step kCaughtUp = 2;

  // Starts at once. `replica` and `observer` must outlive the object; nobody else may write to the
  // replica until it is destroyed or stopped.
  Learning(uint64_t attempt, const std::string& source_address, const LearnRequest& request,
           Replica& replica, LearningObserver& observer);
  // Stops.
  ~Learning() override;

  // Receives no more; keeps what is buffered. Waits for the transfer's thread.
  void Stop();

  // Applies what is buffered up to exactly `tag`. FAILED_PRECONDITION if that is not what is here.
  absl::Status LearnUpTo(const StateTag& tag) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  absl::Status OnHeader(const SnapshotHeader& header) override;
  absl::Status OnSnapshotChunk(int array, int64_t offset, absl::Span<const float> values) override;
  absl::Status OnSnapshotDone() override;
  absl::Status OnStep(StepItem item) override;
  absl::Status OnStable(const StateTag& stable) override;
  void OnEnded(const absl::Status& reason) override;

  void ApplyFront() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ApplyStable() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Report() ABSL_LOCKS_EXCLUDED(mutex_);

  const uint64_t attempt_;
  Replica& replica_;
  LearningObserver& observer_;

  Mutex mutex_;
  SnapshotHeader header_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::vector<float>> arrays_
      ABSL_GUARDED_BY(mutex_);  // until the snapshot is complete
  bool complete_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  std::deque<StepItem> buffered_ ABSL_GUARDED_BY(mutex_);
  StateTag stable_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<StateLearner> learner_;
};

}  // namespace muster

#endif  // MUSTER_WORKER_RUNTIME_LEARNING_H_
