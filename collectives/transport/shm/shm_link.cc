#include "collectives/transport/shm/shm_link.h"

#include <cstring>

namespace muster {
namespace {

bool IsMessage(const ShmEntry& entry) { return entry.kind <= ShmEntryKind::kStaged; }

void CopyEntry(const ShmEntry& from, size_t payload_bytes, ShmEntry* to) {
  std::memcpy(static_cast<void*>(to), &from, offsetof(ShmEntry, payload) + payload_bytes);
}

}  // namespace

ShmLink::ShmLink(ShmGroup& group, Rank peer, std::atomic<int>& waiting_links)
    : group_(group),
      peer_(peer),
      waiting_links_(waiting_links),
      out_(group.Ring(group.rank(), peer)),
      in_(group.Ring(peer, group.rank())),
      posted_(group.area(peer).posted[static_cast<size_t>(group.rank()) / 64]),
      bit_(uint64_t{1} << (static_cast<size_t>(group.rank()) % 64)) {}

bool ShmLink::HasRoom() {
  if (sent_ == 0) {
    // The memory may have been another mesh's. The peer does not look before it is told.
    std::memset(static_cast<void*>(&out_), 0, sizeof(out_));
    return true;
  }
  if (sent_ - known_taken_ < ShmRing::kSlots) return true;
  known_taken_ = out_.taken.load(std::memory_order_acquire);
  return sent_ - known_taken_ < ShmRing::kSlots;
}

void ShmLink::Notify(bool wake) {
  // Sequentially consistent: what was written is seen by a peer that clears the bit after this.
  posted_.fetch_or(bit_);
  if (wake) group_.Wake(peer_);
}

void ShmLink::Write(const ShmEntry& entry, size_t payload_bytes, bool wake) {
  ShmSlot& slot = out_.slots[sent_ % ShmRing::kSlots];
  CopyEntry(entry, payload_bytes, &slot.entry);
  slot.sequence.store(++sent_, std::memory_order_release);
  Notify(wake);
}

void ShmLink::Send(const ShmEntry& entry, size_t payload_bytes, bool wake,
                   std::optional<uint64_t> token, std::vector<uint64_t>* completed) {
  if (queued_.empty() && HasRoom()) {
    Write(entry, payload_bytes, wake);
    if (token.has_value()) completed->push_back(*token);
    return;
  }
  if (queued_.empty()) ++waiting_links_;
  Queued& queued = queued_.emplace_back();
  CopyEntry(entry, payload_bytes, &queued.entry);
  queued.payload_bytes = payload_bytes;
  queued.wake = wake;
  queued.token = token;
  queued_messages_ += IsMessage(entry) ? 1 : 0;
  Flush(completed);
}

void ShmLink::Flush(std::vector<uint64_t>* completed) {
  bool asked = false;
  while (!queued_.empty()) {
    if (!HasRoom()) {
      if (asked) {
        // It may sleep over entries that were no reason to wake it; what waits for them may be one.
        group_.Wake(peer_);
        return;
      }
      // Asks to be told, then looks again: the peer may have made room before it saw the wish.
      out_.wanted.store(1);
      asked = true;
      continue;
    }
    const Queued& next = queued_.front();
    Write(next.entry, next.payload_bytes, next.wake);
    if (next.token.has_value()) completed->push_back(*next.token);
    queued_messages_ -= IsMessage(next.entry) ? 1 : 0;
    queued_.pop_front();
    if (queued_.empty()) --waiting_links_;
    asked = false;
  }
}

void ShmLink::Release() {
  if (released_ == received_) return;
  released_ = received_;
  in_.taken.store(received_);  // Sequentially consistent, as is the peer's wish.
  if (in_.wanted.load() != 0 && in_.wanted.exchange(0) != 0) Notify(/*wake=*/true);
}

}  // namespace muster
