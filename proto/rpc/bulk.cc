#include "proto/rpc/bulk.h"

#include <grpc/grpc.h>

namespace muster {
namespace {

template <typename Set>
void SetAll(const Set& set) {
  set(GRPC_ARG_HTTP2_MAX_FRAME_SIZE, 4 << 20);
  set(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, 8 << 20);
  set(GRPC_ARG_TCP_READ_CHUNK_SIZE, 1 << 20);
  set(GRPC_ARG_TCP_MIN_READ_CHUNK_SIZE, 256 << 10);
  set(GRPC_ARG_TCP_MAX_READ_CHUNK_SIZE, 4 << 20);
}

}  // namespace

void SetBulkArguments(grpc::ChannelArguments& arguments) {
  SetAll([&](const char* name, int value) { arguments.SetInt(name, value); });
}

void SetBulkArguments(grpc::ServerBuilder& builder) {
  SetAll([&](const char* name, int value) { builder.AddChannelArgument(name, value); });
}

}  // namespace muster
