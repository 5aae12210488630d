// The libfabric transport over rails whose peers' addresses are known (ofi_transport.h forms them).
// ofi_transport.h says how it works, transport.h what it promises.
#ifndef MUSTER_COLLECTIVES_TRANSPORT_OFI_OFI_MESH_H_
#define MUSTER_COLLECTIVES_TRANSPORT_OFI_OFI_MESH_H_

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "base/mutex.h"
#include "collectives/transport/control_links.h"
#include "collectives/transport/mesh_peers.h"
#include "collectives/transport/ofi/ofi_connections.h"
#include "collectives/transport/ofi/ofi_packet_buffers.h"
#include "collectives/transport/ofi/ofi_peer_link.h"
#include "collectives/transport/ofi/ofi_receiver.h"
#include "collectives/transport/ofi/ofi_regions.h"
#include "collectives/transport/ofi/ofi_sender.h"
#include "collectives/transport/ofi/ofi_transport.h"

namespace muster {

// All that ofi_transport.cc has prepared. Vectors of peers are by rank.
struct OfiMeshParts {
  MeshSpec spec;
  absl::Duration flush_timeout;
  std::string explanation;
  OfiRails rails;
  std::unique_ptr<OfiPacketBuffers> buffers;
  std::vector<std::unique_ptr<OfiPeerLink>> links;
  std::vector<OfiWriteTarget> targets;
  OfiConnections connections;  // of the first rail, which packets take
  uint32_t cookie = 0;
  std::vector<UniqueFd> control;
};

class OfiMesh : public OfiTransport {
 public:
  static absl::StatusOr<std::unique_ptr<OfiTransport>> Create(OfiMeshParts parts);
  ~OfiMesh() override;

  absl::string_view name() const override { return "ofi"; }
  Rank rank() const override { return parts_.spec.rank; }
  int world_size() const override { return static_cast<int>(parts_.spec.members.size()); }
  int local_world_size() const override { return LocalWorldSize(parts_.spec); }
  // Each is announced, granted, written and acknowledged.
  int64_t best_segment_bytes() const override { return 512 << 10; }
  const std::string& explanation() const override { return parts_.explanation; }
  absl::Status RegisterMemory(absl::Span<std::byte> memory) override;
  absl::Status DeregisterMemory(absl::Span<std::byte> memory) override;
  void PostSend(Rank peer, uint64_t tag, absl::Span<const std::byte> bytes,
                uint64_t token) override;
  void Expect(Rank peer, int delta) override;
  absl::Status Poll(absl::Time deadline, absl::Duration spin,
                    std::vector<uint64_t>* completed) override;
  void Watch(absl::Time deadline) override;
  void WakeWatcher() override { SignalEventFd(watch_wake_.get()); }
  void Wake() override;
  void Close(const absl::Status& reason, std::optional<Rank> culprit) override;
  std::optional<MeshFailure> failure() const override { return failure_.get(); }

 private:
  // What has become of a peer.
  struct Presence {
    std::optional<uint32_t> goodbye;  // packets it had sent when it left
    bool told_taken = false;          // that all of them have come
    bool taken = false;               // it has all of this rank's, or needs none any more
  };

  explicit OfiMesh(OfiMeshParts parts);
  void CheckPeer(Rank peer) const;
  void Post(Rank peer, const PendingReceive& receive) override;

  // One pass over everything that may move without blocking; tokens go to completed_. *moved: it
  // was worth it. With `driving`, consumers are served.
  absl::Status Progress(bool driving, bool* moved) ABSL_EXCLUSIVE_LOCKS_REQUIRED(drive_mu_);
  absl::Status Dispatch(size_t rail, const OfiCompletion& completion, bool driving)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(drive_mu_);
  absl::Status TakePacket(uint32_t buffer, size_t length, bool driving)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(drive_mu_);
  absl::Status ProcessPacket(Rank peer, const OfiReceivedPacket& packet, bool driving)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(drive_mu_);
  absl::Status ProcessRecord(Rank peer, const OfiRecord& record, bool driving)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(drive_mu_);
  absl::Status Repost() ABSL_EXCLUSIVE_LOCKS_REQUIRED(drive_mu_);
  // Grants, packets and writes, as far as all that takes them has room.
  absl::Status PushOut(bool with_what_can_wait, bool* moved)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(drive_mu_);
  // Takes in what control connections say.
  absl::Status ReadControl() ABSL_EXCLUSIVE_LOCKS_REQUIRED(drive_mu_);
  // Answers peers that have left, and fails if one of them owes or was owed something.
  absl::Status CheckDeparted() ABSL_EXCLUSIVE_LOCKS_REQUIRED(drive_mu_);
  // An error that concerns a peer: what its control connection says about it counts more.
  absl::Status Blame(Rank peer, const absl::Status& error) ABSL_EXCLUSIVE_LOCKS_REQUIRED(drive_mu_);
  bool Busy() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(drive_mu_);

  // Keeps things moving while nobody drives.
  void ServeIdle();
  void FlushAndLeave() ABSL_EXCLUSIVE_LOCKS_REQUIRED(drive_mu_);
  void Fail(absl::Status status, std::optional<Rank> culprit);

  // Rails are closed before the memory that they may touch goes: see Close.
  OfiMeshParts parts_;
  UniqueFd watch_wake_;
  std::atomic<bool> wake_pending_{false};
  std::atomic<uint64_t> polls_{0};  // begun or going on
  std::atomic<bool> stopping_{false};

  // Held by the driver inside Post* and Poll, by the idle thread, and by Close to wait both out.
  mutable Mutex drive_mu_;
  ControlLinks control_;
  OfiRegions regions_ ABSL_GUARDED_BY(drive_mu_);
  OfiSender sender_ ABSL_GUARDED_BY(drive_mu_);
  OfiReceiver receiver_ ABSL_GUARDED_BY(drive_mu_);
  std::vector<Presence> presence_ ABSL_GUARDED_BY(drive_mu_);
  bool any_departed_ ABSL_GUARDED_BY(drive_mu_) = false;
  std::vector<std::pair<Rank, uint32_t>> to_repost_ ABSL_GUARDED_BY(drive_mu_);
  std::vector<OfiCompletion> batch_ ABSL_GUARDED_BY(drive_mu_);
  std::vector<uint64_t> completed_ ABSL_GUARDED_BY(drive_mu_);
  bool closed_ ABSL_GUARDED_BY(drive_mu_) = false;

  FirstFailure failure_;

  std::thread idle_thread_;  // last: starts when all else is there
};

}  // namespace muster

#endif  // MUSTER_COLLECTIVES_TRANSPORT_OFI_OFI_MESH_H_
