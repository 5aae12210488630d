// What the ranks of a host see of each other's memory: the layout of a rank's *area*. Plain data;
// shm_group.h maps it, shm_window.h and shm_link.h use it.
//
// An area is a ShmArea, then a ring of entries from each rank, then the blocks that carry its
// messages (shm_blocks.h). Flags that ranks read in turn lie in cache lines of their own.
//
// Memory. Of an area about 4 MiB (the stage) are there from the start. Rings (4 KiB for each peer
// that sends, so N ranks that all talk to all take N * N * 4 KiB) and blocks (3.5 MiB at most)
// take memory only when they are first used, 2 MiB at a time where there are huge pages.
#ifndef MUSTER_COLLECTIVES_TRANSPORT_SHM_SHM_AREA_H_
#define MUSTER_COLLECTIVES_TRANSPORT_SHM_SHM_AREA_H_

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "collectives/transport/window.h"

namespace muster {

inline constexpr int64_t kShmStageBytes = int64_t{4} << 20;
inline constexpr int kMaxShmRanks = 1024;

template <typename T>
struct alignas(64) ShmLine {
  std::atomic<T> value{0};
};
static_assert(std::atomic<uint64_t>::is_always_lock_free);

// A call and the meet at which it was shown: who sees the one has the other.
struct alignas(64) ShmCall {
  WindowCall call;
  std::atomic<uint64_t> meet{0};
};
static_assert(sizeof(ShmCall) == 64);
static_assert(sizeof(std::atomic<uint32_t>) == sizeof(uint32_t));

struct ShmArea {
  explicit ShmArea(uint64_t number) : nonce(number) {}

  alignas(64) const uint64_t nonce;
  // Of all ranks; rank 0's are used, where there are more than two.
  ShmLine<uint64_t> all_arrived;   // arrivals at all meets
  ShmLine<uint64_t> all_finished;  // pieces finished ever
  ShmLine<uint64_t> arrived;       // meets this rank has arrived at
  ShmLine<uint64_t> taken;         // pieces of this rank's that were taken ever, whoever did
  ShmLine<uint64_t> finished;      // pieces finished ever, by this rank
  ShmLine<uint32_t> working;       // it may have pieces to finish
  ShmLine<uint32_t> bell;          // the futex this rank sleeps on
  ShmLine<uint64_t> sleeping;  // it is about to, or does: bit 32 and the bell it has seen; else 0
  ShmLine<uint32_t> touching;  // it writes to others' registered memory
  ShmLine<uint32_t> closed;    // its registered memory is not to be touched any more
  ShmLine<uint32_t> others_closed;  // some rank has closed since this one looked
  // By rank: it will not touch this area any more.
  alignas(64) std::atomic<uint8_t> left[kMaxShmRanks] = {};
  // By rank, a bit: it has written to its ring here, or taken from this rank's.
  alignas(64) std::atomic<uint64_t> posted[kMaxShmRanks / 64] = {};
  ShmCall calls[2];
  alignas(4096) std::byte stage[kShmStageBytes];
};

enum class ShmEntryKind : uint8_t {
  // Messages, with tag and length:
  kInline = 1,  // in the entry
  kInArena,     // at a place in the sender's arena
  kAtAddress,   // at an address in the sender's process
  kStaged,      // comes in pieces when it is pulled
  // About messages:
  kPull,   // to the sender of a staged one: it is awaited
  kPiece,  // the next piece of a staged one, at a place in the sender's arena
  kTaken,  // messages and blocks that the sender has back
};

// What goes through a ring.
struct ShmEntry {
  static constexpr size_t kPayloadBytes = 96;
  static constexpr size_t kMostTaken = kPayloadBytes / sizeof(uint32_t);
  static constexpr uint32_t kBlockBit = uint32_t{1} << 31;  // of what is taken: a block's number

  ShmEntryKind kind = ShmEntryKind::kInline;
  bool counted = false;  // kInline: the sender waits for no word of it, and counts it as unserved
  uint8_t taken = 0;     // kTaken: how many
  // Messages: what kTaken calls this one, kBlockBit and block, or the number of the send.
  // kPull, kPiece: the send's number.
  uint32_t id = 0;
  uint64_t tag = 0;    // kPiece: kBlockBit and its block
  int64_t length = 0;  // kPull: pieces are to be multiples of that long
  // kInline: the message. kInArena, kPiece: the place, kAtAddress: the address, 8 bytes.
  // kTaken: ids, 4 bytes each.
  alignas(8) std::byte payload[kPayloadBytes];
};

struct ShmSlot {
  std::atomic<uint64_t> sequence;  // 1 + the number of the entry that it holds
  ShmEntry entry;
};
static_assert(sizeof(ShmSlot) == 128);

// Entries from one rank to another, in the receiver's area; cleared by the sender before its first.
struct ShmRing {
  static constexpr uint64_t kSlots = 31;

  alignas(64) std::atomic<uint64_t> taken;   // entries the receiver has done with
  std::atomic<uint64_t> served;              // counted messages that have found their receives
  alignas(64) std::atomic<uint32_t> wanted;  // the sender wants to know when more are taken
  alignas(64) ShmSlot slots[kSlots];
};
static_assert(sizeof(ShmRing) == 4096);

}  // namespace muster

#endif  // MUSTER_COLLECTIVES_TRANSPORT_SHM_SHM_AREA_H_
