// What a rank receives: matches the messages that peers have made known with the receives posted,
// and moves them: from the entry, from the sender's arena, by process_vm_readv, or piece by piece.
//
// A message that comes before its receive costs no memory but its entry: it stays where its sender
// has put it.
//
// Used by the thread that drives. Tokens of what is done are appended to *completed.
#ifndef MUSTER_COLLECTIVES_TRANSPORT_SHM_SHM_RECEIVER_H_
#define MUSTER_COLLECTIVES_TRANSPORT_SHM_SHM_RECEIVER_H_

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "collectives/transport/receive_table.h"
#include "collectives/transport/shm/shm_group.h"
#include "collectives/transport/shm/shm_link.h"
#include "collectives/transport/tcp_connection.h"
#include "collectives/transport/transport.h"

namespace muster {

class ShmReceiver {
 public:
  ShmReceiver(ShmGroup& group, const std::vector<std::unique_ptr<ShmLink>>& links,
              const TransportLimits& limits);

  // Errors are the peer's: INVALID_ARGUMENT for what makes no sense, UNAVAILABLE where it has left,
  // or the kernel's.
  absl::Status Post(Rank peer, const PendingReceive& receive, std::vector<uint64_t>* completed);
  void Expect(Rank peer, int delta) { peers_[static_cast<size_t>(peer)].receives.Expect(delta); }
  absl::Status OnMessage(Rank peer, const ShmEntry& entry, std::vector<uint64_t>* completed);
  absl::Status OnPiece(Rank peer, const ShmEntry& entry, std::vector<uint64_t>* completed);
  // Moves on the oldest of the large messages that can be read, by one piece. Requires: there is
  // one. *peer is whose.
  absl::Status Move(Rank* peer, std::vector<uint64_t>* completed);
  bool can_move() const { return !ready_.empty(); }
  // Tells peers what was taken since.
  void TellTaken(std::vector<uint64_t>* completed);

  // Receives the peer owes.
  int due(Rank peer) const { return peers_[static_cast<size_t>(peer)].receives.due(); }

 private:
  struct Peer {
    explicit Peer(const TransportLimits& limits) : receives(limits) {}
    ReceiveTable receives;
    // Not awaited yet, by tag; of one tag in the order they came.
    std::multimap<uint64_t, ShmEntry> early;
    std::vector<uint32_t> taken;  // to be told
    bool wake = false;            // at once
  };
  // A message on its way.
  struct Transfer {
    Rank peer = -1;
    uint32_t id = 0;
    bool at_address = false;
    uint64_t where = 0;
    PendingReceive receive;
    int64_t moved = 0;
  };

  // A message and its receive have met.
  absl::Status Begin(Rank peer, const ShmEntry& entry, const PendingReceive& receive,
                     std::vector<uint64_t>* completed);
  // Hands on bytes that this process can read.
  void Give(const PendingReceive& receive, int64_t offset, absl::Span<const std::byte> bytes);
  void Finish(Rank peer, const PendingReceive& receive, std::vector<uint64_t>* completed);
  void NoteTaken(Rank peer, uint32_t id, bool wake);
  // What was read from the rank's own memory counts only if it has not left.
  absl::Status CheckStillThere(Rank peer, bool by_kernel) const;

  ShmGroup& group_;
  const std::vector<std::unique_ptr<ShmLink>>& links_;
  std::vector<Peer> peers_;
  std::deque<Transfer> ready_;
  absl::flat_hash_map<uint64_t, Transfer> staged_;  // by peer and id
  std::vector<Rank> to_tell_;
  StagingBuffer staging_;
};

}  // namespace muster

#endif  // MUSTER_COLLECTIVES_TRANSPORT_SHM_SHM_RECEIVER_H_
