// Ranks of one process, each a thread's, over a real transport: for measuring on this host.
//
// Thread-compatible.
#ifndef MUSTER_CLIENT_TUNE_LOCAL_MESH_H_
#define MUSTER_CLIENT_TUNE_LOCAL_MESH_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/ids.h"
#include "collectives/engine/communicator.h"
#include "collectives/transport/shm/shared_arena.h"
#include "collectives/transport/tcp_listener.h"

namespace muster {

class LocalMesh {
 public:
  // `transport`: "inproc", "shm", "tcp" or "ofi". INVALID_ARGUMENT: none of these; otherwise the
  // errors of the transport.
  static absl::StatusOr<std::unique_ptr<LocalMesh>> Create(const std::string& transport, int ranks,
                                                           const CommunicatorOptions& options);

  int size() const { return static_cast<int>(communicators_.size()); }
  Communicator& At(Rank rank) { return *communicators_[rank]; }
  // Memory for a rank's vectors: where ranks share memory it is registered, as a worker's gradients
  // are. Zeroed; its own to be kept until the mesh's end.
  absl::StatusOr<float*> Allocate(Rank rank, int64_t count);
  // Runs it on each rank, in threads. The error of the lowest rank that has one; the others are
  // then told, so that none waits.
  absl::Status OnAllRanks(const std::function<absl::Status(Communicator&)>& body);

 private:
  LocalMesh() = default;

  bool shares_memory_ = false;
  // What is needed longest comes first.
  std::vector<std::unique_ptr<TcpListener>> listeners_;
  std::vector<std::shared_ptr<SharedArena>> arenas_;
  std::vector<std::vector<SharedBuffer>> shared_;           // by rank
  std::vector<std::vector<std::unique_ptr<float[]>>> own_;  // by rank
  std::vector<std::unique_ptr<Communicator>> communicators_;
};

}  // namespace muster

#endif  // MUSTER_CLIENT_TUNE_LOCAL_MESH_H_
