// One rank's end of a mesh in shared memory: the window for collectives, rings for messages between
// two ranks, and control connections (TCP, from the handshake) for goodbye, abort and death.
// Behaves as transport.h says.
//
// Waiting. Who waits spins, or where ranks share cores gives way to them, for a while; then it
// sleeps on its bell (shm_group.h), which peers ring. A thread of
// the mesh's own sleeps on the control connections and rings it, too: so a death is seen at once,
// and nobody wakes up only to look.
#ifndef MUSTER_COLLECTIVES_TRANSPORT_SHM_SHM_MESH_H_
#define MUSTER_COLLECTIVES_TRANSPORT_SHM_SHM_MESH_H_

#include <atomic>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "base/mutex.h"
#include "collectives/transport/control_links.h"
#include "collectives/transport/give_way.h"
#include "collectives/transport/mesh_peers.h"
#include "collectives/transport/mesh_transport.h"
#include "collectives/transport/shm/shm_group.h"
#include "collectives/transport/shm/shm_link.h"
#include "collectives/transport/shm/shm_receiver.h"
#include "collectives/transport/shm/shm_sender.h"
#include "collectives/transport/shm/shm_window.h"
#include "collectives/transport/tcp_transport.h"

namespace muster {

class ShmMesh : public MeshTransport {
 public:
  // By rank: control connections, and whether the rank can read this one's memory.
  ShmMesh(MeshSpec spec, std::vector<UniqueFd> control, std::unique_ptr<ShmGroup> group,
          std::vector<bool> can_read);
  ~ShmMesh() override;

  absl::string_view name() const override { return "shm"; }
  Rank rank() const override { return spec_.rank; }
  int world_size() const override { return group_->size(); }
  int local_world_size() const override { return group_->size(); }
  Window* window() override { return &window_; }

  void PostSend(Rank peer, uint64_t tag, absl::Span<const std::byte> bytes,
                uint64_t token) override;
  void Expect(Rank peer, int delta) override;

  absl::Status Poll(absl::Time deadline, absl::Duration spin,
                    std::vector<uint64_t>* completed) override;

  bool has_backlog() const override { return waiting_links_.load(std::memory_order_relaxed) > 0; }
  void Watch(absl::Time deadline) override;
  void WakeWatcher() override;
  void Wake() override;

  void Close(const absl::Status& reason, std::optional<Rank> culprit) override;
  std::optional<MeshFailure> failure() const override { return failure_.get(); }
  bool tainted() const override { return group_->tainted(); }
  // Readable while a death or an abort is there that Poll has not taken in.
  int news_fd() const { return control_.news_fd(); }

 private:
  void CheckPeer(Rank peer) const;
  void Post(Rank peer, const PendingReceive& receive) override;
  // One pass over everything that may move without blocking.
  absl::Status Progress(std::vector<uint64_t>* completed) ABSL_EXCLUSIVE_LOCKS_REQUIRED(drive_mu_);
  absl::Status Serve(Rank peer, std::vector<uint64_t>* completed)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(drive_mu_);
  absl::Status Dispatch(Rank peer, const ShmEntry& entry, std::vector<uint64_t>* completed)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(drive_mu_);
  // There is something for Progress to do. Cheap enough to spin on.
  bool HasWork() const;
  // Waits until there probably is. False: the deadline has passed.
  bool AwaitWork(absl::Time deadline, absl::Duration spin);
  // True: there is, at once or within so many looks.
  bool Look(int times) const;
  // Takes in what the control connections say.
  absl::Status ReadControl() ABSL_EXCLUSIVE_LOCKS_REQUIRED(drive_mu_);
  // Fails if a peer that has left owes something, or was owed something.
  absl::Status CheckDeparted() ABSL_EXCLUSIVE_LOCKS_REQUIRED(drive_mu_);
  // An error about a peer: what its control connection says counts more.
  absl::Status Blame(Rank peer, const absl::Status& error) ABSL_EXCLUSIVE_LOCKS_REQUIRED(drive_mu_);
  // Sends what still waits for room in rings, for a while.
  void FlushLinks() ABSL_EXCLUSIVE_LOCKS_REQUIRED(drive_mu_);
  void WatchControl();

  const MeshSpec spec_;
  const std::unique_ptr<ShmGroup> group_;
  ShmWindow window_;
  std::atomic<int> waiting_links_{0};
  std::vector<std::unique_ptr<ShmLink>> links_;  // by rank; null for this one
  ShmSender sender_;
  ShmReceiver receiver_;
  ControlLinks control_;
  const size_t posted_words_;
  GiveWay give_way_;

  // Held by the driver inside Post* and Poll, and by Close to wait the driver out.
  Mutex drive_mu_;
  std::vector<uint64_t> completed_ ABSL_GUARDED_BY(drive_mu_);  // while posting
  std::vector<bool> departed_ ABSL_GUARDED_BY(drive_mu_);       // said goodbye, by rank
  bool any_departed_ ABSL_GUARDED_BY(drive_mu_) = false;
  bool some_closed_ ABSL_GUARDED_BY(drive_mu_) = false;
  bool closed_ ABSL_GUARDED_BY(drive_mu_) = false;

  std::atomic<bool> woken_{false};
  FirstFailure failure_;

  Mutex watch_mu_;
  std::atomic<bool> news_{
      false};  // written under watch_mu_: the control connections have something
  uint64_t news_count_ ABSL_GUARDED_BY(watch_mu_) = 0;
  bool watcher_woken_ ABSL_GUARDED_BY(watch_mu_) = false;
  bool stopping_ ABSL_GUARDED_BY(watch_mu_) = false;

  std::thread control_thread_;  // last: starts when all else is there
};

}  // namespace muster

#endif  // MUSTER_COLLECTIVES_TRANSPORT_SHM_SHM_MESH_H_
