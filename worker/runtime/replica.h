// One worker's copy of a job's training state: parameters, optimizer slots, counters, and the
// gradient of the step under way.
//
// What is kept of it is a *part* (docs/design.md, section 2): all of the space, or ranges of which
// this worker holds parameters and slots. Those are the truth. Where forward and backward want
// parameters that others hold, a *cache* beside the part is gathered from their holders; it is
// stale after each step and never the source of anything else. While parts move, the part to come
// is here beside the one that is held.
//
// Memory: for s slots and a part of q elements (all P where nothing is sharded) 4 (1 + s) q bytes,
// and what step_buffers.h says. What a part that went has left is the kernel's to take, but kept
// for the next one until then (array_pool.h). Parameters of a part are f32, whatever the precision
// of steps: then they are the master weights, and compute sees them rounded.
//
// The training thread alone writes. Others may take snapshots and open feeds at any time; Apply
// waits for a copy under way, and a snapshot always shows a state between two steps.
#ifndef MUSTER_WORKER_RUNTIME_REPLICA_H_
#define MUSTER_WORKER_RUNTIME_REPLICA_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "base/control/messages.h"
#include "base/mutex.h"
#include "collectives/transport/shm/shared_arena.h"
#include "state/layout.h"
#include "state/mixed_precision.h"
#include "state/step_scalars.h"
#include "state/tensor_sums.h"
#include "state/update_rule.h"
#include "worker/runtime/array_pool.h"
#include "worker/runtime/state_part.h"
#include "worker/runtime/step_buffers.h"

namespace muster {

// The scalar part of the state. Pure function of the records applied.
struct ReplicaCounters {
  StateTag tag;
  int64_t update_count = 0;      // updates applied: steps less those skipped
  int64_t nonfinite_in_row = 0;  // steps skipped since the last update
  int64_t skipped_steps = 0;     // ever
};

// A copy of the whole state, or of a range. Array 0 is the parameters, then the optimizer's slots.
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
  // `layout` and `rule` must outlive the object, which holds nothing yet. What collectives work on
  // lies in `arena`, if it is given.
  Replica(const Layout& layout, const UpdateRule& rule, const LearningRateOptions& learning_rate,
          double clip_norm, std::shared_ptr<SharedArena> arena = nullptr);

  // ---- training thread: the state
  // Whether all of the space is held.
  bool whole() const { return part_.element_count() == layout_.padded_count(); }
  // Array 0 is the parameters, then the slots.
  const StatePart& part() const { return part_; }
  ReplicaCounters counters() const ABSL_LOCKS_EXCLUDED(mutex_);

  // Sets initial weights, zero optimizer state, of `ranges` (in order, not touching), or of all.
  void Initialize(uint64_t seed, const StateTag& tag, std::vector<Range> ranges)
      ABSL_LOCKS_EXCLUDED(mutex_);
  void Initialize(uint64_t seed, const StateTag& tag) ABSL_LOCKS_EXCLUDED(mutex_);

  // Lets `fill` write a part of `ranges`, which is zero before, then sets counters. Residuals that
  // were carried (worker/compression/residuals.h) are dropped.
  absl::Status FillPart(std::vector<Range> ranges,
                        const std::function<absl::StatusOr<ReplicaCounters>(StatePart& part)>& fill)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // The same for all of the space: parameters and slots are spans of the layout's padded count.
  absl::Status Fill(
      const std::function<absl::StatusOr<ReplicaCounters>(
          absl::Span<float> parameters, absl::Span<const absl::Span<float>> slots)>& fill)
      ABSL_LOCKS_EXCLUDED(mutex_);

  // Takes the part held from step record.step - 1 to record.step with the reduced gradient in
  // `gradient` (all of the space, of which only the part is read), or the one of the step under
  // way. A record that is not finite changes only counters. Everything follows from the record and
  // the gradient: the same bits on every replica, whether the record was formed here or came with a
  // decision to roll forward. Requires: record.step == counters().tag.step + 1, and a record that
  // CheckRecord takes.
  void Apply(const CommitRecord& record, absl::Span<const float> gradient)
      ABSL_LOCKS_EXCLUDED(mutex_);
  void Apply(const CommitRecord& record) ABSL_LOCKS_EXCLUDED(mutex_);

  // INVALID_ARGUMENT unless Apply can take this record: it has the factors that the rule needs.
  absl::Status CheckRecord(const CommitRecord& record) const;

