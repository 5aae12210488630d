// Connects the ranks of a view by shared memory where they share a host and by TCP where they do
// not, all in the same way: which, they find out together.
//
// Two ranks share a host if they run under one kernel and in one process namespace, their members'
// names of hosts (MeshMember::host) are equal, and each can map the other's memory. Addresses do
// not count.
#ifndef MUSTER_COLLECTIVES_TRANSPORT_SHM_HOST_MESH_H_
#define MUSTER_COLLECTIVES_TRANSPORT_SHM_HOST_MESH_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "collectives/transport/shm/shared_arena.h"
#include "collectives/transport/tcp_listener.h"
#include "collectives/transport/tcp_transport.h"
#include "collectives/transport/transport.h"

namespace muster {

struct HostMesh {
  std::unique_ptr<Transport> transport;
  // Why it is this transport: "all 4 ranks share a host", "ranks 0, 1 share a host; TCP leads
  // to the other 2". Says also where other ranks' memory can be reached only by a detour.
  std::string why;
};

enum class HostMeshKind {
  // Shared memory if all ranks share a host ("shm"), TCP if no two do ("tcp"), and otherwise each
  // way where it leads ("shm+tcp").
  kBest,
  kSharedMemory,  // or UNIMPLEMENTED, with the reason
};

struct HostMeshOptions {
  // Lets this rank read messages straight from other ranks' unregistered memory (process_vm_readv)
  // where the kernel permits it. Otherwise they are staged in shared memory.
  bool read_unregistered = true;
};

// Errors as TcpTransport::Connect. `arena` may be null: then this rank shares no memory. All ranks
// must ask for the same.
absl::StatusOr<HostMesh> ConnectHostMesh(HostMeshKind kind, TcpListener& listener, MeshSpec spec,
                                         std::shared_ptr<SharedArena> arena, absl::Time deadline,
                                         const HostMeshOptions& options = {});

}  // namespace muster

#endif  // MUSTER_COLLECTIVES_TRANSPORT_SHM_HOST_MESH_H_
