// The contract all transports share: one rank's end of a mesh of `world_size` ranks, made for one
// epoch and never reused for another.
//
// Messages. A message goes from one rank to another under a 64-bit tag that the sender has in use
// once at a time for that peer. A receive names the peer, the tag and the exact length. Messages of
// different tags may overtake each other: nothing is promised about order, since EFA promises none.
// Lengths from 0 to kMaxMessageBytes are legal. Rank to itself is not.
//
// Back-pressure. A message that arrives before its receive is posted is held back at the sender,
// except that a transport takes in small ones (up to TransportLimits::eager_bytes each and
// unexpected_bytes together, per peer) so that receives may be posted in another order than the
// sends. Nothing is ever buffered beyond that.
//
// Memory. Source and destination belong to the transport from the post until the completion, or
// until Close() has returned; after Close() nothing reads or writes them (but see
// tainted()).
//
// Failure. The first failure is final: a broken connection, a peer that closed without saying
// goodbye while it was needed, an abort received from a peer, a violated limit. From then on Poll
// returns that status at once, nothing completes, posts are ignored. The status names the peer's
// rank; failure() says it to programs. A peer that left in good order (Close(OkStatus())) is a
// failure only once something is posted to it or still pending with it that it did not serve.
//
// Threads. One thread at a time *drives*: Post*, Poll. Another thread may be in Watch(). Wake(),
// Close(), failure() may be called from any thread at any time.
#ifndef MUSTER_COLLECTIVES_TRANSPORT_TRANSPORT_H_
#define MUSTER_COLLECTIVES_TRANSPORT_TRANSPORT_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "base/ids.h"

namespace muster {

class Window;  // window.h

// Longest message a transport carries.
inline constexpr int64_t kMaxMessageBytes = int64_t{1} << 30;

struct TransportLimits {
  // Posted and not yet completed operations, per peer and direction. A post beyond it is a bug of
  // the caller (checked).
  int max_pending_per_peer = 4096;
  // Messages up to this size may be taken in before their receive is posted ...
  int64_t eager_bytes = 64 << 10;
  // ... as long as all of one peer's together stay below this.
  int64_t unexpected_bytes = 1 << 20;
};

// Takes a message piece by piece, as it arrives, in the thread that drives.
class PieceConsumer {
 public:
  virtual ~PieceConsumer() = default;
  // Bytes [offset, offset + piece.size()) of the message posted with `token`. Pieces come in order
  // and without gaps; each starts at a multiple of the element size, is a multiple of it long, is
  // aligned to it in memory, and is valid only during the call.
  virtual void Consume(uint64_t token, int64_t offset, absl::Span<const std::byte> piece) = 0;
};

// Why a mesh can't be used any more.
struct MeshFailure {
  absl::Status status;          // not OK
  std::optional<Rank> culprit;  // the rank held to be dead, where one is
};

class Transport {
 public:
  virtual ~Transport() = default;
  Transport() = default;
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;

  virtual absl::string_view name() const = 0;  // "tcp", "in-process"
  virtual Rank rank() const = 0;
  virtual int world_size() const = 0;
  // Into how large messages large transfers are best cut: small ones overlap better with sums and
  // other transfers, and cost more each. Equal on all ranks.
  virtual int64_t best_segment_bytes() const { return 256 << 10; }
  // How many of the ranks run on this host, this one included: whether waiting by spinning pays.
  virtual int local_world_size() const = 0;

  // Sends `bytes` to `peer`. `token` comes back from Poll when the memory may be reused.
  virtual void PostSend(Rank peer, uint64_t tag, absl::Span<const std::byte> bytes,
                        uint64_t token) = 0;
  // Receives a message of exactly destination.size() bytes.
  virtual void PostReceive(Rank peer, uint64_t tag, absl::Span<std::byte> destination,
                           uint64_t token) = 0;
  // The same, but the peer need not send, and its leaving in good order is no failure, except while
  // Expect says otherwise.
  virtual void PostStandingReceive(Rank peer, uint64_t tag, absl::Span<std::byte> destination,
                                   uint64_t token) = 0;
  // From now on (delta 1) the peer owes a message for a standing receive; no longer (delta -1).
  virtual void Expect(Rank peer, int delta) = 0;
  // Receives a message of `length` bytes (a multiple of element_bytes) through `consumer`, which
  // must live until the completion. TCP calls it on cache-resident staging memory, the in-process
  // transport on the sender's own memory.
  virtual void PostConsume(Rank peer, uint64_t tag, int64_t length, int element_bytes,
                           PieceConsumer* consumer, uint64_t token) = 0;

  // Moves data and appends the tokens of completed operations to *completed. Returns as soon as it
  // has appended one, on Wake(), or at the deadline; a deadline in the past makes one pass. Spins
  // for at most `spin` before it blocks. Not OK: the mesh has failed.
  virtual absl::Status Poll(absl::Time deadline, absl::Duration spin,
                            std::vector<uint64_t>* completed) = 0;

  // Peers are still to be told something about what was completed: who has nothing else to wait for
  // drives until they are; a Poll ends when they have been. From any thread.
  virtual bool has_backlog() const { return false; }

  // Blocks without driving, until a peer has died or aborted (Poll will say), on WakeWatcher(),
  // Close() or at the deadline. Data traffic does not end it.
  virtual void Watch(absl::Time deadline) = 0;
  virtual void WakeWatcher() = 0;

  // Makes a Poll that blocks now, or the next one, return.
  virtual void Wake() = 0;

  // Ends the mesh. With OK: says goodbye; messages already completed still arrive. Otherwise tells
  // all peers `reason` and `culprit`, which fails their ends, too. Takes bounded time whatever the
  // peers do. On return nothing touches posted memory any more. Idempotent; the first reason
  // counts.
  virtual void Close(const absl::Status& reason, std::optional<Rank> culprit) = 0;

  // The failure, once there is one.
  virtual std::optional<MeshFailure> failure() const = 0;

  // Memory that the ranks share, for collectives in place; null if they do not. Belongs to the
  // transport.
  virtual Window* window() { return nullptr; }
  // After Close(): a rank that was stopped while it wrote to registered buffers may go on writing
  // when it runs again. SharedBuffer::Renew() those that outputs of collectives lay in.
  virtual bool tainted() const { return false; }
};

}  // namespace muster

#endif  // MUSTER_COLLECTIVES_TRANSPORT_TRANSPORT_H_
