// Collectives among the ranks of one view, over any transport.
//
// Every rank issues the same collectives in the same order; they run strictly in that order (the
// tail of one may overlap the head of the next). Calls that do not match are detected by a
// fingerprint that each rank sends ahead of its data: all ranks get INVALID_ARGUMENT naming what
// either side called, and no data of unlike calls is ever combined.
//
// Sends and receives involve two ranks alone. The n-th send from one rank to another meets the n-th
// receive there; what two ranks have to do with each other (collectives of all, of a subgroup, or
// sends of one to the other) they must issue in the same order. Like everything else they run in
// the order of issue, at most four at a time: two ranks that send to each other make progress, as
// do all that send to the next and receive from the one before.
//
// Results. Sums are in canonical order (docs/design.md) unless an algorithm is named that leaves it
// (docs/algorithms.md): bit-identical on all ranks and for the ring, direct and star algorithms.
// f16 and bf16 are rounded once. kAverage scales once, after the sum.
//
// Buffers belong to the operation from the call until its Work is done or Abort() has returned.
// Input and output may be the same memory (in place), also as
//   ReduceScatter: output == input + offset of this rank's part
//   AllGather:     input == output + offset of this rank's part
//   Scatter, Gather: the same, on the root
//   Push, Pull:    the same, on workers
// Any other overlap is INVALID_ARGUMENT. Counts are elements.
//
// Failure. The first failure is final for the communicator: all pending and later works fail with
// it, and all other ranks are told. INVALID_ARGUMENT for arguments that are wrong locally is that,
// too, since the other ranks would wait.
//
// Progress. A thread in Work::Wait() drives the communicator itself when no other does; otherwise a
// background thread does. While nothing is outstanding that thread only watches for death and abort
// of peers.
//
// Thread-safe. Threads that issue concurrently must themselves see to one order on all ranks.
#ifndef MUSTER_COLLECTIVES_ENGINE_COMMUNICATOR_H_
#define MUSTER_COLLECTIVES_ENGINE_COMMUNICATOR_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "base/dtype.h"
#include "base/ids.h"
#include "collectives/engine/algorithm_use.h"
#include "collectives/engine/operation_record.h"
#include "collectives/engine/wait_watch.h"
#include "collectives/model/cost_model.h"
#include "collectives/model/link_model.h"
#include "collectives/reduce/reduce.h"
#include "collectives/schedule/schedule.h"
#include "collectives/transport/transport.h"

namespace muster {

struct CommunicatorOptions {
  // How a transfer is cut, so that receive, reduce and send overlap. Equal on all ranks (part of
  // the fingerprint). 0: what suits the transport.
  int64_t segment_bytes = 0;
  // Without a model kAuto takes the direct algorithm up to this many bytes, and the ring above.
  int64_t direct_limit_bytes = 64 << 10;
  // With one kAuto takes what is predicted to be the fastest. Equal on all ranks (what it chooses
  // is part of the fingerprint).
  std::shared_ptr<const LinkModel> model;
  // kAuto may also take algorithms that add in an order of their own, so that bits depend on the
  // number of ranks and on the model. Only with a model. Equal on all ranks.
  bool any_order = false;
  // Where ranks share memory: vectors up to this many bytes are reduced by every rank for itself,
  // larger ones by the owners of their chunks. Equal on all ranks. Negative: 4 KiB where each rank
  // has a core; 64 KiB where they share cores, since meets are dear there.
  int64_t window_small_limit_bytes = -1;
  // The longest a waiting thread spins before it blocks, where spinning is found to pay
  // (adaptive_spin.h). Negative: 50 us where the ranks of this host are no more than its cores,
  // else 0.
  absl::Duration spin = absl::Microseconds(-1);
  // Timeout of operations that give none.
  absl::Duration default_timeout = absl::Seconds(30);
  // The host of each rank, any numbers, equal on all ranks: for the hierarchical algorithm. Empty:
  // unknown.
  std::vector<int32_t> hosts;
  // Called once, from a thread of the communicator or a waiting one, when it has failed (not after
  // Close). Must not call back into the communicator.
  std::function<void(const MeshFailure&)> on_failure;
  // Called while the operation at the front stands still, from its wait_report_interval on and
  // about as often, and once when that is over, by the thread that drives. Must not call back into
  // the communicator, and holds up its operations.
  std::function<void(const OperationWait&)> on_wait;
  absl::Duration wait_report_interval = absl::Milliseconds(100);
  // Issued and not yet done; one more fails the communicator with RESOURCE_EXHAUSTED.
  int max_outstanding = 4096;
};

struct CollectiveOptions {
  // From the call; zero means CommunicatorOptions::default_timeout.
  absl::Duration timeout = absl::ZeroDuration();
  std::string label;  // what errors call this, such as the bucket's name
  Step step = 0;      // for errors
  Algorithm algorithm = Algorithm::kAuto;
  // The caller is going to Wait() at once: spares waking the background thread.
  bool caller_waits = false;
};

// What kAuto takes, in segments of how many bytes, and why, in one line.
struct AlgorithmExplanation {
  Algorithm algorithm = Algorithm::kDirect;
  int64_t segment_bytes = 0;
  std::string why;
};

class CommunicatorImpl;
struct Call;
struct Operation;
struct RankGroup;

// Handle of one operation. Cheap to copy; thread-safe. A default-constructed one is done and OK.
class Work {
 public:
  Work() = default;
  // Blocks until the operation is done or has failed; its deadline bounds the wait.
  //   DEADLINE_EXCEEDED  names op, label, step and the peers still waited for
  //   UNAVAILABLE        names the dead peer
  //   INVALID_ARGUMENT   calls did not match, or a bad argument
  //   the status given to Abort()
  absl::Status Wait();
  // Done, well or not.
  bool Done() const;
  // The outcome. Requires: Done().
  absl::Status status() const;
  // The rank held to be dead or late, if the operation failed and one is known. Requires: Done().
  std::optional<Rank> culprit() const;

