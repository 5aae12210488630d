#include "collectives/transport/ofi/ofi_packet.h"

#include <iterator>

#include "absl/strings/str_cat.h"
#include "collectives/transport/transport.h"
#include "collectives/transport/wire.h"

namespace muster {
namespace {

// By the index of the record's alternative. A record begins with that index and 4 bytes of its own.
constexpr size_t kRecordBytes[] = {24, 64, 16, 8};
static_assert(std::size(kRecordBytes) == std::variant_size_v<OfiRecord>);

void EncodeFields(const OfiRequest& request, std::byte* out) {
  out = PutInteger(out, uint32_t{0});
  out = PutInteger(out, request.tag);
  PutInteger(out, request.length);
}

void EncodeFields(const OfiGrant& grant, std::byte* out) {
  out = PutInteger(out, grant.rail);
  out = PutInteger(out, grant.tag);
  out = PutInteger(out, grant.message_length);
  out = PutInteger(out, uint64_t{grant.slot});
  out = PutInteger(out, grant.offset);
  out = PutInteger(out, grant.length);
  out = PutInteger(out, grant.address);
  PutInteger(out, grant.key);
}

void EncodeFields(const OfiDone& done, std::byte* out) {
  PutInteger(PutInteger(out, uint32_t{0}), done.tag);
}

void EncodeFields(const OfiWritten& written, std::byte* out) { PutInteger(out, written.immediate); }

absl::StatusOr<OfiRecord> DecodeRequest(const std::byte* in) {
  OfiRequest request;
  GetInteger(GetInteger(in + sizeof(uint32_t), &request.tag), &request.length);
  if (request.length < 0 || request.length > kMaxMessageBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("a message of ", request.length, " bytes; the limit is ", kMaxMessageBytes));
  }
  return request;
}

absl::StatusOr<OfiRecord> DecodeGrant(const std::byte* in) {
  OfiGrant grant;
  uint64_t slot = 0;
  in = GetInteger(in, &grant.rail);
  in = GetInteger(in, &grant.tag);
  in = GetInteger(in, &grant.message_length);
  in = GetInteger(in, &slot);
  in = GetInteger(in, &grant.offset);
  in = GetInteger(in, &grant.length);
  in = GetInteger(in, &grant.address);
  GetInteger(in, &grant.key);
  if (slot >= kOfiSlots || grant.message_length < 0 || grant.message_length > kMaxMessageBytes ||
      grant.length <= 0 || grant.length > grant.message_length || grant.offset < 0 ||
      grant.offset > grant.message_length - grant.length) {
    return absl::InvalidArgumentError(absl::StrCat("leave to write ", grant.length, " bytes at ",
                                                   grant.offset, " of a message ", "of ",
                                                   grant.message_length, " to slot ", slot));
  }
  grant.slot = static_cast<uint32_t>(slot);
  return grant;
}

}  // namespace

void EncodeOfiHeader(const OfiPacketHeader& header, std::byte* out) {
  out = PutInteger(out, static_cast<uint16_t>(header.kind));
  out = PutInteger(out, header.rank);
  out = PutInteger(out, header.cookie);
  out = PutInteger(out, header.sequence);
  out = PutInteger(out, header.returned);
  out = PutInteger(out, header.consumed);
  PutInteger(out, header.argument);
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
  header.kind = static_cast<OfiPacketKind>(kind);
  if (header.kind != OfiPacketKind::kEager && header.kind != OfiPacketKind::kControl) {
    return absl::InvalidArgumentError(absl::StrCat("a packet of unknown kind ", kind));
  }
  return header;
}

size_t OfiRecordBytes(const OfiRecord& record) { return kRecordBytes[record.index()]; }

std::byte* EncodeOfiRecord(const OfiRecord& record, std::byte* out) {
  std::byte* const fields = PutInteger(out, static_cast<uint32_t>(record.index()));
  std::visit([fields](const auto& alternative) { EncodeFields(alternative, fields); }, record);
  return out + OfiRecordBytes(record);
}

absl::StatusOr<OfiRecord> TakeOfiRecord(absl::Span<const std::byte>* payload) {
  uint32_t kind = 0;
  if (payload->size() >= sizeof(kind)) GetInteger(payload->data(), &kind);
  if (payload->size() < sizeof(kind) || kind >= std::size(kRecordBytes) ||
      payload->size() < kRecordBytes[kind]) {
    return absl::InvalidArgumentError(
        absl::StrCat("a record of kind ", kind, " in the last ", payload->size(), " bytes"));
  }
  const std::byte* const fields = payload->data() + sizeof(kind);
  payload->remove_prefix(kRecordBytes[kind]);
  switch (kind) {
    case 0:
      return DecodeRequest(fields);
    case 1:
      return DecodeGrant(fields);
    case 2: {
      OfiDone done;
      GetInteger(fields + sizeof(uint32_t), &done.tag);
      return done;
    }
    default: {
      OfiWritten written;
      GetInteger(fields, &written.immediate);
      return written;
    }
  }
}

}  // namespace muster
