#include "collectives/transport/grpc/grpc_listener.h"

#include <grpc/grpc.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "collectives/transport/grpc/grpc_rendezvous.h"
#include "collectives/transport/grpc/grpc_wire.h"

namespace muster {

GrpcListener::GrpcListener(const GrpcListenerOptions& options)
    : rendezvous_(std::make_unique<GrpcRendezvous>(options)) {}

GrpcListener::~GrpcListener() {
  if (server_ == nullptr) return;
  server_->Shutdown(absl::ToChronoTime(absl::Now()));
  server_->Wait();
}

absl::StatusOr<std::unique_ptr<GrpcListener>> GrpcListener::Serve(
    const std::string& listen_address, const GrpcListenerOptions& options) {
  auto listener = std::make_unique<GrpcListener>(options);
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort(listen_address, grpc::InsecureServerCredentials(), &port);
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  listener->AddTo(builder);
  listener->server_ = builder.BuildAndStart();
  if (listener->server_ == nullptr || port == 0) {
    return absl::UnavailableError(absl::StrCat("cannot listen on ", listen_address,
                                               ": is it an address of this machine, and free?"));
  }
  listener->address_ = absl::StrCat(listen_address.substr(0, listen_address.rfind(':')), ":", port);
  return listener;
}

void GrpcListener::AddTo(grpc::ServerBuilder& builder) {
  builder.RegisterCallbackGenericService(rendezvous_.get());
  // What a sender may have on its way that nobody has asked for: fixed, so that memory is bounded.
  builder.AddChannelArgument(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, 4 * kChunkBytes);
  // Few frames and few system calls for a chunk.
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_FRAME_SIZE, kChunkBytes);
  builder.AddChannelArgument(GRPC_ARG_TCP_READ_CHUNK_SIZE, kChunkBytes);
  builder.AddChannelArgument(GRPC_ARG_TCP_MIN_READ_CHUNK_SIZE, kChunkBytes / 4);
  builder.AddChannelArgument(GRPC_ARG_TCP_MAX_READ_CHUNK_SIZE, kChunkBytes);
}

void GrpcListener::CancelThrough(Epoch epoch) { rendezvous_->CancelThrough(epoch); }

}  // namespace muster
