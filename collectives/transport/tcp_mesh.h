// The transport over sockets that are already connected and vouched for (tcp_transport.h forms
// them). See transport.h for what it promises.
//
// A driver reads and writes data connections only; each peer's control connection is read by
// whoever polls and watched by Watch(), so that an idle mesh still notices deaths and aborts while
// a busy one wakes no watcher.
#ifndef MUSTER_COLLECTIVES_TRANSPORT_TCP_MESH_H_
#define MUSTER_COLLECTIVES_TRANSPORT_TCP_MESH_H_

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "base/mutex.h"
#include "collectives/transport/give_way.h"
#include "collectives/transport/mesh_peers.h"
#include "collectives/transport/mesh_transport.h"
#include "collectives/transport/socket.h"
#include "collectives/transport/tcp_connection.h"
#include "collectives/transport/tcp_transport.h"

namespace muster {

// The connections to one peer.
struct TcpPeerSockets {
  UniqueFd control;
  std::vector<UniqueFd> data;
};

// Connects all pairs as TcpTransport::Connect does, for transports that meet over TCP and move
// their data by other means. Element r leads to rank r.
absl::StatusOr<std::vector<TcpPeerSockets>> ConnectMeshSockets(TcpListener& listener,
                                                               const MeshSpec& spec,
                                                               absl::Time deadline);

class TcpMesh : public MeshTransport {
 public:
  // sockets[r] leads to rank r; sockets[spec.rank] is empty, as is that of a rank which is no peer
  // by this mesh.
  TcpMesh(MeshSpec spec, std::vector<TcpPeerSockets> sockets);
  ~TcpMesh() override;

  absl::string_view name() const override { return "tcp"; }
  Rank rank() const override { return spec_.rank; }
  int world_size() const override { return static_cast<int>(spec_.members.size()); }
  int local_world_size() const override { return LocalWorldSize(spec_); }
  void PostSend(Rank peer, uint64_t tag, absl::Span<const std::byte> bytes,
                uint64_t token) override;
  void Expect(Rank peer, int delta) override;
  absl::Status Poll(absl::Time deadline, absl::Duration spin,
                    std::vector<uint64_t>* completed) override;
  void Watch(absl::Time deadline) override;
  void WakeWatcher() override;
  void Wake() override;
  void Close(const absl::Status& reason, std::optional<Rank> culprit) override;
  std::optional<MeshFailure> failure() const override { return failure_.get(); }

  // Readable while Poll would find something, after a Poll that found nothing.
  int ready_fd() const { return epoll_.get(); }
  // Has Watch end while `fd` is readable, too. Before anyone drives or watches; `fd` stays open
  // until Close().
  void WatchAlso(int fd);

 private:
  struct Peer {
    Rank rank = -1;
    UniqueFd control;
    std::string control_bytes;  // received, no whole frame yet
    bool departed = false;      // said goodbye
    std::unique_ptr<ReceiveTable> receives;
    std::vector<std::unique_ptr<TcpConnection>> channels;
    size_t next_channel = 0;  // for the next large message
  };

  Peer& PeerAt(Rank rank);
  // Connections that share a wire get what is theirs as they are given it only where the kernel
  // does not take it all at once. Called when a large message was queued.
  absl::Status ShareWire() ABSL_EXCLUSIVE_LOCKS_REQUIRED(drive_mu_);
  void Post(Rank peer, const PendingReceive& receive) override;
  // One pass over everything that may move without blocking. Appends to *completed. *more: there is
  // more to read already.
  absl::Status Progress(std::vector<uint64_t>* completed, bool* more)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(drive_mu_);
  absl::Status ProgressConnection(Peer& peer, TcpConnection& connection, bool read,
                                  std::vector<uint64_t>* completed, bool* more)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(drive_mu_);
  // Waits in epoll for up to that long, and serves what it reports.
  absl::Status Block(int timeout_ms, std::vector<uint64_t>* completed)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(drive_mu_);
  absl::Status ReadControl(Peer& peer) ABSL_EXCLUSIVE_LOCKS_REQUIRED(drive_mu_);
  // Fails if the peer's connections have ended while it owes us something.
  absl::Status CheckEnded(Peer& peer) ABSL_EXCLUSIVE_LOCKS_REQUIRED(drive_mu_);

  const MeshSpec spec_;
  UniqueFd epoll_;        // control and data connections, wake_
  UniqueFd watch_epoll_;  // control connections, watch_wake_
  UniqueFd wake_;
  UniqueFd watch_wake_;
  std::atomic<bool> wake_pending_{false};
  const bool shares_cores_;  // ranks of this host have no core each

  // Held by the driver inside Post* and Poll, and by Close to wait the driver out.
  mutable Mutex drive_mu_;
  std::vector<Peer> peers_;                                    // by rank
  std::vector<std::pair<Peer*, TcpConnection*>> connections_;  // all data connections
  StagingBuffer staging_ ABSL_GUARDED_BY(drive_mu_);
  // Receives that a message taken in early served at once; reported by the next Poll.
  std::vector<uint64_t> served_at_post_ ABSL_GUARDED_BY(drive_mu_);
  GiveWay give_way_ ABSL_GUARDED_BY(drive_mu_);
  bool closed_ ABSL_GUARDED_BY(drive_mu_) = false;
  bool shares_wire_ ABSL_GUARDED_BY(drive_mu_) = false;
  int sent_alone_ ABSL_GUARDED_BY(drive_mu_) = 0;  // large messages in a row

  FirstFailure failure_;
};

}  // namespace muster

#endif  // MUSTER_COLLECTIVES_TRANSPORT_TCP_MESH_H_
