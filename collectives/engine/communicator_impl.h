// Threads and locks around the engine: who drives it, how calls get in and outcomes out.
//
// The *driver role* is held by at most one thread: one in Wait(), or the background thread when
// there is outstanding work and nobody waits. Only its holder touches engine_ and calls Poll.
// Everything else is under mu_. A failure is recorded under mu_, then the transport is closed
// (which gets a blocked driver out), then, when the driver has left, the outstanding operations are
// failed: so nothing touches their buffers any more.
#ifndef MUSTER_COLLECTIVES_ENGINE_COMMUNICATOR_IMPL_H_
#define MUSTER_COLLECTIVES_ENGINE_COMMUNICATOR_IMPL_H_

#include <atomic>
#include <deque>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "base/mutex.h"
#include "collectives/engine/algorithm_chooser.h"
#include "collectives/engine/algorithm_use.h"
#include "collectives/engine/call.h"
#include "collectives/engine/communicator.h"
#include "collectives/engine/engine.h"
#include "collectives/engine/operation.h"
#include "collectives/engine/operation_recorder.h"
#include "collectives/engine/wait_watch.h"

namespace muster {

class CommunicatorImpl {
 public:
  CommunicatorImpl(std::unique_ptr<Transport> transport, CommunicatorOptions options);
  ~CommunicatorImpl();

  Rank rank() const { return transport_->rank(); }
  int world_size() const { return transport_->world_size(); }
  const CommunicatorOptions& options() const { return options_; }
  std::string transport_name() const { return std::string(transport_->name()); }

  void SetModel(std::shared_ptr<const LinkModel> model) ABSL_LOCKS_EXCLUDED(mu_);
  ChoiceRequest ChoiceRequestFor(Collective collective, int64_t count, DType dtype, int size) const
      ABSL_LOCKS_EXCLUDED(mu_);
  AlgorithmExplanation ExplainChoice(const ChoiceRequest& request) ABSL_LOCKS_EXCLUDED(mu_);

  std::shared_ptr<Operation> Issue(Call call, const CollectiveOptions& options)
      ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status Wait(Operation& operation) ABSL_LOCKS_EXCLUDED(mu_);
  // Fails everything. With `goodbye` in good order: peers are not failed, on_failure is not called.
  void Shut(const absl::Status& reason, std::optional<Rank> culprit, bool goodbye)
      ABSL_LOCKS_EXCLUDED(mu_);
  std::optional<MeshFailure> failure() const ABSL_LOCKS_EXCLUDED(mu_);
  bool tainted() const { return transport_->tainted(); }
  std::vector<OperationRecord> RecentOperations() const ABSL_LOCKS_EXCLUDED(mu_);
  std::vector<AlgorithmUse> AlgorithmsInUse() const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  // What a plan depends on, besides what is the same for the whole communicator.
  struct PlanKey {
    Collective collective;
    Algorithm algorithm;
    DType dtype;
    bool in_place;
    Rank root;
    Rank destination;
    int contributors;
    uint64_t group;
    int64_t segment_bytes;
    int64_t count;
    std::vector<int64_t> counts;
    std::vector<int64_t> order_counts;
    bool operator==(const PlanKey&) const = default;
    template <typename H>
    friend H AbslHashValue(H h, const PlanKey& key) {
      return H::combine(std::move(h), key.collective, key.algorithm, key.dtype, key.in_place,
                        key.root, key.destination, key.contributors, key.group, key.segment_bytes,
                        key.count, key.counts, key.order_counts);
    }
  };

  // One of the two.
  struct AnyPlan {
    std::shared_ptr<const Plan> by_messages;
    std::shared_ptr<const WindowPlan> in_window;
  };

  // What came of a call, as it was asked for: the next is mostly the same with other buffers.
  struct Prepared {
    ScheduleRequest asked;
    std::shared_ptr<const RankGroup> group;
    DType dtype;
    std::optional<ReduceOp> op;
    bool in_place;
    AnyPlan plan;
    Fingerprint fingerprint;

    bool IsOf(const Call& call) const {
      return dtype == call.dtype && op == call.op && group == call.group && asked == call.request;
    }
  };

  // Gives the call the algorithm that it leaves open, and says why. Returns the bytes of its
  // segments.
  absl::StatusOr<int64_t> ResolveAlgorithm(Call& call, int64_t total, absl::string_view* why)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Checks the call, resolves its algorithm and leaves fingerprint and plan in last_.
  absl::Status Prepare(Call& call) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // The operation, about to be added to outstanding_, need not wait for a driver to start it.
  bool MayStartAtOnce(const Operation& operation, const CollectiveOptions& options) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Drives until `own` is done; without one until nothing is outstanding. Requires: the caller has
  // taken the driver role; it is given back.
  void Drive(const Operation* own) ABSL_LOCKS_EXCLUDED(mu_);
  // Hands queued operations to the engine while it has room. False: the communicator has failed.
  bool StartQueued() ABSL_LOCKS_EXCLUDED(mu_);
  // Tells on_wait what is to be told; returns by when to look again. For the driver.
  absl::Time WatchWait();
  void EndWait(bool failed);
  void TellWait(WaitWatch::Verdict verdict);
  void Background() ABSL_LOCKS_EXCLUDED(mu_);
  bool Record(const absl::Status& status, std::optional<Rank> culprit)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void FailOutstanding() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool NoDriver() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return !driven_; }

  const std::unique_ptr<Transport> transport_;
  const CommunicatorOptions options_;
  Engine engine_;                                     // of the driver
  std::vector<std::shared_ptr<Operation>> finished_;  // of the driver
  WaitWatch wait_watch_;                              // of the driver
  OperationWait wait_;                                // of the driver; told last
  const WindowSizes window_sizes_;

  mutable Mutex mu_;
  bool driven_ ABSL_GUARDED_BY(mu_) = false;  // the driver role is taken
  int waiting_ ABSL_GUARDED_BY(mu_) = 0;      // threads in Wait() that do not drive
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  bool says_goodbye_ ABSL_GUARDED_BY(mu_) = false;  // Shut() is to close in good order
  absl::flat_hash_map<uint64_t, uint64_t> last_sequences_ ABSL_GUARDED_BY(mu_);  // by scope
  std::deque<std::shared_ptr<Operation>> queued_ ABSL_GUARDED_BY(mu_);           // not started
  std::deque<std::shared_ptr<Operation>> outstanding_ ABSL_GUARDED_BY(mu_);  // not done, in order
  absl::flat_hash_map<PlanKey, AnyPlan> plans_ ABSL_GUARDED_BY(mu_);
  std::optional<Prepared> last_ ABSL_GUARDED_BY(mu_);
  AlgorithmChooser chooser_ ABSL_GUARDED_BY(mu_);
  std::optional<MeshFailure> failure_ ABSL_GUARDED_BY(mu_);
  AlgorithmUses uses_ ABSL_GUARDED_BY(mu_);
  OperationRecorder recorder_ ABSL_GUARDED_BY(mu_);

  // Hints for the driver, so that it need not lock to find nothing.
  std::atomic<bool> has_queued_{false};
  std::atomic<bool> failed_{false};
  std::atomic<int> waiting_hint_{0};

  std::thread background_;  // last: starts when all else is there
};

}  // namespace muster

#endif  // MUSTER_COLLECTIVES_ENGINE_COMMUNICATOR_IMPL_H_
