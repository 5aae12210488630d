// A mesh over several hosts: shared memory carries what goes between ranks of one host, TCP the
// rest. Made of a mesh of each kind; behaves as transport.h says.
//
// Waiting. Who drives looks into both meshes in turn for a while, then sleeps on the bell of the
// one in shared memory. A thread of the mesh's own sleeps on the sockets meanwhile and rings it, so
// that what a peer on this host does wakes nobody but the driver.
#ifndef MUSTER_COLLECTIVES_TRANSPORT_SHM_TWO_LEVEL_MESH_H_
#define MUSTER_COLLECTIVES_TRANSPORT_SHM_TWO_LEVEL_MESH_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "absl/types/span.h"
#include "base/mutex.h"
#include "collectives/transport/mesh_peers.h"
#include "collectives/transport/shm/shm_mesh.h"
#include "collectives/transport/socket.h"
#include "collectives/transport/tcp_mesh.h"
#include "collectives/transport/transport.h"

namespace muster {

class TwoLevelMesh : public Transport {
 public:
  // `network` has the ranks of the whole, and leads to those of other hosts at least. `host` leads
  // to the others of this rank's host: its rank i is host_ranks[i] of the whole. It is null, and
  // they are empty, where the network leads to all.
  TwoLevelMesh(std::unique_ptr<ShmMesh> host, const std::vector<Rank>& host_ranks,
               std::unique_ptr<TcpMesh> network);
  ~TwoLevelMesh() override;

  absl::string_view name() const override { return "shm+tcp"; }
  Rank rank() const override { return network_->rank(); }
  int world_size() const override { return network_->world_size(); }
  int local_world_size() const override;

  void PostSend(Rank peer, uint64_t tag, absl::Span<const std::byte> bytes,
                uint64_t token) override;
  void PostReceive(Rank peer, uint64_t tag, absl::Span<std::byte> destination,
                   uint64_t token) override;
  void PostStandingReceive(Rank peer, uint64_t tag, absl::Span<std::byte> destination,
                           uint64_t token) override;
  void Expect(Rank peer, int delta) override;
  void PostConsume(Rank peer, uint64_t tag, int64_t length, int element_bytes,
                   PieceConsumer* consumer, uint64_t token) override;

  absl::Status Poll(absl::Time deadline, absl::Duration spin,
                    std::vector<uint64_t>* completed) override;

  bool has_backlog() const override { return host_ != nullptr && host_->has_backlog(); }
  void Watch(absl::Time deadline) override { network_->Watch(deadline); }
  void WakeWatcher() override { network_->WakeWatcher(); }
  void Wake() override;

  void Close(const absl::Status& reason, std::optional<Rank> culprit) override;
  std::optional<MeshFailure> failure() const override;
  bool tainted() const override { return host_ != nullptr && host_->tainted(); }

 private:
  // The mesh that leads to a rank of the whole, and its rank there.
  struct Way {
    Transport* mesh = nullptr;
    Rank rank = -1;
  };
  Way WayTo(Rank peer) const;
  // One look into each mesh.
  absl::Status LookIntoBoth(std::vector<uint64_t>* completed);
  // The first failure of either, or of the whole.
  absl::Status Failed(const absl::Status& status);
  // Has the thread ring once the network is ready.
  void RingWhenReady();
  void RingForNetwork();

  const std::unique_ptr<TcpMesh> network_;
  const std::unique_ptr<ShmMesh> host_;
  std::vector<Rank> rank_on_host_;  // by rank of the whole; -1: not there

  std::atomic<bool> woken_{false};
  FirstFailure failure_;
  Mutex close_mu_;  // held by Close

  UniqueFd ring_epoll_;  // the network's descriptor, armed for one ring; stop_ring_
  UniqueFd stop_ring_;
  std::thread ring_thread_;  // last: starts when all else is there
};

}  // namespace muster

#endif  // MUSTER_COLLECTIVES_TRANSPORT_SHM_TWO_LEVEL_MESH_H_
