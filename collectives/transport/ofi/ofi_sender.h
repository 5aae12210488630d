// The sending half of a libfabric mesh: writes large messages where they are granted room, and asks
// for it where the grant is not there yet. One thread at a time. Statuses that are not OK are
// violations by the peer or errors of the provider, without the peer's name.
#ifndef MUSTER_COLLECTIVES_TRANSPORT_OFI_OFI_SENDER_H_
#define MUSTER_COLLECTIVES_TRANSPORT_OFI_OFI_SENDER_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "collectives/transport/ofi/ofi_packet.h"
#include "collectives/transport/ofi/ofi_peer_link.h"
#include "collectives/transport/ofi/ofi_regions.h"
#include "collectives/transport/transport.h"

namespace muster {

// How writes reach a peer.
struct OfiWriteTarget {
  std::vector<fi_addr_t> addresses;  // by rail
  bool with_immediates = false;
};

class OfiSender {
 public:
  // All must outlive this. Links and targets are by rank.
  OfiSender(const OfiRails& rails, const OfiRegions& regions,
            std::vector<std::unique_ptr<OfiPeerLink>>& links,
            const std::vector<OfiWriteTarget>& targets, const TransportLimits& limits);

  // `token` is appended to *completed, by this or a later call, when the memory is free.
  void Post(Rank peer, uint64_t tag, absl::Span<const std::byte> bytes, uint64_t token);
  // A grant may come before its message is posted.
  absl::Status OnGrant(Rank peer, const OfiGrant& grant);
  absl::Status OnDone(Rank peer, uint64_t tag, std::vector<uint64_t>* completed);
  absl::Status OnWritten(const OfiOperation& write, std::vector<uint64_t>* completed);
  // Posts what the provider takes. On an error *culprit is the peer.
  absl::Status PostWrites(Rank* culprit, bool* moved);

  // Large messages that the peer has not taken whole.
  int pending(Rank peer) const {
    return static_cast<int>(peers_[static_cast<size_t>(peer)].messages.size());
  }
  bool idle() const { return messages_ == 0; }
  // Forgets all messages. Requires: the provider is done with them.
  void Clear();

 private:
  struct Message {
    Rank peer = -1;
    uint64_t tag = 0;
    absl::Span<const std::byte> bytes;
    uint64_t token = 0;
    bool requested = false;
    int64_t granted = 0;
    int writes = 0;  // queued or outstanding
    bool done = false;
    OfiTransferRegions regions;
  };
  struct Write {
    Message* message = nullptr;
    OfiGrant grant;
  };
  struct Peer {
    absl::flat_hash_map<uint64_t, std::unique_ptr<Message>> messages;   // by tag
    absl::flat_hash_map<uint64_t, std::vector<OfiGrant>> early_grants;  // by tag
    int early_count = 0;
  };
  Peer& PeerAt(Rank peer) { return peers_[static_cast<size_t>(peer)]; }
  void QueueWrite(Message& message, const OfiGrant& grant);
  void FinishIfWhole(Message& message, std::vector<uint64_t>* completed);
  OfiOperation* TakeOperation();

  const OfiRails& rails_;
  const OfiRegions& regions_;
  std::vector<std::unique_ptr<OfiPeerLink>>& links_;
  const std::vector<OfiWriteTarget>& targets_;
  const TransportLimits limits_;
  std::vector<Peer> peers_;                 // by rank
  int messages_ = 0;                        // of all peers
  std::vector<std::deque<Write>> waiting_;  // by rail
  std::deque<OfiOperation> operations_;     // a deque: they must not move
  std::vector<Write> outstanding_;          // by operation
  std::vector<uint32_t> free_operations_;
};

}  // namespace muster

#endif  // MUSTER_COLLECTIVES_TRANSPORT_OFI_OFI_SENDER_H_
