// What a mesh's gRPC calls look like on the wire, beside the stream of frames that they carry.
//
// Each rank dials every other and sends to it in calls of its own, one per channel:
//
//   - initial metadata: the dialer's hello, the listener's answer (tcp_handshake.h), in binary;
//   - messages of up to kChunkBytes: the frames (frame_reader.h), cut anywhere; the listener sends
//     none. An empty message says goodbye: nothing follows;
//   - the listener's status. OK: it has left in good order, or has read a goodbye. With details
//     (tcp_frame.h's control frame): it aborted. Before the welcome: why the hello was refused.
//
// Pure functions, thread-safe.
#ifndef MUSTER_COLLECTIVES_TRANSPORT_GRPC_GRPC_WIRE_H_
#define MUSTER_COLLECTIVES_TRANSPORT_GRPC_GRPC_WIRE_H_

#include <grpcpp/support/status.h>

#include <cstddef>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/ids.h"

namespace muster {

inline constexpr char kMeshMethod[] = "/muster.v1.Mesh/Carry";
inline constexpr char kHelloKey[] = "muster-hello-bin";
inline constexpr char kAnswerKey[] = "muster-answer-bin";
// Below what any server accepts by default (4 MiB), headers of frames included.
inline constexpr int kChunkBytes = 1 << 20;

// The final status of calls to a rank that closes for `reason`; OK says goodbye.
grpc::Status CloseStatus(const absl::Status& reason, std::optional<Rank> culprit);

// The reason of a CloseStatus of rank `from` that is not OK, with its culprit. nullopt: the status
// is none; the call broke.
std::optional<absl::Status> AbortIn(const grpc::Status& status, Rank from);

// Codes are the same by name and number.
absl::Status FromGrpc(const grpc::Status& status);

inline absl::Span<const std::byte> BytesOf(absl::string_view text) {
  return absl::MakeConstSpan(reinterpret_cast<const std::byte*>(text.data()), text.size());
}

}  // namespace muster

#endif  // MUSTER_COLLECTIVES_TRANSPORT_GRPC_GRPC_WIRE_H_