 private:
  friend class Communicator;
  Work(std::shared_ptr<CommunicatorImpl> owner, std::shared_ptr<Operation> operation);
  std::shared_ptr<CommunicatorImpl> owner_;
  std::shared_ptr<Operation> operation_;
};

class Communicator {
 public:
  static absl::StatusOr<std::unique_ptr<Communicator>> Create(std::unique_ptr<Transport> transport,
                                                              CommunicatorOptions options = {});
  // Close(). Outstanding works fail with CANCELLED.
  ~Communicator();

  Rank rank() const;
  int world_size() const;
  // Of the transport: "tcp", "shm", "ofi", "in-process".
  std::string transport_name() const;

  // From the next call on (CommunicatorOptions::model); null: the rule. All ranks do it between the
  // same calls. Subgroups share it.
  void SetModel(std::shared_ptr<const LinkModel> model);
  // What kAuto stands for where all ranks call it with `count` elements in all, root 0.
  AlgorithmExplanation ExplainChoice(Collective collective, int64_t count, DType dtype) const;
  // The same as a question to the cost model.
  ChoiceRequest ChoiceRequestFor(Collective collective, int64_t count, DType dtype) const;

  // output = reduction of all ranks' inputs, `count` elements each.
  Work AllReduce(const void* input, void* output, int64_t count, DType dtype, ReduceOp op,
                 const CollectiveOptions& options = {});
  // The same cut into chunks as given, counts[c] elements owned and summed as those of rank c
  // (docs/algorithms.md, One order of summation): the same bits as ReduceScatter with these counts.
  Work AllReduceV(const void* input, void* output, absl::Span<const int64_t> counts, DType dtype,
                  ReduceOp op, const CollectiveOptions& options = {});
  // input: sum of counts elements; output: counts[rank], the reduction of that part.
  Work ReduceScatter(const void* input, void* output, absl::Span<const int64_t> counts, DType dtype,
                     ReduceOp op, const CollectiveOptions& options = {});
  // input: counts[rank] elements; output: all ranks' inputs one after the other.
  Work AllGather(const void* input, void* output, absl::Span<const int64_t> counts, DType dtype,
                 const CollectiveOptions& options = {});
  // output = the root's input, on all ranks. `input` is ignored elsewhere than on the root.
  Work Broadcast(const void* input, void* output, int64_t count, DType dtype, Rank root,
                 const CollectiveOptions& options = {});
  Work Barrier(const CollectiveOptions& options = {});
  // The root's output = reduction of all ranks' inputs; `output` is ignored elsewhere.
  Work Reduce(const void* input, void* output, int64_t count, DType dtype, ReduceOp op, Rank root,
              const CollectiveOptions& options = {});
  // input: counts[rank] elements; the root's output: all ranks' inputs one after the other.
  Work Gather(const void* input, void* output, absl::Span<const int64_t> counts, DType dtype,
              Rank root, const CollectiveOptions& options = {});
  // The root's input: a part for each rank, one after the other; output: counts[rank] elements.
  Work Scatter(const void* input, void* output, absl::Span<const int64_t> counts, DType dtype,
               Rank root, const CollectiveOptions& options = {});
  // input: `count` elements for each rank; output: `count` elements of each rank. Not in place.
  Work AllToAll(const void* input, void* output, int64_t count, DType dtype,
                const CollectiveOptions& options = {});
  // The same with blocks of any size: counts[a * world_size + b] elements go from a to b. All ranks
  // give the whole matrix.
  Work AllToAllV(const void* input, void* output, absl::Span<const int64_t> counts, DType dtype,
                 const CollectiveOptions& options = {});
  // The data plane of parameter servers. Ranks 0 .. n - 1 are workers, the others servers that
  // compute nothing; any rank may own a part, counts[rank] elements of it, or none.
  // Push: a reduce-scatter to which the workers alone contribute. input: sum of counts elements on
  // workers (ignored elsewhere, may be null); output: counts[rank], the reduction of that part. n
  // is the number of order_counts, which cut the same vector: an element of the c-th of these is
  // summed in the order c+1, c+2, ..., c of the workers, whoever owns it, so that results do not
  // depend on who does: the bits are those of AllReduceV with these counts among the workers alone.
  Work Push(const void* input, void* output, absl::Span<const int64_t> counts,
            absl::Span<const int64_t> order_counts, DType dtype, ReduceOp op,
            const CollectiveOptions& options = {});
  // Pull: an all-gather of which the workers alone get the result. input: counts[rank] elements;
  // output: sum of counts elements on workers (ignored elsewhere, may be null).
  Work Pull(const void* input, void* output, absl::Span<const int64_t> counts, int contributors,
            DType dtype, const CollectiveOptions& options = {});
  // Each meets the other on the other rank.
  Work Send(const void* data, int64_t count, DType dtype, Rank to,
            const CollectiveOptions& options = {});
  Work Receive(void* data, int64_t count, DType dtype, Rank from,
               const CollectiveOptions& options = {});

