// The packets of a libfabric mesh, as bytes. Pure functions, thread-safe; decoding takes anything
// the network may deliver.
//
// A packet is a header of kOfiHeaderBytes and a payload, which is
//   eager    a whole small message; argument: its tag
//   control  any number of records, one after the other
// Integers are little-endian; records are multiples of 8 bytes.
#ifndef MUSTER_COLLECTIVES_TRANSPORT_OFI_OFI_PACKET_H_
#define MUSTER_COLLECTIVES_TRANSPORT_OFI_OFI_PACKET_H_

#include <cstddef>
#include <cstdint>
#include <variant>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace muster {

inline constexpr size_t kOfiHeaderBytes = 32;  // keeps payloads aligned for every element type
inline constexpr size_t kOfiMaxRecordBytes = 64;

// Numeric values are wire format: never renumber.
enum class OfiPacketKind : uint16_t {
  kEager = 1,
  kControl = 2,
};

struct OfiPacketHeader {
  OfiPacketKind kind = OfiPacketKind::kControl;
  uint16_t rank = 0;      // of the sender
  uint32_t cookie = 0;    // that the receiver gave out for this mesh: fences off older ones
  uint32_t sequence = 0;  // of the packets from this sender to this receiver
  uint32_t returned = 0;  // packets of the receiver that the sender has processed, ever
  uint64_t consumed = 0;  // eager budget of the receiver that is free again, ever
  uint64_t argument = 0;
  bool operator==(const OfiPacketHeader&) const = default;
};

// A large message waits for leave to be written.
struct OfiRequest {
  uint64_t tag = 0;
  int64_t length = 0;
  bool operator==(const OfiRequest&) const = default;
};

// Leave to write bytes [offset, offset + length) of the message of that tag to `address` of the
// rail.
struct OfiGrant {
  uint64_t tag = 0;
  int64_t message_length = 0;
  uint32_t slot = 0;  // comes back as immediate data, or in a `written` record
  uint32_t rail = 0;
  int64_t offset = 0;
  int64_t length = 0;
  uint64_t address = 0;
  uint64_t key = 0;
  bool operator==(const OfiGrant&) const = default;
};

// All of the message has arrived.
struct OfiDone {
  uint64_t tag = 0;
  bool operator==(const OfiDone&) const = default;
};

// A piece has been written; only where writes carry no immediate data.
struct OfiWritten {
  uint32_t immediate = 0;
  bool operator==(const OfiWritten&) const = default;
};

using OfiRecord = std::variant<OfiRequest, OfiGrant, OfiDone, OfiWritten>;

// What a write tells its target in 4 bytes: the slot of its grant (below kOfiSlots), and whether
// the message was requested, too. The request may come later than the write.
inline constexpr uint32_t kOfiSlots = uint32_t{1} << 31;
inline constexpr uint32_t OfiImmediate(uint32_t slot, bool requested) {
  return slot | (requested ? kOfiSlots : 0);
}
inline constexpr uint32_t SlotOfImmediate(uint32_t immediate) { return immediate % kOfiSlots; }
inline constexpr bool IsOfRequested(uint32_t immediate) { return immediate >= kOfiSlots; }

// Requires: room for kOfiHeaderBytes.
void EncodeOfiHeader(const OfiPacketHeader& header, std::byte* out);
// INVALID_ARGUMENT for what is none.
absl::StatusOr<OfiPacketHeader> DecodeOfiHeader(absl::Span<const std::byte> packet);

size_t OfiRecordBytes(const OfiRecord& record);
// Returns the end of what it wrote. Requires: room for OfiRecordBytes.
std::byte* EncodeOfiRecord(const OfiRecord& record, std::byte* out);
// Takes one off the front. INVALID_ARGUMENT for what is none. Of a grant, the piece lies within the
// message.
absl::StatusOr<OfiRecord> TakeOfiRecord(absl::Span<const std::byte>* payload);

}  // namespace muster

#endif  // MUSTER_COLLECTIVES_TRANSPORT_OFI_OFI_PACKET_H_
