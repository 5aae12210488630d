#include "worker/runtime/connect_mesh.h"

#include <utility>

#include "base/status_macros.h"

namespace muster {

absl::StatusOr<HostMesh> ConnectMesh(CommunicationSpec::Transport transport, TcpListener& listener,
                                     MeshSpec spec, std::shared_ptr<SharedArena> arena,
                                     absl::Time deadline) {
  switch (transport) {
    case CommunicationSpec::Transport::kAutomatic:
      return ConnectHostMesh(HostMeshKind::kBest, listener, std::move(spec), std::move(arena),
                             deadline);
    case CommunicationSpec::Transport::kSharedMemory:
      return ConnectHostMesh(HostMeshKind::kSharedMemory, listener, std::move(spec),
                             std::move(arena), deadline);
    case CommunicationSpec::Transport::kTcp:
      break;
  }
  HostMesh mesh;
  mesh.why = "the job asks for it";
  MUSTER_ASSIGN_OR_RETURN(mesh.transport,
                          TcpTransport::Connect(listener, std::move(spec), deadline));
  return mesh;
}

}  // namespace muster