  // Issues the all-reduce of each tensor, in order, and wakes who must drive them once. The work is
  // done when all are. An empty list is done at once.
  struct Tensor {
    const void* input = nullptr;
    void* output = nullptr;
    int64_t count = 0;
    DType dtype = DType::kF32;
  };
  Work AllReduceMany(absl::Span<const Tensor> tensors, ReduceOp op,
                     const CollectiveOptions& options = {});

  // A communicator of the ranks that give the same color, ordered by key, then by rank here; null
  // for a negative color. All ranks call it, and wait. It shares transport, order and fate with
  // this one: a failure of either is one of both, Close() of this one is one of both, and the ranks
  // in its errors are those of the communicator first created.
  absl::StatusOr<std::unique_ptr<Communicator>> Split(int32_t color, int32_t key,
                                                      const CollectiveOptions& options = {});

  // Fails everything outstanding and later with `reason` (not OK), and tells the other ranks. From
  // any thread, in bounded time; when it returns nothing touches any buffer any more.
  void Abort(const absl::Status& reason, std::optional<Rank> culprit = std::nullopt);
  // Says goodbye to the other ranks. Requires nothing; what is outstanding fails with CANCELLED. Of
  // one that Split has made it does nothing.
  void Close();
  // The failure, once there is one.
  std::optional<MeshFailure> failure() const;
  // The last 1,024 operations, oldest first, those of subgroups among them: what this rank was
  // doing, for whoever looks into a failure.
  std::vector<OperationRecord> RecentOperations() const;
  // The algorithms that operations have taken so far, those of subgroups among them.
  std::vector<AlgorithmUse> AlgorithmsInUse() const;
  // After the end: a frozen rank may still write to outputs in registered memory
  // (Transport::tainted).
  bool MustRenewBuffers() const;

 private:
  Communicator(std::shared_ptr<CommunicatorImpl> impl, std::shared_ptr<const RankGroup> group);
  Work Issue(Call call, const CollectiveOptions& options);
  // Of this communicator's ranks; empty: unknown.
  std::vector<int32_t> Hosts() const;
  std::shared_ptr<CommunicatorImpl> impl_;
  std::shared_ptr<const RankGroup> group_;  // null: all ranks
};

}  // namespace muster

#endif  // MUSTER_COLLECTIVES_ENGINE_COMMUNICATOR_H_
