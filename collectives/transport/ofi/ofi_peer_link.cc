#include "collectives/transport/ofi/ofi_peer_link.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status_macros.h"

namespace muster {
namespace {

// Largest packet that is injected: a copy on the stack.
constexpr size_t kMaxInject = 512;

}  // namespace

bool OfiPeerLink::TakeBudget(int64_t length) {
  const auto cost = static_cast<uint64_t>(length + theirs_.overhead);
  if (length > theirs_.early_bytes ||
      kOfiHeaderBytes + static_cast<size_t>(length) > theirs_.packet_bytes ||
      charged_ - their_consumed_ + cost > static_cast<uint64_t>(theirs_.budget)) {
    return false;
  }
  charged_ += cost;
  return true;
}

bool OfiPeerLink::IsUrgent(const Outgoing& outgoing) {
  const OfiRecord* const record = std::get_if<OfiRecord>(&outgoing);
  return record == nullptr || !std::holds_alternative<OfiDone>(*record);
}

void OfiPeerLink::QueueEager(uint64_t tag, absl::Span<const std::byte> bytes, uint64_t token) {
  queue_.emplace_back(Eager{tag, bytes, token});
  ++queued_messages_;
  ++queued_urgent_;
}

void OfiPeerLink::QueueRecord(const OfiRecord& record) {
  queue_.emplace_back(record);
  if (IsUrgent(queue_.back())) ++queued_urgent_;
}

absl::StatusOr<bool> OfiPeerLink::SendPacket(OfiPacketKind kind, uint64_t argument,
                                             size_t payload_bytes,
                                             absl::FunctionRef<void(std::byte*)> fill,
                                             OfiRail& rail, OfiPacketBuffers& buffers) {
  OfiPacketHeader header;
  header.kind = kind;
  header.rank = static_cast<uint16_t>(self_);
  header.cookie = theirs_.cookie;
  header.sequence = sent_;
  header.returned = returned_;
  header.consumed = consumed_;
  header.argument = argument;
  const size_t size = kOfiHeaderBytes + payload_bytes;
  bool sent = false;
  if (size <= std::min(rail.inject_bytes(), kMaxInject)) {
    std::byte packet[kMaxInject];
    EncodeOfiHeader(header, packet);
    fill(packet + kOfiHeaderBytes);
    MUSTER_ASSIGN_OR_RETURN(sent, rail.Inject(address_, packet, size));
  } else {
    const int buffer = buffers.TakeSend();
    if (buffer < 0) return false;
    EncodeOfiHeader(header, buffers.SendBuffer(buffer));
    fill(buffers.SendBuffer(buffer) + kOfiHeaderBytes);
    MUSTER_ASSIGN_OR_RETURN(sent, buffers.Send(buffer, peer_, address_, size));
    if (!sent) buffers.FreeSend(static_cast<uint32_t>(buffer));
  }
  if (!sent) return false;
  ++sent_;
  told_returned_ = returned_;
  return true;
}

absl::StatusOr<size_t> OfiPeerLink::SendFront(OfiRail& rail, OfiPacketBuffers& buffers) {
  if (const auto* eager = std::get_if<Eager>(&queue_.front())) {
    const auto fill = [eager](std::byte* out) {
      if (!eager->bytes.empty()) std::memcpy(out, eager->bytes.data(), eager->bytes.size());
    };
    MUSTER_ASSIGN_OR_RETURN(const bool sent, SendPacket(OfiPacketKind::kEager, eager->tag,
                                                        eager->bytes.size(), fill, rail, buffers));
    return sent ? 1 : 0;
  }
  size_t count = 0;
  size_t bytes = 0;
  for (const Outgoing& outgoing : queue_) {
    const auto* record = std::get_if<OfiRecord>(&outgoing);
    if (record == nullptr) break;
    const size_t more = OfiRecordBytes(*record);
    if (kOfiHeaderBytes + bytes + more > theirs_.packet_bytes) break;
    bytes += more;
    ++count;
  }
  const auto fill = [this, count](std::byte* out) {
    for (size_t i = 0; i < count; ++i) out = EncodeOfiRecord(std::get<OfiRecord>(queue_[i]), out);
  };
  MUSTER_ASSIGN_OR_RETURN(const bool sent,
                          SendPacket(OfiPacketKind::kControl, 0, bytes, fill, rail, buffers));
  return sent ? count : 0;
}

absl::Status OfiPeerLink::Flush(OfiRail& rail, OfiPacketBuffers& buffers,
                                std::vector<uint64_t>* completed, bool* moved) {
  while (!queue_.empty() && credits() > kOfiReservedCredits) {
    MUSTER_ASSIGN_OR_RETURN(const size_t sent, SendFront(rail, buffers));
    if (sent == 0) return absl::OkStatus();
    *moved = true;
    for (size_t i = 0; i < sent; ++i) {
      if (const auto* eager = std::get_if<Eager>(&queue_.front())) {
        completed->push_back(eager->token);
        --queued_messages_;
      }
      if (IsUrgent(queue_.front())) --queued_urgent_;
      queue_.pop_front();
    }
  }
  if (owes_credits() && credits() > 0) {
    MUSTER_ASSIGN_OR_RETURN(const bool sent,
                            SendPacket(
                                OfiPacketKind::kControl, 0, 0, [](std::byte*) {}, rail, buffers));
    *moved = *moved || sent;
  }
  return absl::OkStatus();
}

absl::Status OfiPeerLink::Note(const OfiPacketHeader& header) {
  // Headers may come in any order: what they say only rises.
  const auto ahead = static_cast<int32_t>(header.returned - their_returned_);
  if (ahead > 0) {
    if (header.returned - their_returned_ > sent_ - their_returned_) {
      return absl::InvalidArgumentError(
          absl::StrCat("it returned ", header.returned, " packets of the ", sent_, " it was sent"));
    }
    their_returned_ = header.returned;
  }
  if (header.consumed > charged_) {
    return absl::InvalidArgumentError("it freed more of its budget than was taken");
  }
  their_consumed_ = std::max(their_consumed_, header.consumed);
  if (header.sequence - expected_ >= window_) {
    return absl::InvalidArgumentError(absl::StrCat("packet number ", header.sequence,
                                                   " where one of the ", window_, " from ",
                                                   expected_, " was expected"));
  }
  return absl::OkStatus();
}

std::optional<OfiReceivedPacket> OfiPeerLink::Order(const OfiReceivedPacket& packet) {
  if (packet.header.sequence == expected_) {
    ++expected_;
    return packet;
  }
  kept_.emplace(packet.header.sequence, packet);
  return std::nullopt;
}

std::optional<OfiReceivedPacket> OfiPeerLink::NextKept() {
  if (kept_.empty()) return std::nullopt;
  const auto found = kept_.find(expected_);
  if (found == kept_.end()) return std::nullopt;
  const OfiReceivedPacket packet = found->second;
  kept_.erase(found);
  ++expected_;
  return packet;
}

}  // namespace muster
