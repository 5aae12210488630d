// Between absl::Status and grpc::Status: the codes are the same by name and number.
#ifndef MUSTER_PROTO_RPC_STATUS_H_
#define MUSTER_PROTO_RPC_STATUS_H_

#include <grpcpp/support/status.h>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace muster {

// A message beyond 2 KiB is cut: it travels in a header, and headers are limited to 8 KiB.
grpc::Status ToGrpcStatus(const absl::Status& status);

// `peer` (for example "coordinator 127.0.0.1:7070") is put in front of the message.
absl::Status FromGrpcStatus(const grpc::Status& status, absl::string_view peer);

}  // namespace muster

#endif  // MUSTER_PROTO_RPC_STATUS_H_
