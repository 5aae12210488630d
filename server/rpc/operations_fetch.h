// Asks a worker for its operations on a client's behalf. Thread-safe.
#ifndef MUSTER_SERVER_RPC_OPERATIONS_FETCH_H_
#define MUSTER_SERVER_RPC_OPERATIONS_FETCH_H_

#include <grpcpp/server_context.h>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/control/messages.h"
#include "muster/v1/worker.pb.h"

namespace muster {

// Blocks for `timeout` at most, less if the call of `context` ends before. Errors name the worker
// and its address: UNAVAILABLE if it cannot be reached, DEADLINE_EXCEEDED if it does not answer,
// FAILED_PRECONDITION if it has no mesh of this job now.
absl::StatusOr<v1::WorkerOperations> FetchOperations(const Member& worker, const JobId& job,
                                                     const grpc::CallbackServerContext& context,
                                                     absl::Duration timeout);

}  // namespace muster

#endif  // MUSTER_SERVER_RPC_OPERATIONS_FETCH_H_
