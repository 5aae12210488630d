#include "server/rpc/operations_fetch.h"

#include <grpcpp/client_context.h>

#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "muster/v1/worker.grpc.pb.h"
#include "proto/rpc/channel.h"
#include "proto/rpc/status.h"

namespace muster {

absl::StatusOr<v1::WorkerOperations> FetchOperations(const Member& worker, const JobId& job,
                                                     const grpc::CallbackServerContext& context,
                                                     absl::Duration timeout) {
  const auto stub = v1::Inspection::NewStub(NewChannel(worker.rpc_address));
  const std::unique_ptr<grpc::ClientContext> call =
      grpc::ClientContext::FromCallbackServerContext(context);
  call->set_deadline(absl::ToChronoTime(absl::Now() + timeout));
  v1::ListOperationsRequest request;
  request.set_incarnation(worker.incarnation.value);
  request.set_job_id(job);
  v1::ListOperationsResponse response;
  const grpc::Status status = stub->ListOperations(call.get(), request, &response);
  if (status.ok()) return std::move(*response.mutable_operations());
  const std::string who = absl::StrCat("worker ", worker.name, " at ", worker.rpc_address);
  if (status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED) {
    return absl::DeadlineExceededError(
        absl::StrCat(who, " did not answer the coordinator within ", absl::FormatDuration(timeout),
                     "; it may be stopped, or its host or network is"));
  }
  if (status.error_code() == grpc::StatusCode::UNAVAILABLE) {
    return absl::UnavailableError(absl::StrCat(who, " cannot be reached by the coordinator (",
                                               status.error_message(), "); has it died?"));
  }
  return FromGrpcStatus(status, who);
}

}  // namespace muster
