// The server's ends of Snapshot and Restore. A snapshot is sent from a copy, which is taken from
// the server's account; if that has no room, piece by piece from the table, and is ABORTED if this
// changes meanwhile. gRPC owns the results until OnDone. Thread-safe.
#ifndef MUSTER_SERVER_PARAMETER_SERVER_RPC_SNAPSHOT_REACTORS_H_
#define MUSTER_SERVER_PARAMETER_SERVER_RPC_SNAPSHOT_REACTORS_H_

#include <grpcpp/server_context.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include "server/parameter_server/rpc/server_parts.h"

namespace muster {

// `request` is a v1::SnapshotRequest.
grpc::ServerWriteReactor<grpc::ByteBuffer>* NewSnapshotReactor(const ServerParts& parts,
                                                               grpc::CallbackServerContext* context,
                                                               const grpc::ByteBuffer* request);

// `response` becomes a v1::RestoreResponse.
grpc::ServerReadReactor<grpc::ByteBuffer>* NewRestoreReactor(const ServerParts& parts,
                                                             grpc::CallbackServerContext* context,
                                                             grpc::ByteBuffer* response);

}  // namespace muster

#endif  // MUSTER_SERVER_PARAMETER_SERVER_RPC_SNAPSHOT_REACTORS_H_
