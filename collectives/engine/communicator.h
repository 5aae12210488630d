// Collectives among the ranks of one view, over any transport.
//
// Every rank issues the same collectives in the same order; they run strictly in that order (the
// tail of one may overlap the head of the next). Calls that do not match are detected by a
// fingerprint that each rank sends ahead of its data: all ranks get INVALID_ARGUMENT naming what
// either side called, and no data of unlike calls is ever combined.
//
// Results. Sums are in canonical order (docs/design.md): bit-identical on all ranks and for the
// ring and direct algorithms. f16 and bf16 are rounded once. kAverage scales once, after the sum.
//
// Buffers belong to the operation from the call until its Work is done or Abort() has returned.
// Input and output may be the same memory (in place), also as
//   ReduceScatter: output == input + offset of this rank's part
//   AllGather:     input == output + offset of this rank's part
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

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "base/dtype.h"
#include "base/ids.h"
#include "collectives/reduce/reduce.h"
#include "collectives/schedule/schedule.h"
#include "collectives/transport/transport.h"

namespace muster {

struct CommunicatorOptions {
  // How a transfer is cut, so that receive, reduce and send overlap. Equal on all ranks (part of
  // the fingerprint).
  int64_t segment_bytes = 256 << 10;
  // kAuto takes the direct algorithm up to this many bytes, and the ring above.
  int64_t direct_limit_bytes = 64 << 10;
  // The longest a waiting thread spins before it blocks, where spinning is found to pay
  // (adaptive_spin.h). Negative: 50 us where the ranks of this host are no more than its cores,
  // else 0.
  absl::Duration spin = absl::Microseconds(-1);
  // Timeout of operations that give none.
  absl::Duration default_timeout = absl::Seconds(30);
  // Called once, from a thread of the communicator or a waiting one, when it has failed (not after
  // Close). Must not call back into the communicator.
  std::function<void(const MeshFailure&)> on_failure;
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

class CommunicatorImpl;
struct Call;
struct Operation;

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

  // output = reduction of all ranks' inputs, `count` elements each.
  Work AllReduce(const void* input, void* output, int64_t count, DType dtype, ReduceOp op,
                 const CollectiveOptions& options = {});
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

  // Fails everything outstanding and later with `reason` (not OK), and tells the other ranks. From
  // any thread, in bounded time; when it returns nothing touches any buffer any more.
  void Abort(const absl::Status& reason, std::optional<Rank> culprit = std::nullopt);
  // Says goodbye to the other ranks. Requires nothing; what is outstanding fails with CANCELLED.
  void Close();
  // The failure, once there is one.
  std::optional<MeshFailure> failure() const;

 private:
  explicit Communicator(std::shared_ptr<CommunicatorImpl> impl);
  Work Issue(Call call, const CollectiveOptions& options);
  std::shared_ptr<CommunicatorImpl> impl_;
};

}  // namespace muster

#endif  // MUSTER_COLLECTIVES_ENGINE_COMMUNICATOR_H_
