// One worker's full copy of a job's training state: parameters, optimizer slots, counters, and the
// gradient of the step under way.
//
// The training thread alone writes. Others may take snapshots and open feeds at any time; Apply
// waits for a copy under way, and a snapshot always shows a state between two steps.
#ifndef MUSTER_WORKER_RUNTIME_REPLICA_H_
#define MUSTER_WORKER_RUNTIME_REPLICA_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/types/span.h"
#include "base/control/messages.h"
#include "base/mutex.h"
#include "collectives/transport/shm/shared_arena.h"
#include "state/layout.h"
#include "state/step_scalars.h"
#include "state/update_rule.h"

namespace muster {

// The scalar part of the state. Pure function of the records applied.
struct ReplicaCounters {
  StateTag tag;
  int64_t update_count = 0;      // updates applied: steps less those skipped
  int64_t nonfinite_in_row = 0;  // steps skipped since the last update
  int64_t skipped_steps = 0;     // ever
};

// A copy of the whole state. Array 0 is the parameters, then the optimizer's slots.
struct ReplicaSnapshot {
  ReplicaCounters counters;
  std::vector<std::vector<float>> arrays;
};

// Told of every step applied, in order, under the replica's lock: must not block nor call back.
class ReplicaListener {
 public:
  virtual ~ReplicaListener() = default;
  // `gradient` is the reduced gradient (the sum over contributors) of the step.
  virtual void OnApplied(const CommitRecord& record, const StateTag& tag,
                         std::shared_ptr<const std::vector<float>> gradient) = 0;
};

class Replica {
 public:
  // `layout` and `rule` must outlive the object. All state is zero. The gradient lies in `shared`,
  // of layout.padded_count() floats, if that is given: memory that collectives reach in place.
  Replica(const Layout& layout, const UpdateRule& rule, const LearningRateOptions& learning_rate,
          double clip_norm, SharedBuffer shared = {});

  // ---- training thread ----
  absl::Span<const float> parameters() const { return parameters_; }
  absl::Span<float> gradients() { return gradients_; }
  // Takes the gradient out of reach of processes that could write to it so far; it keeps its value.
  absl::Status RenewGradients() { return shared_gradients_.Renew(); }
  ReplicaCounters counters() const ABSL_LOCKS_EXCLUDED(mutex_);

  // Sets initial weights, zero optimizer state.
  void Initialize(uint64_t seed, const StateTag& tag) ABSL_LOCKS_EXCLUDED(mutex_);

  // Lets `fill` write parameters and slots (spans of the layout's padded count), then sets
  // counters.
  absl::Status Fill(
      const std::function<absl::StatusOr<ReplicaCounters>(
          absl::Span<float> parameters, absl::Span<const absl::Span<float>> slots)>& fill)
      ABSL_LOCKS_EXCLUDED(mutex_);

  // Changes only the tag: a fresh start names its branch and epoch.
  void Retag(const StateTag& tag) ABSL_LOCKS_EXCLUDED(mutex_);

  // Takes the state from step record.step - 1 to record.step with the reduced gradient in
  // `gradient` (gradients() on a member, a received one on a learner). A record that is not finite
  // changes only counters. Everything follows from the record and the gradient: the same bits on
  // every replica, whether the record was formed here or came with a decision to roll forward.
  // Requires: record.step == counters().tag.step + 1.
  void Apply(const CommitRecord& record, absl::Span<const float> gradient)
      ABSL_LOCKS_EXCLUDED(mutex_);

  // Learning rate of the update that `step` makes.
  double LearningRateOf(Step step) const { return LearningRate(learning_rate_, step); }

  // ---- any thread ----
  std::shared_ptr<const ReplicaSnapshot> Snapshot() ABSL_LOCKS_EXCLUDED(mutex_);
  // A snapshot and, from then on, every step applied; no step is missed or told twice.
  std::shared_ptr<const ReplicaSnapshot> SnapshotAndListen(ReplicaListener* listener)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // After it returns the listener is not called any more.
  void StopListening(ReplicaListener* listener) ABSL_LOCKS_EXCLUDED(mutex_);

  const Layout& layout() const { return layout_; }
  const UpdateRule& rule() const { return rule_; }

 private:
  std::shared_ptr<const ReplicaSnapshot> SnapshotLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::vector<absl::Span<float>> SlotSpans();

  const Layout& layout_;
  const UpdateRule& rule_;
  const LearningRateOptions learning_rate_;
  const double clip_norm_;

  // Written by the training thread only, while it holds mutex_; so that thread reads without it.
  std::vector<float> parameters_;
  std::vector<std::vector<float>> slots_;
  // The training thread's own.
  SharedBuffer shared_gradients_;  // one of the two
  std::vector<float> own_gradients_;
  absl::Span<float> gradients_;

  mutable Mutex mutex_;
  ReplicaCounters counters_ ABSL_GUARDED_BY(mutex_);
  std::vector<ReplicaListener*> listeners_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace muster

#endif  // MUSTER_WORKER_RUNTIME_REPLICA_H_
