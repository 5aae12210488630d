// The sending half of a libfabric mesh: announces large messages and writes them where they are
// granted room. One thread at a time. Statuses that are not OK are violations by the peer or errors
// of the provider, without the peer's name.
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
  absl::Status OnGrant(Rank peer, uint64_t send_id, const OfiGrant& grant);
  absl::Status OnDone(Rank peer, uint64_t send_id, std::vector<uint64_t>* completed);
  absl::Status OnWritten(const OfiOperation& write, std::vector<uint64_t>* completed);
  // Posts what the provider takes. On an error *culprit is the peer.
  absl::Status PostWrites(Rank* culprit, bool* moved);

  // Announced messages that the peer has not taken whole.
  int pending(Rank peer) const { return pending_[static_cast<size_t>(peer)]; }
  bool idle() const { return messages_.empty(); }
  // Forgets all messages. Requires: the provider is done with them.
  void Clear() { messages_.clear(); }

 private:
  struct Message {
    Rank peer = -1;
    absl::Span<const std::byte> bytes;
    uint64_t token = 0;
    int64_t granted = 0;
    int writes = 0;  // queued or outstanding
    bool done = false;
    OfiTransferRegions regions;
  };
  struct Write {
    uint32_t send_id = 0;
    OfiGrant grant;
  };
  void FinishIfWhole(uint32_t send_id, std::vector<uint64_t>* completed);
  OfiOperation* TakeOperation();

  const OfiRails& rails_;
  const OfiRegions& regions_;
  std::vector<std::unique_ptr<OfiPeerLink>>& links_;
  const std::vector<OfiWriteTarget>& targets_;
  const TransportLimits limits_;
  absl::flat_hash_map<uint32_t, std::unique_ptr<Message>> messages_;
  uint32_t next_id_ = 1;
  std::vector<int> pending_;                // by rank
  std::vector<std::deque<Write>> waiting_;  // by rail
  std::deque<OfiOperation> operations_;     // a deque: they must not move
  std::vector<Write> outstanding_;          // by operation
  std::vector<uint32_t> free_operations_;
};

}  // namespace muster

#endif  // MUSTER_COLLECTIVES_TRANSPORT_OFI_OFI_SENDER_H_
