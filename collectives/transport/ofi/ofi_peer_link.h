// The packets to and from one peer: their credits, the budget of early messages, their order.
//
// Credits. The peer has posted `window` receive buffers for this rank. A packet takes one until the
// peer has processed it, which it says in the header of each of its own packets, or in an empty
// packet once half a window is due. The last kReserved credits are for those alone, so both
// sides can always say so.
//
// Records that wait together travel in one packet.
//
// Early messages. The peer takes in messages before their receives up to a budget, of which each
// takes its length and a fixed overhead until it is served.
//
// One thread at a time.
#ifndef MUSTER_COLLECTIVES_TRANSPORT_OFI_OFI_PEER_LINK_H_
#define MUSTER_COLLECTIVES_TRANSPORT_OFI_OFI_PEER_LINK_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <variant>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/ids.h"
#include "collectives/transport/ofi/ofi_packet.h"
#include "collectives/transport/ofi/ofi_packet_buffers.h"

namespace muster {

inline constexpr uint32_t kOfiReservedCredits = 2;
inline constexpr uint32_t kOfiMinWindow = 8;

// What a peer takes.
struct OfiPeerLimits {
  uint32_t cookie = 0;
  uint32_t window = 0;      // packets
  size_t packet_bytes = 0;  // header included
  int64_t early_bytes = 0;  // of one early message
  int64_t budget = 0;       // of all early messages
  int64_t overhead = 0;     // that each takes beside its length
};

// A received packet, in its buffer.
struct OfiReceivedPacket {
  OfiPacketHeader header;
  uint32_t buffer = 0;
  size_t length = 0;
};

class OfiPeerLink {
 public:
  // `theirs` is what the peer takes; `window` and `overhead` what it was told of this rank.
  OfiPeerLink(Rank self, Rank peer, fi_addr_t address, const OfiPeerLimits& theirs, uint32_t window,
              int64_t overhead)
      : self_(self),
        peer_(peer),
        address_(address),
        theirs_(theirs),
        window_(window),
        overhead_(overhead) {}

  // Takes room for an early message of that length. False: ask first.
  bool TakeBudget(int64_t length);
  // Sends a message for which there is room. Its token is reported when its bytes are free.
  void QueueEager(uint64_t tag, absl::Span<const std::byte> bytes, uint64_t token);
  void QueueRecord(const OfiRecord& record);
  bool has_queued() const { return !queue_.empty(); }
  // Messages among what is queued.
  int queued_messages() const { return queued_messages_; }
  // Flush may have something to do.
  bool wants_flush() const { return !queue_.empty() || owes_credits(); }
  // Among that is what the peer waits for: all but word that its messages have arrived.
  bool urgent() const { return queued_urgent_ > 0 || owes_credits(); }
  // Hands to the provider what credits and the provider allow. *moved: something went.
  absl::Status Flush(OfiRail& rail, OfiPacketBuffers& buffers, std::vector<uint64_t>* completed,
                     bool* moved);
  uint32_t sent() const { return sent_; }

  // Takes the news of a header in; INVALID_ARGUMENT where it is impossible.
  absl::Status Note(const OfiPacketHeader& header);
  // The packet, if it is the next in order; else it is kept until it is.
  std::optional<OfiReceivedPacket> Order(const OfiReceivedPacket& packet);
  // The next in order of those kept.
  std::optional<OfiReceivedPacket> NextKept();
  // A packet's buffer has been posted again.
  void Returned() { ++returned_; }
  // An early message of that length has been served.
  void Served(int64_t length) { consumed_ += static_cast<uint64_t>(length + overhead_); }
  // Packets processed, in order.
  uint32_t processed() const { return expected_; }

 private:
  struct Eager {
    uint64_t tag = 0;
    absl::Span<const std::byte> bytes;
    uint64_t token = 0;
  };
  using Outgoing = std::variant<Eager, OfiRecord>;
  static bool IsUrgent(const Outgoing& outgoing);
  // Budget alone is no reason for a packet: a sender without any asks first, and is not stuck.
  bool owes_credits() const { return returned_ - told_returned_ >= window_ / 2; }
  uint32_t credits() const { return theirs_.window - (sent_ - their_returned_); }
  // Hands what is at the front of the queue to the provider: a message, or records up to the next
  // message. Returns how many left the queue.
  absl::StatusOr<size_t> SendFront(OfiRail& rail, OfiPacketBuffers& buffers);
  absl::StatusOr<bool> SendPacket(OfiPacketKind kind, uint64_t argument, size_t payload_bytes,
                                  absl::FunctionRef<void(std::byte*)> fill, OfiRail& rail,
                                  OfiPacketBuffers& buffers);

  const Rank self_;
  const Rank peer_;
  const fi_addr_t address_;
  const OfiPeerLimits theirs_;
  const uint32_t window_;
  const int64_t overhead_;

  std::deque<Outgoing> queue_;
  int queued_messages_ = 0;
  int queued_urgent_ = 0;
  uint32_t sent_ = 0;
  uint32_t their_returned_ = 0;  // of what was sent
  uint64_t charged_ = 0;         // of their budget, ever
  uint64_t their_consumed_ = 0;

  uint32_t expected_ = 0;  // next sequence number
  absl::flat_hash_map<uint32_t, OfiReceivedPacket> kept_;
  uint32_t returned_ = 0;
  uint32_t told_returned_ = 0;
  uint64_t consumed_ = 0;
};

}  // namespace muster

#endif  // MUSTER_COLLECTIVES_TRANSPORT_OFI_OFI_PEER_LINK_H_
