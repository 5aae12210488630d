// Which connections and calls a process lets into the mesh that it forms: the fence between epochs.
//
// A hello for the epoch being formed is judged; one for an epoch that is over, given up or formed
// already is refused; one for an epoch to come has to wait. At most one mesh is being formed at a
// time. No I/O. Thread-compatible.
#ifndef MUSTER_COLLECTIVES_TRANSPORT_MESH_ADMISSION_H_
#define MUSTER_COLLECTIVES_TRANSPORT_MESH_ADMISSION_H_

#include <deque>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "base/ids.h"
#include "collectives/transport/tcp_handshake.h"

namespace muster {

// The mesh being formed.
struct MeshPlan {
  uint64_t token_hash = 0;
  Epoch epoch = 0;
  Rank rank = 0;
  uint16_t channels = 1;
  bool both_dial = false;  // else of each pair only the higher rank
  std::vector<Incarnation> incarnations;
};

class MeshAdmission {
 public:
  // CANCELLED: the epoch was given up. FAILED_PRECONDITION: it was formed or overtaken, or another
  // mesh is being formed.
  absl::Status Begin(MeshPlan plan);
  // Refuses what still comes for the mesh's epoch. Requires: plan() is not null.
  void End();
  // Gives up all epochs up to `epoch`. True: the mesh being formed is one of them.
  bool CancelThrough(Epoch epoch);

  // The mesh being formed, or null.
  const MeshPlan* plan() const { return plan_.has_value() ? &*plan_ : nullptr; }
  // CANCELLED if it was given up. Requires: plan() is not null.
  absl::Status status() const;

  // The verdict and, if it is no welcome, *why; nullopt for an epoch to come. Each channel of a
  // rank is welcome once.
  std::optional<TcpVerdict> Judge(const TcpHello& hello, std::string* why);

 private:
  // Highest epoch no longer to be formed under that token.
  Epoch FloorOf(uint64_t token_hash) const;
  void RaiseFloor(uint64_t token_hash, Epoch epoch);

  std::optional<MeshPlan> plan_;
  bool cancelled_ = false;
  std::vector<std::pair<Rank, int>> welcomed_;  // (rank, channel)
  // The newest few tokens' floors, oldest first.
  std::deque<std::pair<uint64_t, Epoch>> floors_;
  Epoch cancelled_through_ = 0;
};

}  // namespace muster

#endif  // MUSTER_COLLECTIVES_TRANSPORT_MESH_ADMISSION_H_
