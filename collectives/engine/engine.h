// Runs operations over a transport, in order: what a driver does, without threads or locks.
//
// At most two operations run at once: the next one starts while the tail of the current one is
// under way, but sends nothing to a peer to which the current one has not sent all, so that on no
// connection a later message stands before an earlier one.
//
// Fingerprints. Each pair of ranks exchanges them under tags of their own, counted per peer; one
// receive per peer stands always. One that is ahead of this rank's calls is kept, and no further
// one taken from that peer until this rank has caught up. Data of an operation is received from a
// peer only after its fingerprint has matched.
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

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "collectives/engine/adaptive_spin.h"
#include "collectives/engine/execution.h"
#include "collectives/engine/operation.h"
#include "collectives/engine/scratch_pool.h"
#include "collectives/transport/transport.h"

namespace muster {

class Engine {
 public:
  static constexpr size_t kMostActive = 2;

  // Waits spin for at most `longest_spin`, where that pays.
  Engine(Transport& transport, absl::Duration longest_spin);

  size_t active() const { return active_.size(); }
  bool HasRoom() const { return active_.size() < kMostActive; }

  // Starts an operation. Requires: HasRoom(), sequence one above the last. INVALID_ARGUMENT: a peer
  // has already called something else.
  absl::Status Start(std::shared_ptr<Operation> operation);

  // Moves on, waiting for the transport until `deadline` at most. Appends finished operations, in
  // order. Spins only if somebody waits. Not OK, final: the transport has failed; calls do not
  // match (INVALID_ARGUMENT); the current operation's deadline has passed (DEADLINE_EXCEEDED;
  // CulpritOf is a rank waited for).
  absl::Status Progress(absl::Time deadline, bool awaited,
                        std::vector<std::shared_ptr<Operation>>* finished);

 private:
  struct Peer {
    std::array<std::byte, kFingerprintBytes> incoming;
    uint64_t next_receive = 0;
    uint64_t next_send = 0;
    std::optional<Fingerprint> ahead;  // came before this rank's call
  };

  void PostFingerprintReceive(Rank peer);
  absl::Status FingerprintCame(Rank peer);
  // A fingerprint of a peer against the operation with its sequence, or one that it shows to be
  // skipped.
  absl::Status Compare(Rank peer, const Fingerprint& theirs);
  absl::Status Mismatch(const Fingerprint& ours, Rank peer, const Fingerprint& theirs) const;
  absl::Status Skipped(const Fingerprint& ours, Rank peer, const Fingerprint& theirs) const;
  absl::Status CheckDeadline() const;
  void OpenSends();
  Execution* Find(int slot);

  Transport& transport_;
  AdaptiveSpin spin_;
  ScratchPool scratch_pool_;
  std::vector<Peer> peers_;  // by rank
  std::deque<std::unique_ptr<Execution>> active_;
  uint64_t last_sequence_ = 0;
  // The fingerprints of the last calls, by sequence modulo its size.
  std::array<Fingerprint, 64> history_;
  std::vector<uint64_t> completed_;
};

}  // namespace muster

#endif  // MUSTER_COLLECTIVES_ENGINE_ENGINE_H_
