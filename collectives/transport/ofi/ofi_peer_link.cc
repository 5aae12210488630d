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

void OfiPeerLink::QueueEager(uint64_t tag, absl::Span<const std::byte> bytes, uint64_t token) {
  Outgoing& outgoing = queue_.emplace_back();
  outgoing.kind = OfiPacketKind::kEager;
  outgoing.argument = tag;
  outgoing.eager = bytes;
  outgoing.token = token;
  ++queued_messages_;
}

void OfiPeerLink::QueueControl(OfiPacketKind kind, uint64_t argument,
                               absl::Span<const std::byte> payload) {
  MUSTER_CHECK_LE(payload.size(), kOfiGrantBytes);
  Outgoing& outgoing = queue_.emplace_back();
  outgoing.kind = kind;
  outgoing.argument = argument;
  std::copy(payload.begin(), payload.end(), outgoing.control.begin());
  outgoing.control_bytes = payload.size();
}

absl::StatusOr<bool> OfiPeerLink::Send(const Outgoing& outgoing, OfiRail& rail,
                                       OfiPacketBuffers& buffers) {
  OfiPacketHeader header;
  header.kind = outgoing.kind;
  header.rank = static_cast<uint16_t>(self_);
  header.cookie = theirs_.cookie;
  header.sequence = sent_;
  header.returned = returned_;
  header.consumed = consumed_;
  header.argument = outgoing.argument;
  const absl::Span<const std::byte> payload =
      outgoing.kind == OfiPacketKind::kEager
          ? outgoing.eager
          : absl::MakeConstSpan(outgoing.control.data(), outgoing.control_bytes);
  const size_t size = kOfiHeaderBytes + payload.size();
  const auto fill = [&](std::byte* out) {
    EncodeOfiHeader(header, out);
    if (!payload.empty()) std::memcpy(out + kOfiHeaderBytes, payload.data(), payload.size());
  };
  bool sent = false;
  if (size <= std::min(rail.inject_bytes(), kMaxInject)) {
    std::byte packet[kMaxInject];
    fill(packet);
    MUSTER_ASSIGN_OR_RETURN(sent, rail.Inject(address_, packet, size));
  } else {
    const int buffer = buffers.TakeSend();
    if (buffer < 0) return false;
    fill(buffers.SendBuffer(buffer));
    MUSTER_ASSIGN_OR_RETURN(sent, buffers.Send(buffer, peer_, address_, size));
    if (!sent) buffers.FreeSend(static_cast<uint32_t>(buffer));
  }
  if (!sent) return false;
  ++sent_;
  told_returned_ = returned_;
  return true;
}

absl::Status OfiPeerLink::Flush(OfiRail& rail, OfiPacketBuffers& buffers,
                                std::vector<uint64_t>* completed, bool* moved) {
  while (!queue_.empty() && credits() > kOfiReservedCredits) {
    const Outgoing& outgoing = queue_.front();
    MUSTER_ASSIGN_OR_RETURN(const bool sent, Send(outgoing, rail, buffers));
    if (!sent) return absl::OkStatus();
    *moved = true;
    if (outgoing.kind == OfiPacketKind::kEager) {
      completed->push_back(outgoing.token);
      --queued_messages_;
    }
    queue_.pop_front();
  }
  if (owes_credits() && credits() > 0) {
    Outgoing credit;
    credit.kind = OfiPacketKind::kCredit;
    MUSTER_ASSIGN_OR_RETURN(const bool sent, Send(credit, rail, buffers));
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
