// A mesh of processes on one host: a window in shared memory (window.h) for collectives, and TCP
// connections for messages between two ranks, for goodbye, abort and death.
//
// Ranks find out by doing whether they share a host: each maps the memory of the others, whose
// identity a random number in it proves.
#ifndef MUSTER_COLLECTIVES_TRANSPORT_SHM_SHM_TRANSPORT_H_
#define MUSTER_COLLECTIVES_TRANSPORT_SHM_SHM_TRANSPORT_H_

#include <memory>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "collectives/transport/shm/shared_arena.h"
#include "collectives/transport/tcp_listener.h"
#include "collectives/transport/tcp_transport.h"
#include "collectives/transport/transport.h"

namespace muster {

class ShmTransport {
 public:
  // As TcpTransport::Connect, and besides:
  //   UNIMPLEMENTED  the ranks can't share memory, with the reason
  // Buffers allocated from `arena` are registered: collectives read and write them in place.
  static absl::StatusOr<std::unique_ptr<Transport>> Connect(TcpListener& listener, MeshSpec spec,
                                                            std::shared_ptr<SharedArena> arena,
                                                            absl::Time deadline);
};

}  // namespace muster

#endif  // MUSTER_COLLECTIVES_TRANSPORT_SHM_SHM_TRANSPORT_H_
