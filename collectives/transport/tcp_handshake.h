// The handshake of a data-plane connection, as bytes. Pure functions, thread-safe; decoding takes
// anything the network may deliver.
//
// The dialer sends a hello of kHelloBytes; the other side answers kAnswerBytes and, with a refusal,
// up to kMaxRefusalText bytes of text. Integers are little-endian. Hello and answer of every
// version start with magic and version, and have these sizes.
#ifndef MUSTER_COLLECTIVES_TRANSPORT_TCP_HANDSHAKE_H_
#define MUSTER_COLLECTIVES_TRANSPORT_TCP_HANDSHAKE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/ids.h"

namespace muster {

inline constexpr uint32_t kTcpProtocolVersion = 1;
inline constexpr int kHelloBytes = 80;
inline constexpr int kAnswerBytes = 40;
inline constexpr int kMaxRefusalText = 512;
inline constexpr int kMaxChannels = 64;  // data channels per pair
inline constexpr int kMaxTcpWorldSize = 4096;

// What the dialer says of itself and of whom it means to reach.
struct TcpHello {
  uint64_t token_hash = 0;
  Epoch epoch = 0;
  Incarnation from;
  Incarnation to;
  Rank from_rank = -1;
  Rank to_rank = -1;
  int32_t world_size = 0;
  uint16_t channel = 0;   // 0 is the control connection, 1 .. channels are data
  uint16_t channels = 0;  // data connections per pair
  bool operator==(const TcpHello&) const = default;
};

// Numeric values are wire format: never renumber.
enum class TcpVerdict : uint32_t {
  kWelcome = 0,
  kVersion = 1,
  kToken = 2,
  kStaleEpoch = 3,
  kIncarnation = 4,
  kShape = 5,  // ranks, world size or channels differ
  kBusy = 6,   // too many connections waiting
  kDuplicate = 7,
};

struct TcpAnswer {
  TcpVerdict verdict = TcpVerdict::kWelcome;
  uint32_t version = kTcpProtocolVersion;
  Epoch epoch = 0;          // of the answering side
  Incarnation incarnation;  // of the answering side
  uint32_t text_bytes = 0;  // that follow; 0 with a welcome
};

std::array<std::byte, kHelloBytes> EncodeHello(const TcpHello& hello);

// INVALID_ARGUMENT: not a hello at all. FAILED_PRECONDITION: one of another protocol version.
absl::StatusOr<TcpHello> DecodeHello(absl::Span<const std::byte> bytes);

// The answer followed by `text`, cut to kMaxRefusalText.
std::string EncodeAnswer(TcpAnswer answer, absl::string_view text);
absl::StatusOr<TcpAnswer> DecodeAnswer(absl::Span<const std::byte> bytes);

// A process's part in a mesh, against which hellos are checked.
struct TcpExpectation {
  uint64_t token_hash = 0;
  Epoch epoch = 0;
  Rank rank = 0;
  uint16_t channels = 0;
  absl::Span<const Incarnation> incarnations;  // of all ranks
  bool both_dial = false;                      // else of each pair only the higher rank
};

// kWelcome, or why not, with a text in *why. The hello's token and epoch are those expected.
TcpVerdict JudgeHello(const TcpHello& hello, const TcpExpectation& expected, std::string* why);

}  // namespace muster

#endif  // MUSTER_COLLECTIVES_TRANSPORT_TCP_HANDSHAKE_H_
