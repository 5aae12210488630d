// Messages that carry a large payload, on the wire as protobuf encodes them, without a copy of the
// payload on either side.
//
// Such a message has `bytes data = 15` for its payload; all its other fields are its *head*. The
// encoder puts slices of the owner's memory behind the encoded head; the decoder parses the head
// and leaves the payload in the slices that arrived. So clients in any language can use their
// generated code for the same calls.
//
// Pure functions and values; thread-compatible.
#ifndef MUSTER_PROTO_RPC_PAYLOAD_FRAME_H_
#define MUSTER_PROTO_RPC_PAYLOAD_FRAME_H_

#include <google/protobuf/message_lite.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/slice.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"

namespace muster {

// The number of the payload's field in every such message.
inline constexpr int kPayloadField = 15;

// Bytes in the pieces in which they arrived, read front to back.
class Payload {
 public:
  Payload() = default;
  explicit Payload(std::vector<grpc::Slice> pieces);

  // Bytes not yet read.
  int64_t size() const { return size_; }
  // The bytes not yet read, where they lie, for as long as the object lives.
  std::vector<absl::Span<const std::byte>> Pieces() const;
  // Copies the next bytes to `to`. Requires: at most size() of them.
  void Read(absl::Span<std::byte> to);

 private:
  std::vector<grpc::Slice> pieces_;
  size_t piece_ = 0;   // the first one that is not read through
  size_t offset_ = 0;  // read of that
  int64_t size_ = 0;
};

// A slice over `memory`, which `owner` keeps alive and unchanged until gRPC has let go of it.
grpc::Slice SliceOver(absl::Span<const std::byte> memory, std::shared_ptr<const void> owner);

// `head` must have no payload of its own.
grpc::ByteBuffer EncodeFrame(const google::protobuf::MessageLite& head,
                             absl::Span<const grpc::Slice> payload);

// Sets `head` to all fields but the payload. INVALID_ARGUMENT: `bytes` are no such message, or have
// a payload twice.
absl::Status DecodeFrame(const grpc::ByteBuffer& bytes, google::protobuf::MessageLite* head,
                         Payload* payload);

}  // namespace muster

#endif  // MUSTER_PROTO_RPC_PAYLOAD_FRAME_H_
