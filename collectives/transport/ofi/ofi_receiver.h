// The receiving half of a libfabric mesh: matches messages with receives, grants room to write
// large ones, and hands what has arrived to consumers. One thread at a time.
//
// Grants. A fixed number of slots bounds the writes that may be on their way to this rank, from all
// peers together. A receive into memory is granted that memory; one through a consumer is granted
// staging memory piece by piece, and the consumer sees the pieces in order.
//
// A receive too long for an early message is granted as it is posted, before the peer asks, so that
// a message that is ready finds its grant waiting. Such grants take half of the slots and of the
// staging memory at most: a peer that has something to send never waits for one that has nothing.
//
// Consumers run only inside calls marked `driving`, as the contract of PieceConsumer asks; what
// arrives in others waits for Deliver.
#ifndef MUSTER_COLLECTIVES_TRANSPORT_OFI_OFI_RECEIVER_H_
#define MUSTER_COLLECTIVES_TRANSPORT_OFI_OFI_RECEIVER_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "collectives/transport/ofi/ofi_inbox.h"
#include "collectives/transport/ofi/ofi_packet.h"
#include "collectives/transport/ofi/ofi_peer_link.h"
#include "collectives/transport/ofi/ofi_regions.h"

namespace muster {

class OfiReceiver {
 public:
  static constexpr int kSlots = 256;
  static constexpr size_t kStagingBytes = 256 << 10;  // of a piece
  static constexpr int kStagingPieces = 8;
  static constexpr int kMostAhead = kSlots / 2;
  static constexpr int kMostStagingAhead = kStagingPieces / 2;

  // All must outlive this; links are by rank. `longest_early`: no peer sends a longer message
  // before its receive.
  OfiReceiver(const OfiRails& rails, const OfiRegions& regions,
              std::vector<std::unique_ptr<OfiPeerLink>>& links, const TransportLimits& limits,
              int64_t longest_early);
  // Registers the staging memory.
  absl::Status Init();

  // Served at once where the message has come; else its token is reported later. Driving.
  absl::Status Post(Rank peer, const PendingReceive& receive, std::vector<uint64_t>* completed);
  void Expect(Rank peer, int delta) { inboxes_[static_cast<size_t>(peer)].Expect(delta); }
  int due(Rank peer) const { return inboxes_[static_cast<size_t>(peer)].due(); }

  absl::Status OnEager(Rank peer, uint64_t tag, absl::Span<const std::byte> bytes, bool driving,
                       std::vector<uint64_t>* completed);
  absl::Status OnRequest(Rank peer, const OfiRequest& request, std::vector<uint64_t>* completed);
  // A write has arrived.
  absl::Status OnPiece(uint32_t immediate, bool driving, std::vector<uint64_t>* completed);
  // Hands waiting messages and pieces to their consumers. Driving.
  absl::Status Deliver(std::vector<uint64_t>* completed);
  // Grants what slots and staging memory allow. On an error *culprit is the peer.
  absl::Status Grant(Rank* culprit, bool* moved);
  // No transfer is under way.
  bool idle() const { return incoming_.empty(); }
  // Forgets all transfers, and the staging memory's registration. Requires: nothing is written
  // there.
  void Clear();

 private:
  struct Piece {
    int64_t offset = 0;
    int64_t length = 0;
    int staging = -1;  // index of the staging memory
    bool arrived = false;
  };
  // A large message that is awaited or on its way.
  struct Incoming {
    uint64_t id = 0;
    Rank peer = -1;
    PendingReceive receive;
    bool on_its_way = false;    // the peer is known to send it
    bool request_came = false;  // and asked for it
    bool request_due = false;   // a piece says that it did
    int granted_ahead = 0;      // pieces granted before it was on its way
    int64_t granted = 0;
    int64_t arrived = 0;  // bytes; through a consumer: consumed
    int64_t piece_bytes = 0;
    size_t next_rail = 0;
    std::deque<Piece> pieces;  // through a consumer: granted and not consumed, in order
    bool delivery_waits = false;
    OfiTransferRegions regions;
  };
  struct Slot {
    Incoming* incoming = nullptr;
    uint32_t generation = 0;
    int64_t offset = 0;
    int64_t length = 0;
  };
  // An early or small message that waits for its consumer to be driven.
  struct EarlyDelivery {
    Rank peer = -1;
    PendingReceive receive;
    OfiArrival arrival;
  };

  absl::Status Serve(Rank peer, const PendingReceive& receive, absl::Span<const std::byte> bytes,
                     std::vector<uint64_t>* completed);
  // A message that the peer has asked to send.
  absl::Status Begin(Rank peer, const PendingReceive& receive, int64_t length,
                     std::vector<uint64_t>* completed);
  Incoming& AddIncoming(Rank peer, const PendingReceive& receive);
  void SetOnItsWay(Incoming& incoming);
  absl::StatusOr<bool> GrantPiece(Incoming& incoming);
  absl::Status GrantAhead(Rank* culprit, bool* moved);
  void Consume(Incoming& incoming, std::vector<uint64_t>* completed);
  void FinishIfWhole(Incoming& incoming, std::vector<uint64_t>* completed);
  std::byte* Staging(int index) const {
    return staging_memory_.data() + static_cast<size_t>(index) * kStagingBytes;
  }

  const OfiRails& rails_;
  const OfiRegions& regions_;
  std::vector<std::unique_ptr<OfiPeerLink>>& links_;
  const int64_t longest_early_;
  std::deque<OfiInbox> inboxes_;  // by rank; a deque: they are not copied
  OfiSlab staging_memory_;
  OfiTransferRegions staging_regions_;
  std::vector<int> free_staging_;
  std::vector<Slot> slots_;
  std::vector<int> free_slots_;
  absl::flat_hash_map<uint64_t, std::unique_ptr<Incoming>> incoming_;
  std::vector<absl::flat_hash_map<uint64_t, Incoming*>> by_tag_;  // by rank
  uint64_t next_id_ = 1;
  std::deque<uint64_t> ungranted_;  // ids of those on their way and not granted whole
  std::deque<uint64_t> awaited_;    // ids of those that were not on their way, in order
  int slots_ahead_ = 0;             // granted to messages not on their way
  int staging_ahead_ = 0;
  std::deque<EarlyDelivery> early_;
  std::deque<uint64_t> staged_;  // ids of those with pieces to consume
};

}  // namespace muster

#endif  // MUSTER_COLLECTIVES_TRANSPORT_OFI_OFI_RECEIVER_H_
