#include "server/rpc/services.h"

#include <utility>

#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "proto/rpc/status.h"
#include "server/rpc/operations_fetch.h"
#include "server/rpc/watch_reactor.h"

namespace muster {
namespace {

// For a worker to say what it is doing. One is asked at a time.
constexpr absl::Duration kInspectionTimeout = absl::Seconds(3);

// Ends a call whose answer is one job.
template <typename Response>
void FinishWithJob(absl::StatusOr<v1::Job> job, Response* response,
                   grpc::ServerUnaryReactor* reactor) {
  if (job.ok()) *response->mutable_job() = *std::move(job);
  reactor->Finish(ToGrpcStatus(job.status()));
}

}  // namespace

FleetService::FleetService(std::shared_ptr<CoordinatorHost> host, const SessionLimits& limits,
                           int max_sessions)
    : host_(std::move(host)), limits_(limits), max_sessions_(max_sessions) {}

grpc::ServerBidiReactor<v1::SessionRequest, v1::SessionResponse>* FleetService::Session(
    grpc::CallbackServerContext* context) {
  if (sessions_->fetch_add(1) >= max_sessions_) {
    sessions_->fetch_sub(1);
    return SessionReactor::Refuse(
        host_, context,
        absl::ResourceExhaustedError(absl::StrFormat(
            "%d sessions are open, which is the coordinator's limit", max_sessions_)));
  }
  return SessionReactor::Create(host_, context, limits_,
                                [sessions = sessions_] { sessions->fetch_sub(1); });
}

CoordinatorService::CoordinatorService(std::shared_ptr<CoordinatorHost> host)
    : host_(std::move(host)),
      submissions_(kMaxQueuedSubmissions),
      inspections_(kMaxQueuedInspections) {}

grpc::ServerUnaryReactor* CoordinatorService::SubmitJob(grpc::CallbackServerContext* context,
                                                        const v1::SubmitJobRequest* request,
                                                        v1::SubmitJobResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  const bool taken = submissions_.Add([this, request, response, reactor] {
    FinishWithJob(host_->SubmitJob(*request), response, reactor);
  });
  if (!taken) {
    reactor->Finish(ToGrpcStatus(absl::ResourceExhaustedError(
        "too many submissions wait to be looked at; try again in a moment")));
  }
  return reactor;
}

grpc::ServerUnaryReactor* CoordinatorService::GetJob(grpc::CallbackServerContext* context,
                                                     const v1::GetJobRequest* request,
                                                     v1::GetJobResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  FinishWithJob(host_->GetJob(request->job_id()), response, reactor);
  return reactor;
}

grpc::ServerUnaryReactor* CoordinatorService::ListJobs(grpc::CallbackServerContext* context,
                                                       const v1::ListJobsRequest* request,
                                                       v1::ListJobsResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  absl::StatusOr<v1::ListJobsResponse> listed = host_->ListJobs(*request);
  if (listed.ok()) *response = *std::move(listed);
  reactor->Finish(ToGrpcStatus(listed.status()));
  return reactor;
}

grpc::ServerWriteReactor<v1::WatchJobResponse>* CoordinatorService::WatchJob(
    grpc::CallbackServerContext* context, const v1::WatchJobRequest* request) {
  return WatchReactor::Create(host_, request->job_id());
}

grpc::ServerUnaryReactor* CoordinatorService::SwitchJob(grpc::CallbackServerContext* context,
                                                        const v1::SwitchJobRequest* request,
                                                        v1::SwitchJobResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  absl::StatusOr<v1::SwitchJobResponse> switched = host_->SwitchJob(*request);
  if (switched.ok()) *response = *std::move(switched);
  reactor->Finish(ToGrpcStatus(switched.status()));
  return reactor;
}

grpc::ServerUnaryReactor* CoordinatorService::ExplainStrategy(
    grpc::CallbackServerContext* context, const v1::ExplainStrategyRequest* request,
    v1::ExplainStrategyResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  absl::StatusOr<v1::ExplainStrategyResponse> explained = host_->ExplainStrategy(request->job_id());
  if (explained.ok()) *response = *std::move(explained);
  reactor->Finish(ToGrpcStatus(explained.status()));
  return reactor;
}

grpc::ServerUnaryReactor* CoordinatorService::CancelJob(grpc::CallbackServerContext* context,
                                                        const v1::CancelJobRequest* request,
                                                        v1::CancelJobResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  absl::StatusOr<v1::CancelJobResponse> cancelled = host_->CancelJob(*request);
  if (cancelled.ok()) *response = *std::move(cancelled);
  reactor->Finish(ToGrpcStatus(cancelled.status()));
  return reactor;
}

grpc::ServerUnaryReactor* CoordinatorService::ListMembers(grpc::CallbackServerContext* context,
                                                          const v1::ListMembersRequest* request,
                                                          v1::ListMembersResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  *response = host_->ListMembers();
  reactor->Finish(grpc::Status::OK);
  return reactor;
}

grpc::ServerUnaryReactor* CoordinatorService::GetOperations(grpc::CallbackServerContext* context,
                                                            const v1::GetOperationsRequest* request,
                                                            v1::GetOperationsResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  const bool taken = inspections_.Add([this, context, request, response, reactor] {
    reactor->Finish(ToGrpcStatus(Inspect(*context, *request, response)));
  });
  if (!taken) {
    reactor->Finish(ToGrpcStatus(
        absl::ResourceExhaustedError("too many wait for workers to answer; try again later")));
  }
  return reactor;
}

absl::Status CoordinatorService::Inspect(const grpc::CallbackServerContext& context,
                                         const v1::GetOperationsRequest& request,
                                         v1::GetOperationsResponse* response) {
  MUSTER_ASSIGN_OR_RETURN(const Member member, host_->FindRank(request.job_id(), request.rank()));
  MUSTER_ASSIGN_OR_RETURN(*response->mutable_operations(),
                          FetchOperations(member, request.job_id(), context, kInspectionTimeout));
  response->set_rank(request.rank());
  response->set_worker(member.name);
  return absl::OkStatus();
}

}  // namespace muster
