#include "collectives/transport/ofi/ofi_packet.h"

#include "absl/strings/str_cat.h"
#include "collectives/transport/transport.h"
#include "collectives/transport/wire.h"

namespace muster {

void EncodeOfiHeader(const OfiPacketHeader& header, std::byte* out) {
  out = PutInteger(out, static_cast<uint16_t>(header.kind));
  out = PutInteger(out, header.rank);
  out = PutInteger(out, header.cookie);
  out = PutInteger(out, header.sequence);
  out = PutInteger(out, header.returned);
  out = PutInteger(out, header.consumed);
  PutInteger(out, header.argument);
}

void EncodeOfiRequest(const OfiRequest& request, std::byte* out) {
  out = PutInteger(out, request.length);
  out = PutInteger(out, request.send_id);
  PutInteger(out, uint32_t{0});
}

void EncodeOfiGrant(const OfiGrant& grant, std::byte* out) {
  out = PutInteger(out, grant.slot);
  out = PutInteger(out, grant.rail);
  out = PutInteger(out, grant.offset);
  out = PutInteger(out, grant.length);
  out = PutInteger(out, grant.address);
  PutInteger(out, grant.key);
}

absl::StatusOr<OfiPacketHeader> DecodeOfiHeader(absl::Span<const std::byte> packet) {
  if (packet.size() < kOfiHeaderBytes) {
    return absl::InvalidArgumentError(absl::StrCat("a packet of ", packet.size(), " bytes"));
  }
  OfiPacketHeader header;
  uint16_t kind = 0;
  const std::byte* in = GetInteger(packet.data(), &kind);
  in = GetInteger(in, &header.rank);
  in = GetInteger(in, &header.cookie);
  in = GetInteger(in, &header.sequence);
  in = GetInteger(in, &header.returned);
  in = GetInteger(in, &header.consumed);
  GetInteger(in, &header.argument);
  if (kind < static_cast<uint16_t>(OfiPacketKind::kEager) ||
      kind > static_cast<uint16_t>(OfiPacketKind::kCredit)) {
    return absl::InvalidArgumentError(absl::StrCat("a packet of unknown kind ", kind));
  }
  header.kind = static_cast<OfiPacketKind>(kind);
  return header;
}

absl::StatusOr<OfiRequest> DecodeOfiRequest(absl::Span<const std::byte> payload) {
  if (payload.size() != kOfiRequestBytes) {
    return absl::InvalidArgumentError(absl::StrCat("a request of ", payload.size(), " bytes"));
  }
  OfiRequest request;
  GetInteger(GetInteger(payload.data(), &request.length), &request.send_id);
  if (request.length < 0 || request.length > kMaxMessageBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("a message of ", request.length, " bytes; the limit is ", kMaxMessageBytes));
  }
  return request;
}

absl::StatusOr<OfiGrant> DecodeOfiGrant(absl::Span<const std::byte> payload) {
  if (payload.size() != kOfiGrantBytes) {
    return absl::InvalidArgumentError(absl::StrCat("a grant of ", payload.size(), " bytes"));
  }
  OfiGrant grant;
  const std::byte* in = GetInteger(payload.data(), &grant.slot);
  in = GetInteger(in, &grant.rail);
  in = GetInteger(in, &grant.offset);
  in = GetInteger(in, &grant.length);
  in = GetInteger(in, &grant.address);
  GetInteger(in, &grant.key);
  return grant;
}

}  // namespace muster
