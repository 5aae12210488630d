// Sends gRPC's own log lines to a logger, so that a daemon's output stays one stream of lines in
// one format. gRPC's hook is global to the process: call from main, before any other use of gRPC.
#ifndef MUSTER_PROTO_RPC_GRPC_LOG_H_
#define MUSTER_PROTO_RPC_GRPC_LOG_H_

#include "base/log.h"

namespace muster {

// Lines appear at level debug: what an operator needs to know of a failure is in the status that
// the failed call returns. `logger` must live until the process ends.
void RouteGrpcLogTo(Logger& logger);

}  // namespace muster

#endif  // MUSTER_PROTO_RPC_GRPC_LOG_H_
