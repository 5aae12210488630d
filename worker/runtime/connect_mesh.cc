#include "worker/runtime/connect_mesh.h"

#include <utility>

#include "base/status_macros.h"
#include "collectives/transport/shm/shm_transport.h"

namespace muster {

absl::StatusOr<HostMesh> ConnectMesh(CommunicationSpec::Transport transport, TcpListener& listener,
                                     MeshSpec spec, std::shared_ptr<SharedArena> arena,
                                     absl::Time deadline) {
  HostMesh mesh;
  mesh.why = "the job asks for it";
  switch (transport) {
    case CommunicationSpec::Transport::kAutomatic:
      return ConnectHostMesh(listener, std::move(spec), std::move(arena), deadline);
    case CommunicationSpec::Transport::kTcp: {
      MUSTER_ASSIGN_OR_RETURN(mesh.transport,
                              TcpTransport::Connect(listener, std::move(spec), deadline));
      break;
    }
    case CommunicationSpec::Transport::kSharedMemory: {
      MUSTER_ASSIGN_OR_RETURN(mesh.transport, ShmTransport::Connect(listener, std::move(spec),
                                                                    std::move(arena), deadline));
      break;
    }
  }
  return mesh;
}

}  // namespace muster
