// Connects the workers of a view by the transport that the job asks for.
#ifndef MUSTER_WORKER_RUNTIME_CONNECT_MESH_H_
#define MUSTER_WORKER_RUNTIME_CONNECT_MESH_H_

#include <memory>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/job_spec.h"
#include "collectives/transport/shm/host_mesh.h"
#include "collectives/transport/shm/shared_arena.h"
#include "collectives/transport/tcp_listener.h"
#include "collectives/transport/tcp_transport.h"

namespace muster {

// Errors as TcpTransport::Connect. UNIMPLEMENTED: the job asks for a transport that these workers
// can't have, with the reason; trying again is of no use. `arena` may be null.
absl::StatusOr<HostMesh> ConnectMesh(CommunicationSpec::Transport transport, TcpListener& listener,
                                     MeshSpec spec, std::shared_ptr<SharedArena> arena,
                                     absl::Time deadline);

}  // namespace muster

#endif  // MUSTER_WORKER_RUNTIME_CONNECT_MESH_H_
