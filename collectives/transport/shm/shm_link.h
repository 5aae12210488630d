// The two rings between this rank and a peer, and what waits for room in the one that leads there.
//
// Used by the thread that drives.
#ifndef MUSTER_COLLECTIVES_TRANSPORT_SHM_SHM_LINK_H_
#define MUSTER_COLLECTIVES_TRANSPORT_SHM_SHM_LINK_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "collectives/transport/shm/shm_area.h"
#include "collectives/transport/shm/shm_group.h"

namespace muster {

class ShmLink {
 public:
  // `waiting_links` counts the links of a mesh in which something waits for room; it must outlive
  // the object.
  ShmLink(ShmGroup& group, Rank peer, std::atomic<int>& waiting_links);

  // Out. Sends an entry with that much of its payload, now or when there is room; then appends
  // `token`, if any, to *completed. Without `wake` a sleeping peer sees it when it next wakes.
  void Send(const ShmEntry& entry, size_t payload_bytes, bool wake, std::optional<uint64_t> token,
            std::vector<uint64_t>* completed);
  // Sends what there is room for by now.
  void Flush(std::vector<uint64_t>* completed);
  bool has_queued() const { return !queued_.empty(); }
  // Messages among what is queued.
  int queued_messages() const { return queued_messages_; }
  // Counted messages that have found their receives at the peer.
  uint64_t served() const { return sent_ == 0 ? 0 : out_.served.load(std::memory_order_acquire); }

  // In. The next entry that has come, or null. It may be read until Pop().
  const ShmEntry* Next() const {
    const ShmSlot& slot = in_.slots[received_ % ShmRing::kSlots];
    return slot.sequence.load(std::memory_order_acquire) == received_ + 1 ? &slot.entry : nullptr;
  }
  void Pop() { ++received_; }
  // Lets the peer use the slots popped.
  void Release();
  // One of the peer's counted messages has found its receive.
  void NoteServed() { in_.served.store(++served_, std::memory_order_release); }

 private:
  struct Queued {
    ShmEntry entry;
    size_t payload_bytes = 0;
    bool wake = false;
    std::optional<uint64_t> token;
  };
  bool HasRoom();
  void Write(const ShmEntry& entry, size_t payload_bytes, bool wake);
  void Notify(bool wake);

  ShmGroup& group_;
  const Rank peer_;
  std::atomic<int>& waiting_links_;
  ShmRing& out_;
  ShmRing& in_;
  // The word and bit of the peer's area that say that this rank has done something.
  std::atomic<uint64_t>& posted_;
  const uint64_t bit_;
  uint64_t sent_ = 0;
  uint64_t known_taken_ = 0;  // of what was sent
  uint64_t received_ = 0;
  uint64_t released_ = 0;
  uint64_t served_ = 0;
  int queued_messages_ = 0;
  std::deque<Queued> queued_;
};

}  // namespace muster

#endif  // MUSTER_COLLECTIVES_TRANSPORT_SHM_SHM_LINK_H_
