// Starts a gRPC server the way every Muster daemon does: one listener that nobody else can share,
// health service (per service and overall), reflection, keepalive and message limits. Thread-safe.
#ifndef MUSTER_PROTO_RPC_SERVER_H_
#define MUSTER_PROTO_RPC_SERVER_H_

#include <grpcpp/impl/service_type.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace muster {

// A service, and the name by which the health service knows it, for example "muster.v1.Fleet";
// without a name it is part of the whole only.
struct ServedService {
  ServedService(grpc::Service* service, std::string name = "")
      : service(service), name(std::move(name)) {}
  grpc::Service* service;  // must outlive the server
  std::string name;
};

struct ServerOptions {
  std::string listen_address;  // host:port; port 0 takes a free one
  std::vector<ServedService> services;
  // Calls at once per connection; more wait at the client.
  int max_concurrent_streams = 1024;
  // Threads for services with the synchronous API.
  int max_threads = 64;
  // Largest memory that gRPC takes for what it receives and sends; calls fail with
  // RESOURCE_EXHAUSTED beyond it. 0: no limit.
  int64_t memory_bytes = 0;
  // Moves large amounts of data (bulk.h).
  bool bulk = false;
  // What else the server is to have, where there is something.
  std::function<void(grpc::ServerBuilder&)> add;
};

struct RunningServer {
  std::unique_ptr<grpc::Server> server;
  int port = 0;
  std::string address;  // the listen address with the bound port
};

// INVALID_ARGUMENT for an address of another form, UNAVAILABLE if it cannot be listened on; both
// name the address. The health service answers SERVING for each service and for "" (overall).
absl::StatusOr<RunningServer> StartServer(const ServerOptions& options);

// Answers NOT_SERVING from now on, takes no more calls, ends those still under way after `grace`,
// and waits for all of them.
void ShutdownServer(grpc::Server& server, absl::Duration grace);

}  // namespace muster

#endif  // MUSTER_PROTO_RPC_SERVER_H_
