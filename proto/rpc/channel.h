// Client channels, all made alike. Thread-safe.
#ifndef MUSTER_PROTO_RPC_CHANNEL_H_
#define MUSTER_PROTO_RPC_CHANNEL_H_

#include <grpcpp/channel.h>

#include <memory>
#include <string>

namespace muster {

// A channel to host:port with a connection of its own (never shared with another channel, so that
// its back-off is not shared either), keepalive on, and messages limited to kMaxMessageBytes.
// Connects on the first call. Proxies from the environment are not used.
std::shared_ptr<grpc::Channel> NewChannel(const std::string& address);

// The same for large amounts of data (bulk.h).
std::shared_ptr<grpc::Channel> NewBulkChannel(const std::string& address);

}  // namespace muster

#endif  // MUSTER_PROTO_RPC_CHANNEL_H_
