// The gRPC services of the coordinator: thin fronts of CoordinatorHost. Thread-safe.
#ifndef MUSTER_SERVER_RPC_SERVICES_H_
#define MUSTER_SERVER_RPC_SERVICES_H_

#include <atomic>
#include <memory>

#include "muster/v1/coordinator.grpc.pb.h"
#include "server/rpc/coordinator_host.h"
#include "server/rpc/session_reactor.h"
#include "server/rpc/submit_queue.h"

namespace muster {

class FleetService final : public v1::Fleet::CallbackService {
 public:
  FleetService(std::shared_ptr<CoordinatorHost> host, const SessionLimits& limits,
               int max_sessions);

  grpc::ServerBidiReactor<v1::SessionRequest, v1::SessionResponse>* Session(
      grpc::CallbackServerContext* context) override;

 private:
  const std::shared_ptr<CoordinatorHost> host_;
  const SessionLimits limits_;
  const int max_sessions_;
  // Shared with the reactors, which may outlive the service by a moment.
  const std::shared_ptr<std::atomic<int>> sessions_ = std::make_shared<std::atomic<int>>(0);
};

class CoordinatorService final : public v1::Coordinator::CallbackService {
 public:
  static constexpr size_t kMaxQueuedSubmissions = 64;
  static constexpr size_t kMaxQueuedInspections = 64;

  explicit CoordinatorService(std::shared_ptr<CoordinatorHost> host);

  grpc::ServerUnaryReactor* SubmitJob(grpc::CallbackServerContext* context,
                                      const v1::SubmitJobRequest* request,
                                      v1::SubmitJobResponse* response) override;
  grpc::ServerUnaryReactor* GetJob(grpc::CallbackServerContext* context,
                                   const v1::GetJobRequest* request,
                                   v1::GetJobResponse* response) override;
  grpc::ServerUnaryReactor* ListJobs(grpc::CallbackServerContext* context,
                                     const v1::ListJobsRequest* request,
                                     v1::ListJobsResponse* response) override;
  grpc::ServerWriteReactor<v1::WatchJobResponse>* WatchJob(
      grpc::CallbackServerContext* context, const v1::WatchJobRequest* request) override;
  grpc::ServerUnaryReactor* SwitchJob(grpc::CallbackServerContext* context,
                                      const v1::SwitchJobRequest* request,
                                      v1::SwitchJobResponse* response) override;
  grpc::ServerUnaryReactor* ExplainStrategy(grpc::CallbackServerContext* context,
                                            const v1::ExplainStrategyRequest* request,
                                            v1::ExplainStrategyResponse* response) override;
  grpc::ServerUnaryReactor* CancelJob(grpc::CallbackServerContext* context,
                                      const v1::CancelJobRequest* request,
                                      v1::CancelJobResponse* response) override;
  grpc::ServerUnaryReactor* ListMembers(grpc::CallbackServerContext* context,
                                        const v1::ListMembersRequest* request,
                                        v1::ListMembersResponse* response) override;
  grpc::ServerUnaryReactor* GetOperations(grpc::CallbackServerContext* context,
                                          const v1::GetOperationsRequest* request,
                                          v1::GetOperationsResponse* response) override;

 private:
  absl::Status Inspect(const grpc::CallbackServerContext& context,
                       const v1::GetOperationsRequest& request,
                       v1::GetOperationsResponse* response);

  const std::shared_ptr<CoordinatorHost> host_;
  SubmitQueue submissions_;
  SubmitQueue inspections_;  // wait for workers
};

}  // namespace muster

#endif  // MUSTER_SERVER_RPC_SERVICES_H_
