// Processes that have mapped each other's arenas: where each rank's area lies, how to wake a rank
// that sleeps, and how to part from them.
//
// Waiting. Each rank has a doorbell, a futex in its area: the only thing it sleeps on. Whoever
// gives it something to do rings, if the rank sleeps.
//
// Closing. A closed rank's buffers are its own again once no rank is touching them. Shut() waits
// for that, as long as it takes a rank that runs; one that was stopped within a touch may write
// when it runs again, and then the registered buffers it could reach are *tainted*:
// SharedBuffer::Renew() them before the next use. Reading is not fenced: a reader looks afterwards
// whether the rank has closed meanwhile, and then drops what it has read.
//
// Used by the thread that drives, unless said otherwise.
#ifndef MUSTER_COLLECTIVES_TRANSPORT_SHM_SHM_GROUP_H_
#define MUSTER_COLLECTIVES_TRANSPORT_SHM_SHM_GROUP_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "base/ids.h"
#include "base/mutex.h"
#include "collectives/transport/shm/arena_mappings.h"
#include "collectives/transport/shm/shared_arena.h"
#include "collectives/transport/shm/shm_area.h"
#include "collectives/transport/socket.h"

namespace muster {

class ShmGroup {
 public:
  // How others find a rank's area.
  struct Location {
    uint64_t nonce = 0;  // also in the area: proof that the right memory was mapped
    int64_t pid = 0;
    int32_t fd = -1;  // of the arena's file in that process
    int64_t capacity = 0;
    int64_t area = 0;      // place in the file
    uint64_t address = 0;  // in that process
  };

  // Makes this rank's area. Then Map() the others', then use it.
  static absl::StatusOr<std::unique_ptr<ShmGroup>> Create(std::shared_ptr<SharedArena> arena,
                                                          Rank rank, int world_size,
                                                          uint64_t nonce);
  ~ShmGroup();

  Rank rank() const { return rank_; }
  int size() const { return static_cast<int>(peers_.size()); }

  Location location() const;
  // UNAVAILABLE says why a rank's memory can't be mapped (another host, no permission).
  absl::Status Map(Rank rank, const Location& location);
  // Whether this process may Read() of a mapped rank's; else the kernel's reason.
  absl::Status TryToRead(Rank rank) const;

  ShmArea& own() const { return *own_; }
  ShmArea& area(Rank rank) const { return *peers_[rank].area; }
  // Entries from one rank to another.
  ShmRing& Ring(Rank from, Rank to) const;
  // This rank's blocks.
  std::byte* blocks() const;
  int64_t blocks_place() const;

  // The place of [data, data + bytes) in this rank's arena, if it lies in a buffer of it.
  std::optional<int64_t> PlaceOf(const void* data, int64_t bytes);
  // Where `place` of a rank's arena lies in this process.
  std::byte* At(Rank rank, int64_t place) const { return peers_[rank].base + place; }
  bool Holds(Rank rank, int64_t place, int64_t bytes) const {
    const auto& mapping = peers_[rank].mapping;
    const int64_t capacity = mapping == nullptr ? 0 : mapping->bytes();
    return place >= 0 && bytes >= 0 && bytes <= capacity && place <= capacity - bytes;
  }
  // As Window's.
  int64_t MapPages(Rank rank, int64_t place, int64_t bytes, int64_t most);
  // Copies from any memory of a rank. What it holds counts only if the rank is there afterwards.
  absl::Status Read(Rank rank, uint64_t address, absl::Span<std::byte> to) const;

  // Rings if the rank sleeps. Sequentially consistent stores before it are seen by the sleeper, or
  // the sleeper by this.
  void Wake(Rank rank);
  // Sleeps until the bell rings or `timeout` is over, unless has_work() says that there is
  // something to do already.
  template <typename HasWork>
  void Sleep(absl::Duration timeout, const HasWork& has_work) {
    const uint32_t seen = own_->bell.value.load();
    own_->sleeping.value.store((uint64_t{1} << 32) | seen);
    if (!has_work()) WaitForBell(seen, timeout);
    own_->sleeping.value.store(0, std::memory_order_relaxed);
  }
  // From any thread, at any time.
  void RingSelf() ABSL_LOCKS_EXCLUDED(ring_mu_);

  bool IsClosed(Rank rank) const { return peers_[rank].area->closed.value.load() != 0; }
  std::optional<Rank> AnyClosed() const;
  // Some rank has closed since this was last true. Cheap.
  bool TakeOthersClosed() {
    return own_->others_closed.value.load(std::memory_order_relaxed) != 0 &&
           own_->others_closed.value.exchange(0) != 0;
  }
  // The rank's process has ended. Known of ranks that Map was called for, whatever came of it.
  bool HasEnded(Rank rank) const {
    return peers_[rank].was_gone || HasEnded(peers_[rank].process.get());
  }

  // As Window's.
  bool BeginTouch();
  void EndTouch();

  // Lets go of the others' memory and waits until they have let go of this rank's.
  void Shut();
  // After Shut(): a stopped rank may still write to registered buffers.
  bool tainted() const { return tainted_; }

 private:
  struct Peer {
    std::byte* base = nullptr;  // of its arena
    ShmArea* area = nullptr;
    std::shared_ptr<ArenaMapping> mapping;  // none of the own
    int64_t pid = 0;
    uint64_t address = 0;               // of the area in its process
    std::shared_ptr<UniqueFd> process;  // pidfd, where there is one
    bool was_gone = false;              // there was no such process any more
    uint64_t rung = 0;                  // the sleep it was last rung from
  };

  // Where a range lies, while the arena has not changed.
  struct KnownPlace {
    const void* data = nullptr;
    int64_t bytes = 0;
    uint64_t changes = 0;
    int64_t place = 0;
  };

  ShmGroup(std::shared_ptr<SharedArena> arena, SharedBuffer area, Rank rank, int world_size,
           uint64_t nonce);
  static bool HasEnded(const UniqueFd* process);
  void WaitForBell(uint32_t seen, absl::Duration timeout);

  const std::shared_ptr<SharedArena> arena_;
  SharedBuffer buffer_;  // the own area
  const Rank rank_;
  const uint64_t nonce_;
  std::vector<Peer> peers_;  // by rank, the own included
  ShmArea* const own_;
  // The last ones: collectives come again and again with the same few buffers.
  std::array<KnownPlace, 4> known_places_;
  size_t next_known_place_ = 0;
  Mutex ring_mu_;  // held while the own bell is rung, and to give the area away
  bool shut_ ABSL_GUARDED_BY(ring_mu_) = false;
  bool tainted_ = false;
};

}  // namespace muster

#endif  // MUSTER_COLLECTIVES_TRANSPORT_SHM_SHM_GROUP_H_
