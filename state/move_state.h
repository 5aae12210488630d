// The mover: executes a reshard plan (state/reshard_plan.h) among the participants of a mesh.
//
// All participants call MoveState with the same plan; those that only give, only take or do neither
// as well. State goes through staging memory, never more than the window of it, in chunks with a
// checksum and the fingerprint of the plan: peers write into no state, and what arrived damaged or
// by another plan is not written at all.
//
// Failure. A death, an abort, the deadline, a damaged chunk, a state that can't be read or written:
// the first of them ends the move on all participants. What had arrived until then stays written
// and is reported: the next plan need not move it again, if its tag still counts.
#ifndef MUSTER_STATE_MOVE_STATE_H_
#define MUSTER_STATE_MOVE_STATE_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "base/ids.h"
#include "collectives/engine/communicator.h"
#include "state/range.h"
#include "state/reshard_plan.h"

namespace muster {

// Where state is taken from and put to: memory of this process, or files. Used by one thread.
class MovableState {
 public:
  virtual ~MovableState() = default;
  // Of all arrays that move together; the same on all participants, at least 1.
  virtual int64_t element_bytes() const = 0;
  // Packs the elements of `range`, which this participant holds. bytes.size() is range.count *
  // element_bytes(). How they are packed is up to the state, the same on all participants.
  virtual absl::Status Read(Range range, absl::Span<std::byte> bytes) = 0;
  // Unpacks elements that this participant did not hold.
  virtual absl::Status Write(Range range, absl::Span<const std::byte> bytes) = 0;
};

struct MoveOptions {
  // Payload of a message, rounded down to elements, but one at least. Equal on all participants.
  // Chunks that stay in a core's cache between packing, checksum and sending are fastest.
  int64_t chunk_bytes = int64_t{512} << 10;
  // Staging memory: at least two chunks, one of which is filled while another is on its way.
  int64_t window_bytes = int64_t{4} << 20;
  absl::Duration timeout = absl::Seconds(60);  // of the whole move
  // Where staging memory lies: at least two chunks with 64 bytes beside each, and no more is used
  // of it than the window. Of memory that peers can map they take chunks in place. Empty: the heap.
  absl::Span<std::byte> staging;
};

struct MoveOutcome {
  // OK: this participant has all that the plan gives it, and has given all.
  //   INVALID_ARGUMENT     options are wrong, or participants called different things
  //   FAILED_PRECONDITION  a peer moves by another plan
  //   DATA_LOSS            a chunk arrived damaged; says of which elements, and from whom
  //   UNAVAILABLE, DEADLINE_EXCEEDED, the reason of an abort (Work::Wait)
  //   whatever Read or Write returned
  absl::Status status;
  std::optional<Rank> culprit;  // the participant held to be dead or late, if one is known
  int64_t bytes_sent = 0;       // payload
  int64_t bytes_received = 0;
  std::vector<Range> arrived;  // written, in order of offset, neighbours merged
  int64_t staging_bytes = 0;   // the most that was in use
};

// Blocks until this participant is done. A failure aborts the communicator, so that the others need
// not wait for theirs; Communicator::Abort from another thread ends the move. On return nothing
// touches the state. Requires: plan.participants == communicator.world_size().
MoveOutcome MoveState(Communicator& communicator, const ReshardPlan& plan, MovableState& state,
                      const MoveOptions& options = {});

}  // namespace muster

#endif  // MUSTER_STATE_MOVE_STATE_H_
