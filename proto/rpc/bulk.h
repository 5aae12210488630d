// Channels and servers that move large amounts of data in messages of megabytes.
#ifndef MUSTER_PROTO_RPC_BULK_H_
#define MUSTER_PROTO_RPC_BULK_H_

#include <grpcpp/server_builder.h>
#include <grpcpp/support/channel_arguments.h>

#include <cstdint>

namespace muster {

// Largest and usual bytes of payload in a message; the rest of kMaxMessageBytes is for its head.
inline constexpr int64_t kBulkChunkBytes = 2 << 20;

// Frames of HTTP/2 and reads of sockets as large as chunks, so that few system calls move a chunk.
// Each end says what it receives; so both ends set them.
void SetBulkArguments(grpc::ChannelArguments& arguments);
void SetBulkArguments(grpc::ServerBuilder& builder);

}  // namespace muster

#endif  // MUSTER_PROTO_RPC_BULK_H_
