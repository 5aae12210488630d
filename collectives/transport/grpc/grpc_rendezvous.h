// Where the calls that a gRPC server takes meet the mesh that this process forms.
// grpc_listener.h says what becomes of a call. Thread-safe.
#ifndef MUSTER_COLLECTIVES_TRANSPORT_GRPC_GRPC_RENDEZVOUS_H_
#define MUSTER_COLLECTIVES_TRANSPORT_GRPC_GRPC_RENDEZVOUS_H_

#include <grpcpp/generic/async_generic_service.h>

#include <deque>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/mutex.h"
#include "collectives/transport/grpc/grpc_incoming_call.h"
#include "collectives/transport/grpc/grpc_listener.h"
#include "collectives/transport/grpc/grpc_signal.h"
#include "collectives/transport/mesh_admission.h"

namespace muster {

// A call that has been welcomed.
struct GrpcArrival {
  std::shared_ptr<IncomingCall> call;
  Rank rank = -1;
  int channel = 0;  // from 1
};

class GrpcRendezvous final : public grpc::CallbackGenericService {
 public:
  explicit GrpcRendezvous(const GrpcListenerOptions& options) : options_(options) {}

  // Starts taking calls for `plan`; raises `signal` when Take() has news. Errors as
  // MeshAdmission::Begin.
  absl::Status Begin(MeshPlan plan, std::shared_ptr<GrpcSignal> signal) ABSL_LOCKS_EXCLUDED(mu_);
  // What has arrived since the last call. CANCELLED after CancelThrough.
  absl::StatusOr<std::vector<GrpcArrival>> Take() ABSL_LOCKS_EXCLUDED(mu_);
  // Refuses all further calls for the mesh's epoch; ends those that nobody took.
  void End() ABSL_LOCKS_EXCLUDED(mu_);
  void CancelThrough(Epoch epoch) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  // For an epoch not begun yet.
  struct Parked {
    std::shared_ptr<IncomingCall> call;
    TcpHello hello;
    absl::Time deadline;
  };

  grpc::ServerGenericBidiReactor* CreateReactor(
      grpc::GenericCallbackServerContext* context) override;
  // Answers, and hands over, drops or parks.
  void Settle(std::shared_ptr<IncomingCall> call, const TcpHello& hello, absl::Time park_until)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Settles what was parked and need not wait any longer.
  void SortParked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const GrpcListenerOptions options_;
  Mutex mu_;
  MeshAdmission admission_ ABSL_GUARDED_BY(mu_);
  std::shared_ptr<GrpcSignal> signal_ ABSL_GUARDED_BY(mu_);
  std::vector<GrpcArrival> arrivals_ ABSL_GUARDED_BY(mu_);
  std::deque<Parked> parked_ ABSL_GUARDED_BY(mu_);
};

}  // namespace muster

#endif  // MUSTER_COLLECTIVES_TRANSPORT_GRPC_GRPC_RENDEZVOUS_H_
