// Connects the workers of a view by the transport that the job asks for.
#ifndef MUSTER_WORKER_RUNTIME_CONNECT_MESH_H_
#define MUSTER_WORKER_RUNTIME_CONNECT_MESH_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/control/messages.h"
#include "base/job_spec.h"
#include "collectives/schedule/schedule.h"
#include "collectives/transport/grpc/grpc_listener.h"
#include "collectives/transport/shm/shared_arena.h"
#include "collectives/transport/tcp_listener.h"
#include "collectives/transport/tcp_transport.h"
#include "collectives/transport/transport.h"

namespace muster {

struct ConnectedMesh {
  std::unique_ptr<Transport> transport;
  std::string provider;  // of libfabric
  std::string why;       // it is this transport
};

// What the job asks for, in the strategy of a view.
CommunicationSpec CommunicationIn(const View& view, const JobSpec& job);

// The algorithm that the gradient's all-reduce asks for.
Algorithm AlgorithmOf(const CommunicationSpec& spec);

// Whether members meet at their gRPC servers, not at the ports of their data plane.
bool MeetsAtServers(const CommunicationSpec& communication);

// The members' addresses are those where they meet; `servers` may be null where that is not at
// their servers. Errors as TcpTransport::Connect. UNIMPLEMENTED: the job names a transport or an
// algorithm that these workers can't have; the field and the reason; trying again is of no use.
// Without an `arena`, `no_arena` says why there is none.
absl::StatusOr<ConnectedMesh> ConnectMesh(const CommunicationSpec& communication,
                                          TcpListener& listener, GrpcListener* servers,
                                          MeshSpec spec, std::shared_ptr<SharedArena> arena,
                                          const std::string& no_arena, absl::Time deadline);

}  // namespace muster

#endif  // MUSTER_WORKER_RUNTIME_CONNECT_MESH_H_
