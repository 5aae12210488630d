// What travels on a formed mesh's connections, as bytes. Pure functions, thread-safe.
//
// Data connection: frames of a kDataHeaderBytes header, the message, and zeros up to a multiple of
// kFrameAlignment (so that elements lie aligned in receive buffers).
// Control connection: frames of kControlHeaderBytes and up to kMaxControlText bytes of text.
// Integers are little-endian.
#ifndef MUSTER_COLLECTIVES_TRANSPORT_TCP_FRAME_H_
#define MUSTER_COLLECTIVES_TRANSPORT_TCP_FRAME_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/ids.h"

namespace muster {

inline constexpr int kDataHeaderBytes = 24;
inline constexpr int kFrameAlignment = 8;
inline constexpr int kControlHeaderBytes = 16;
inline constexpr int kMaxControlText = 1024;

struct TcpDataHeader {
  uint64_t tag = 0;
  int64_t length = 0;  // 0 .. kMaxMessageBytes
  bool operator==(const TcpDataHeader&) const = default;
};

std::array<std::byte, kDataHeaderBytes> EncodeDataHeader(const TcpDataHeader& header);
// INVALID_ARGUMENT for what is no header. Requires: kDataHeaderBytes bytes.
absl::StatusOr<TcpDataHeader> DecodeDataHeader(absl::Span<const std::byte> bytes);

// Zero bytes after a message of that length.
inline int PaddingOf(int64_t length) {
  return static_cast<int>((kFrameAlignment - length % kFrameAlignment) % kFrameAlignment);
}

struct TcpControlFrame {
  enum class Kind : uint8_t { kGoodbye = 1, kAbort = 2 };
  Kind kind = Kind::kGoodbye;
  absl::StatusCode code = absl::StatusCode::kOk;  // kAbort
  std::optional<Rank> culprit;                    // kAbort
  std::string text;                               // kAbort; cut to kMaxControlText
};

std::string EncodeControlFrame(const TcpControlFrame& frame);
// Takes one frame off the front of *bytes; nullopt while it is incomplete. INVALID_ARGUMENT for
// what is no frame.
absl::StatusOr<std::optional<TcpControlFrame>> TakeControlFrame(std::string* bytes);

}  // namespace muster

#endif  // MUSTER_COLLECTIVES_TRANSPORT_TCP_FRAME_H_
