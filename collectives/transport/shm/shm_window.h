// A window (window.h) among processes that have mapped each other's arenas.
//
// Every rank keeps an *area* in its arena: flags that others read or set, its published calls, its
// stage. Rank 0's area also counts arrivals. Flags lie in cache lines of their own.
//
// Waiting. Each rank has a doorbell, a futex in its area, rung by whoever completes a meet, if the
// rank sleeps.
//
// Closing. A closed rank's buffers are its own again once no rank is touching them. Shut() waits
// for that, as long as it takes a rank that runs; one that was stopped within a touch may write
// when it runs again, and then the registered buffers it could reach are *tainted*:
// SharedBuffer::Renew() them before the next use.
#ifndef MUSTER_COLLECTIVES_TRANSPORT_SHM_SHM_WINDOW_H_
#define MUSTER_COLLECTIVES_TRANSPORT_SHM_SHM_WINDOW_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/mutex.h"
#include "collectives/transport/shm/shared_arena.h"
#include "collectives/transport/socket.h"
#include "collectives/transport/window.h"

namespace muster {

class ShmWindow : public Window {
 public:
  static constexpr int64_t kStageBytes = int64_t{4} << 20;
  static constexpr int kMaxRanks = 1024;

  // How others find a rank's area.
  struct Location {
    uint64_t nonce = 0;  // also in the area: proof that the right memory was mapped
    int64_t pid = 0;
    int32_t fd = -1;  // of the arena's file in that process
    int64_t capacity = 0;
    int64_t area = 0;  // place in the file
  };

  // Makes this rank's area. Then Map() the others', then use it.
  static absl::StatusOr<std::unique_ptr<ShmWindow>> Create(std::shared_ptr<SharedArena> arena,
                                                           Rank rank, int world_size,
                                                           uint64_t nonce);
  ~ShmWindow() override;

  Location location() const;
  // UNAVAILABLE says why a rank's memory can't be mapped (another host, no permission).
  absl::Status Map(Rank rank, const Location& location);

  std::byte* Stage(Rank rank) const override;
  int64_t stage_bytes() const override { return kStageBytes; }
  std::optional<int64_t> PlaceOf(const void* data, int64_t bytes) const override;
  std::byte* At(Rank rank, int64_t place) const override { return peers_[rank].base + place; }
  void Publish(const WindowCall& call) override;
  const WindowCall& Published(Rank rank) const override;
  void Arrive(uint64_t token) override;
  bool TakeMet() override;
  std::vector<Rank> Missing() const override;
  bool BeginTouch() override;
  void EndTouch() override;

  // A meet was arrived at and not yet taken.
  bool waiting() const { return waiting_; }
  uint64_t token() const { return token_; }
  // A rank that has closed and had not arrived.
  std::optional<Rank> ClosedWhileMissed() const;
  std::optional<Rank> AnyClosed() const;

  // Blocks until the meet is complete, somebody rings, or `timeout` is over.
  void Block(absl::Duration timeout);
  // From any thread, at any time.
  void RingSelf() ABSL_LOCKS_EXCLUDED(ring_mu_);

  // Lets go of the others' memory and waits until they have let go of this rank's.
  void Shut();
  // After Shut(): a stopped rank may still write to registered buffers.
  bool tainted() const { return tainted_; }

 private:
  struct Area;
  struct Peer {
    std::byte* base = nullptr;  // of its arena
    Area* area = nullptr;
    int64_t mapped = 0;                 // bytes to unmap; 0 for the own arena
    std::shared_ptr<UniqueFd> process;  // pidfd, where there is one
  };

  ShmWindow(std::shared_ptr<SharedArena> arena, SharedBuffer area, Rank rank, int world_size,
            uint64_t nonce);
  bool Met() const;
  static bool HasEnded(const UniqueFd* process);
  void Unmap();

  const std::shared_ptr<SharedArena> arena_;
  SharedBuffer buffer_;  // the own area
  const Rank rank_;
  const uint64_t nonce_;
  std::vector<Peer> peers_;  // by rank, the own included
  Area* const own_;
  uint64_t meets_ = 0;      // arrived at
  uint64_t published_ = 0;  // calls
  bool waiting_ = false;
  uint64_t token_ = 0;
  Mutex ring_mu_;  // held while the own bell is rung, and to give the area away
  bool shut_ ABSL_GUARDED_BY(ring_mu_) = false;
  bool tainted_ = false;
};

}  // namespace muster

#endif  // MUSTER_COLLECTIVES_TRANSPORT_SHM_SHM_WINDOW_H_
