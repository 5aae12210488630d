// Starts a gRPC server the way every Muster daemon does: one listener that nobody else can share,
// health service (per service and overall), reflection, keepalive and message limits. Thread-safe.
#ifndef MUSTER_PROTO_RPC_SERVER_H_
#define MUSTER_PROTO_RPC_SERVER_H_

#include <grpcpp/impl/service_type.h>
#include <grpcpp/server.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace muster {

struct ServerOptions {
  std::string listen_address;  // host:port; port 0 takes a free one
  std::vector<grpc::Service*> services;  // must outlive the server
  // Calls at once per connection; more wait at the client.
  int max_concurrent_streams = 1024;
  // Threads for services with the synchronous API.
  int max_threads = 64;
};

struct RunningServer {
  std::unique_ptr<grpc::Server> server;
  int port = 0;
  std::string address;  // the listen address with the bound port
};

// INVALID_ARGUMENT for an address of another form, UNAVAILABLE if it cannot be listened on; both
// name the address. The health service answers SERVING for each service and for "" (overall), and
// NOT_SERVING from Shutdown() on.
absl::StatusOr<RunningServer> StartServer(const ServerOptions& options);

}  // namespace muster

#endif  // MUSTER_PROTO_RPC_SERVER_H_
