// The bound of what gRPC can do here: a stream of bytes sent to a server that sends each message
// back as it came, over the same channel and server arguments, chunks and allocator settings as the
// parameter server. Slices over user memory, callback API.
#ifndef MUSTER_BENCH_PARAMETER_SERVER_ECHO_H_
#define MUSTER_BENCH_PARAMETER_SERVER_ECHO_H_

#include <cstddef>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/types/span.h"

namespace grpc {
class Channel;
class Server;
}  // namespace grpc

namespace muster::bench {

class EchoServer {
 public:
  EchoServer();  // on a free port of loopback
  ~EchoServer();
  int port() const { return port_; }

 private:
  class Service;
  const std::unique_ptr<Service> service_;
  std::unique_ptr<grpc::Server> server_;
  int port_ = 0;
};

enum class EchoMode {
  kEcho,        // every byte there and back
  kOneWay,      // there only; the server drops it
  kIntoMemory,  // as kEcho, and what comes back is copied to `to`
};

// Sends `from` in chunks over one stream and waits for its end. INTERNAL if other bytes come back
// than went (by number).
absl::Status RunEcho(const std::shared_ptr<grpc::Channel>& channel, EchoMode mode,
                     absl::Span<const std::byte> from, absl::Span<std::byte> to,
                     size_t chunk_bytes);

}  // namespace muster::bench

#endif  // MUSTER_BENCH_PARAMETER_SERVER_ECHO_H_
