// What a rank sends: where each message goes, and which memory is still needed.
//
// A message goes inside its entry if it is tiny; through a block if it is small, so that its memory
// is free at once; otherwise it stays where it is until the peer has read it, in the arena or, by
// process_vm_readv, elsewhere. Where the peer may not read it there, it waits until the peer awaits
// it and then goes in pieces through blocks. Each is made known at once, whatever became of
// those before it, so receives may be posted in any order.
//
// Used by the thread that drives.
#ifndef MUSTER_COLLECTIVES_TRANSPORT_SHM_SHM_SENDER_H_
#define MUSTER_COLLECTIVES_TRANSPORT_SHM_SHM_SENDER_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "collectives/transport/shm/shm_blocks.h"
#include "collectives/transport/shm/shm_group.h"
#include "collectives/transport/shm/shm_link.h"
#include "collectives/transport/transport.h"

namespace muster {

class ShmSender {
 public:
  // links[r] leads to rank r; can_read[r]: that rank may read this one's memory wherever it lies.
  ShmSender(ShmGroup& group, const std::vector<std::unique_ptr<ShmLink>>& links,
            std::vector<bool> can_read, const TransportLimits& limits);

  // Tokens of what is done are appended to *completed.
  void Post(Rank peer, uint64_t tag, absl::Span<const std::byte> bytes, uint64_t token,
            std::vector<uint64_t>* completed);
  // A peer's word. INVALID_ARGUMENT: it makes no sense.
  absl::Status OnTaken(Rank peer, const ShmEntry& entry, std::vector<uint64_t>* completed);
  absl::Status OnPull(Rank peer, const ShmEntry& entry);
  // Sends pieces of what was pulled, as blocks allow.
  void SendPieces(std::vector<uint64_t>* completed);
  // Messages the peer has not taken, but for those whose sends are complete.
  int pending(Rank peer) const { return peers_[static_cast<size_t>(peer)].pending; }

 private:
  static constexpr uint32_t kNone = ~uint32_t{0};
  struct Message {
    Rank peer = -1;  // -1: free
    uint64_t token = 0;
    absl::Span<const std::byte> bytes;
    size_t staged = 0;       // of them
    size_t piece = 0;        // how long pieces are to be; 0: not pulled
    uint32_t under_way = 0;  // pieces
  };
  struct Block {
    Rank peer = -1;            // -1: free
    int64_t unexpected = 0;    // bytes of a whole message
    uint32_t message = kNone;  // or a piece of this one
  };
  struct Peer {
    int pending = 0;
    int64_t unexpected = 0;  // bytes in blocks that it has not taken
    uint64_t counted = 0;    // inline messages sent that count as unexpected
  };

  bool MayTakeInEarly(Rank peer, int64_t bytes);
  uint32_t NewMessage(Rank peer, absl::Span<const std::byte> bytes, uint64_t token);
  void Finish(uint32_t id, std::vector<uint64_t>* completed);

  ShmGroup& group_;
  const std::vector<std::unique_ptr<ShmLink>>& links_;
  const std::vector<bool> can_read_;
  const TransportLimits limits_;
  ShmBlocks blocks_;
  std::vector<Block> block_use_;
  std::vector<Peer> peers_;
  std::vector<Message> messages_;
  std::vector<uint32_t> free_messages_;
  std::deque<uint32_t> pulled_;  // messages with pieces to send, by turns
};

}  // namespace muster

#endif  // MUSTER_COLLECTIVES_TRANSPORT_SHM_SHM_SENDER_H_
