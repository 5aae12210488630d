// The packets of a libfabric mesh, as bytes. Pure functions, thread-safe; decoding takes anything
// the network may deliver.
//
// A packet is a header of kOfiHeaderBytes and a payload. Integers are little-endian. Payload:
//   eager    a whole small message; argument: its tag
//   request  a large one waits to be fetched; argument: its tag
//   grant    memory that a piece of it may be written to; argument: the sender's number for it
//   done     all of it has arrived; argument: the sender's number for it
//   written  a piece has been written (only where writes carry no immediate data); argument: slot
//   credit   nothing; for its header
#ifndef MUSTER_COLLECTIVES_TRANSPORT_OFI_OFI_PACKET_H_
#define MUSTER_COLLECTIVES_TRANSPORT_OFI_OFI_PACKET_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace muster {

inline constexpr size_t kOfiHeaderBytes = 32;  // keeps payloads aligned for every element type
inline constexpr size_t kOfiRequestBytes = 16;
inline constexpr size_t kOfiGrantBytes = 40;

// Numeric values are wire format: never renumber.
enum class OfiPacketKind : uint16_t {
  kEager = 1,
  kRequest = 2,
  kGrant = 3,
  kDone = 4,
  kWritten = 5,
  kCredit = 6,
};

struct OfiPacketHeader {
  OfiPacketKind kind = OfiPacketKind::kCredit;
  uint16_t rank = 0;      // of the sender
  uint32_t cookie = 0;    // that the receiver gave out for this mesh: fences off older ones
  uint32_t sequence = 0;  // of the packets from this sender to this receiver
  uint32_t returned = 0;  // packets of the receiver that the sender has processed, ever
  uint64_t consumed = 0;  // eager budget of the receiver that is free again, ever
  uint64_t argument = 0;
  bool operator==(const OfiPacketHeader&) const = default;
};

struct OfiRequest {
  int64_t length = 0;
  uint32_t send_id = 0;
  bool operator==(const OfiRequest&) const = default;
};

// Leave to write bytes [offset, offset + length) of a message to `address` of the rail.
struct OfiGrant {
  uint32_t slot = 0;  // comes back as immediate data, or in a `written` packet
  uint32_t rail = 0;
  int64_t offset = 0;
  int64_t length = 0;
  uint64_t address = 0;
  uint64_t key = 0;
  bool operator==(const OfiGrant&) const = default;
};

// Requires: room for kOfiHeaderBytes, kOfiRequestBytes, kOfiGrantBytes.
void EncodeOfiHeader(const OfiPacketHeader& header, std::byte* out);
void EncodeOfiRequest(const OfiRequest& request, std::byte* out);
void EncodeOfiGrant(const OfiGrant& grant, std::byte* out);

// INVALID_ARGUMENT for what is none.
absl::StatusOr<OfiPacketHeader> DecodeOfiHeader(absl::Span<const std::byte> packet);
absl::StatusOr<OfiRequest> DecodeOfiRequest(absl::Span<const std::byte> payload);
absl::StatusOr<OfiGrant> DecodeOfiGrant(absl::Span<const std::byte> payload);

}  // namespace muster

#endif  // MUSTER_COLLECTIVES_TRANSPORT_OFI_OFI_PACKET_H_
