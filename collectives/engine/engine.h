// Runs operations over a transport, in order: what a driver does, without threads or locks.
//
// At most four operations run at once: the next ones start while the tail of the current one is
// under way, but send nothing to a peer to which those before have not sent all, so that on no
// connection a later message stands before an earlier one.
//
// Fingerprints. Each pair of ranks exchanges them under tags of their own, counted per peer; one
// receive per peer stands always. What a rank tells a peer, in order, must be what the peer hears
// from it, in order, be it calls of all ranks, of a subgroup, or sends between the two. One that is
// ahead of this rank's calls is kept, and no further one taken from that peer until this rank has
// caught up. Data of an operation is received from a peer only after its fingerprint has matched,
// and carries that fingerprint's number.
//
// Operations in shared memory run alone: one starts when those before it are done, and none starts
// beside it. Its ranks compare their calls when they meet.
//
// Driven by one thread at a time.
#ifndef MUSTER_COLLECTIVES_ENGINE_ENGINE_H_
#define MUSTER_COLLECTIVES_ENGINE_ENGINE_H_

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "collectives/engine/adaptive_spin.h"
#include "collectives/engine/execution.h"
#include "collectives/engine/operation.h"
#include "collectives/engine/registered_calls.h"
#include "collectives/engine/scratch_pool.h"
#include "collectives/engine/window_execution.h"
#include "collectives/transport/transport.h"

namespace muster {

class Engine {
 public:
  // With one alone, wires would be idle between operations; with two, those of parameter servers as
  // well, whose pushes and pulls take one direction each: a bucket's last push and the pull of the
  // one before would keep both.
  static constexpr size_t kMostActive = 4;

  // Waits spin for at most `longest_spin`, where that pays.
  Engine(Transport& transport, absl::Duration longest_spin);

  size_t active() const { return active_.size() + (in_window_.has_value() ? 1 : 0); }
  // Rises whenever an operation starts or moves on: a message has come or gone, ranks have met, a
  // piece of local work is done.
  uint64_t moves() const { return moves_; }
  bool HasRoom() const { return !in_window_.has_value() && active_.size() < kMostActive; }

  // Starts an operation. Requires: HasRoom(), sequence one above the last of its scope.
  // INVALID_ARGUMENT: a peer has already called something else.
  absl::Status Start(std::shared_ptr<Operation> operation);

  // Moves on, waiting for the transport until `deadline` at most. Appends finished operations, in
  // order. Spins only if somebody waits. Not OK, final: the transport has failed; calls do not
  // match (INVALID_ARGUMENT); the current operation's deadline has passed (DEADLINE_EXCEEDED;
  // CulpritOf is a rank waited for).
  absl::Status Progress(absl::Time deadline, bool awaited,
                        std::vector<std::shared_ptr<Operation>>* finished);

  // The operation of which the deadline counts now, and the peers it waits for. Requires:
  // active() > 0.
  const Operation& FrontOperation() const;
  std::vector<Rank> FrontWaitsFor() const;

 private:
  struct Peer {
    std::array<std::byte, kFingerprintBytes> incoming;
    uint64_t next_receive = 0;
    uint64_t next_send = 0;
    std::optional<Fingerprint> ahead;  // came before this rank's call
    uint64_t last_number = 0;          // of the last fingerprint that came
  };
  // The last calls of all ranks, a subgroup or a pair, by sequence modulo their number.
  struct Scope {
    uint64_t last_sequence = 0;
    std::vector<Fingerprint> history;
  };

  void PostFingerprintReceive(Rank peer);
  absl::Status FingerprintCame(Rank peer);
  // A fingerprint of a peer against the first operation that must hear of it.
  absl::Status Compare(Rank peer, const Fingerprint& theirs, uint64_t number);
  absl::Status Skipped(const Fingerprint& ours, Rank peer, const Fingerprint& theirs) const;
  // Who has not come to the window has not called something else by messages.
  absl::Status CheckMissing() const;
  absl::Status CheckDeadline();
  // The peer told of a call this rank has not come to yet.
  bool IsAhead(const Fingerprint& theirs) const;
  const Fingerprint* OurCall(const Fingerprint& theirs) const;
  void OpenSends();
  // Some local work of the first operation that has any ready. False: none has.
  bool RunLocal();
  Execution* Find(int slot);
  // Moves the operation in the window on: begins it when its turn has come, or after a meet.
  absl::Status AdvanceWindow(bool met);
  // Moves it on as far as the others have come, without a poll. True: it has met them.
  absl::StatusOr<bool> MeetAtOnce(bool awaited);
  // True: the operation in the window is done, and now among the finished.
  bool TakeFromWindow(std::vector<std::shared_ptr<Operation>>* finished);

  Transport& transport_;
  AdaptiveSpin spin_;
  ScratchPool scratch_pool_;
  std::vector<Peer> peers_;  // by rank
  std::deque<std::unique_ptr<Execution>> active_;
  std::optional<WindowExecution> in_window_;  // comes after those in active_
  uint64_t window_operations_ = 0;
  RegisteredCalls registered_calls_;  // in the window
  uint64_t executions_ = 0;
  uint64_t moves_ = 0;
  absl::flat_hash_map<uint64_t, Scope> scopes_;
  std::vector<uint64_t> completed_;
};

}  // namespace muster

#endif  // MUSTER_COLLECTIVES_ENGINE_ENGINE_H_