  // What a layer-wise rule must know of `ranges` of the part before the step under way can be
  // committed (UpdateRule::Prepare); nothing of an elementwise one. `gradient_norm` and `samples`
  // are those that the record will have. Changes nothing.
  TensorSums PrepareUpdate(Step step, double gradient_norm, int64_t samples,
                           const std::vector<Range>& ranges) ABSL_LOCKS_EXCLUDED(mutex_);

  // Learning rate of the update that `step` makes.
  double LearningRateOf(Step step) const { return LearningRate(learning_rate_, step); }

  // ---- training thread: memory of a step
  // Makes room for what steps of this shape need, frees what they do not. RESOURCE_EXHAUSTED.
  absl::Status Equip(const StepMemoryShape& shape) ABSL_LOCKS_EXCLUDED(mutex_);
  StepBuffers& buffers() { return buffers_; }
  // What others gather of this part: `range` of the parameters, in the precision of steps.
  const void* OwnParameters(Range range);
  // Parameters of the whole space. Requires: whole().
  absl::Span<const float> parameters() const { return part_.Array(0); }

  // ---- training thread: moving
  // Makes room for a part of `ranges`, with what is held of it already. Nothing that is held
  // changes. With `receives_all` what is held is dropped first, residuals included. Where all of
  // that part is held, there is nothing to come: it stays where it is, and the rest goes with
  // KeepOnly.
  void BeginMove(std::vector<Range> ranges, bool receives_all) ABSL_LOCKS_EXCLUDED(mutex_);
  // All arrays, one after the other, of a range of the part that is held.
  void PackRange(Range range, absl::Span<std::byte> bytes) const;
  // The same into the part to come.
  void UnpackRange(Range range, absl::Span<const std::byte> bytes);
  static int64_t FloatsPerElement(const UpdateRule& rule) { return 1 + rule.state_slots(); }
  // Everything has come: the state it is of.
  void FinishMove(const ReplicaCounters& counters) ABSL_LOCKS_EXCLUDED(mutex_);
  // Of the part that a move has brought and the one that is held, keeps the first, if `newest`, or
  // the second.
  void KeepOnly(bool newest) ABSL_LOCKS_EXCLUDED(mutex_);

  // ---- any thread. The state must be whole, and stay so while there are listeners.
  std::shared_ptr<const ReplicaSnapshot> Snapshot() ABSL_LOCKS_EXCLUDED(mutex_);
  // A snapshot and, from then on, every step applied; no step is missed or told twice.
  std::shared_ptr<const ReplicaSnapshot> SnapshotAndListen(ReplicaListener* listener)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // After it returns the listener is not called any more.
  void StopListening(ReplicaListener* listener) ABSL_LOCKS_EXCLUDED(mutex_);

  const Layout& layout() const { return layout_; }
  const UpdateRule& rule() const { return rule_; }

 private:
  // Null: the gradient is that of the step under way.
  using FlatGradient = std::optional<absl::Span<const float>>;
  void ApplyLocked(const CommitRecord& record, FlatGradient gradient)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Of an update that a state makes after `updates` others, but for the tensors' factors.
  UpdateScalars ScalarsOf(Step step, double gradient_norm, int64_t samples, int64_t updates) const;
  void UpdatePart(const UpdateScalars& scalars, FlatGradient gradient);
  // A range of the part with the reduced gradient of the step under way, of 16 bits; `slots` has
  // room for what it borrows.
  MixedPrecisionRange MixedOf(Range range, std::vector<absl::Span<float>>& slots);
  std::vector<absl::Span<float>> SlotsOf(Range range);
  // Of the step under way, for those who are told.
  std::shared_ptr<const std::vector<float>> CopyGradient(FlatGradient gradient) const;
  std::shared_ptr<const ReplicaSnapshot> SnapshotLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  int arrays() const { return 1 + rule_.state_slots(); }

  const Layout& layout_;
  const UpdateRule& rule_;
  const LearningRateOptions learning_rate_;
  const double clip_norm_;

  ArrayPool pool_;  // as much as the whole state
  // Written by the training thread only, while it holds mutex_; so that thread reads without it.
  StatePart part_;
  std::optional<StatePart> coming_;
  std::optional<std::vector<Range>> remaining_;  // instead: all that is to come is held

  StepBuffers buffers_;  // the training thread's own

  mutable Mutex mutex_;
  ReplicaCounters counters_ ABSL_GUARDED_BY(mutex_);
  std::vector<ReplicaListener*> listeners_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace muster

#endif  // MUSTER_WORKER_RUNTIME_REPLICA_H_
