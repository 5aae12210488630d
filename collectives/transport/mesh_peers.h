// What every mesh that meets over a network needs of its spec, and the record of its first failure.
#ifndef MUSTER_COLLECTIVES_TRANSPORT_MESH_PEERS_H_
#define MUSTER_COLLECTIVES_TRANSPORT_MESH_PEERS_H_

#include <atomic>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/ids.h"
#include "base/mutex.h"
#include "collectives/transport/tcp_transport.h"
#include "collectives/transport/transport.h"

namespace muster {

// What messages and failures call a rank of the mesh.
Rank RankInWhole(const MeshSpec& spec, Rank rank);
// "rank 3 (10.0.0.4:7071, incarnation ...)".
std::string DescribeMember(const MeshSpec& spec, Rank rank);
// UNAVAILABLE, with the rank, as RankInWhole, as culprit.
absl::Status PeerIsGone(const MeshSpec& spec, Rank rank, absl::string_view how);
// INVALID_ARGUMENT says what is wrong with a spec; its number of channels must have been chosen.
absl::Status ValidateSpec(const MeshSpec& spec);
// `status` of connecting to that rank, which is the culprit.
absl::Status CannotConnect(const MeshSpec& spec, Rank rank, const absl::Status& status);
// DEADLINE_EXCEEDED: those ranks have not all been connected; the first is the culprit.
absl::Status LacksConnections(const MeshSpec& spec, absl::Span<const Rank> missing);
// Whether the rank runs on this rank's host, going by their addresses.
bool IsOnOwnHost(const MeshSpec& spec, Rank rank);
// Members whose address has the host of this rank's, this one included.
int LocalWorldSize(const MeshSpec& spec);

// The first failure of a mesh, which is final. Thread-safe.
class FirstFailure {
 public:
  // False: there was one before. Without a culprit that of the status counts, if it has one.
  bool Record(absl::Status status, std::optional<Rank> culprit) ABSL_LOCKS_EXCLUDED(mu_);
  // Cheap.
  bool has_value() const { return failed_; }
  // Requires: has_value().
  absl::Status status() const ABSL_LOCKS_EXCLUDED(mu_);
  // OK as long as there is none. What a Poll returns that was woken: whoever closes wakes as well.
  absl::Status so_far() const { return has_value() ? status() : absl::OkStatus(); }
  std::optional<MeshFailure> get() const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  std::atomic<bool> failed_{false};
  mutable Mutex mu_;
  std::optional<MeshFailure> failure_ ABSL_GUARDED_BY(mu_);
};

}  // namespace muster

#endif  // MUSTER_COLLECTIVES_TRANSPORT_MESH_PEERS_H_
