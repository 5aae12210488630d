// Memory of this process that other processes of the host can map: one sparse memfd, from which
// buffers are allocated. It has no name anywhere, so nothing of it is left behind however the
// process ends.
//
// A buffer's address never changes, but the pages behind it can be exchanged (Renew), which takes
// the old ones out of reach of a process that may still write to them.
//
// Freed memory is kept for reuse, not given back to the system.
//
// Thread-safe.
#ifndef MUSTER_COLLECTIVES_TRANSPORT_SHM_SHARED_ARENA_H_
#define MUSTER_COLLECTIVES_TRANSPORT_SHM_SHARED_ARENA_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/mutex.h"
#include "collectives/transport/shm/arena_mappings.h"
#include "collectives/transport/socket.h"

namespace muster {

class SharedArena;

// Owns a buffer of an arena, which it keeps alive. Movable.
class SharedBuffer {
 public:
  SharedBuffer() = default;
  SharedBuffer(SharedBuffer&& other) noexcept;
  SharedBuffer& operator=(SharedBuffer&& other) noexcept;
  ~SharedBuffer();

  std::byte* data() const { return data_; }
  int64_t size() const { return size_; }

  // Puts fresh pages with the same contents behind the buffer. The old pages are never used again.
  // Requires: no other thread of this process touches the buffer meanwhile.
  absl::Status Renew();

 private:
  friend class SharedArena;
  std::shared_ptr<SharedArena> arena_;
  std::byte* data_ = nullptr;
  int64_t size_ = 0;
};

class SharedArena : public std::enable_shared_from_this<SharedArena> {
 public:
  // Buffers begin at multiples of this in memory and in the file.
  static constexpr int64_t kAlignment = 4096;

  struct Options {
    // Address space reserved, here and in each process that maps the arena. Memory is taken only
    // for what is allocated. 0: twice the machine's memory, but 1 TiB at most, so that a hundred
    // ranks of a host have addresses for each other's (of the 128 TiB that a process has).
    int64_t capacity_bytes = 0;
    // Asks for huge pages; the kernel may not grant them.
    bool huge_pages = true;
  };
  // RESOURCE_EXHAUSTED, UNAVAILABLE: the kernel's refusal.
  static absl::StatusOr<std::shared_ptr<SharedArena>> Create(Options options);
  static absl::StatusOr<std::shared_ptr<SharedArena>> Create() { return Create(Options()); }
  ~SharedArena();

  // `bytes` of memory that is there (no page fault is left to the first use) with unspecified
  // contents. RESOURCE_EXHAUSTED names what was asked for and what is left.
  absl::StatusOr<SharedBuffer> Allocate(int64_t bytes) { return Allocate(bytes, bytes); }
  // The same, but only the first `there` bytes are there; the others come when they are touched.
  absl::StatusOr<SharedBuffer> Allocate(int64_t bytes, int64_t there);

  // Where in the file [data, data + bytes) lies; nothing if it is not in one buffer of this arena.
  std::optional<int64_t> OffsetOf(const void* data, int64_t bytes) const;

  // Changes when what OffsetOf has said of some buffer may hold no more: after it was freed or
  // renewed.
  uint64_t changes() const { return changes_.load(std::memory_order_acquire); }

  // Frees the buffer once `gone` says that nobody else can write to it any more; it is asked now
  // and then, at allocations.
  void Abandon(SharedBuffer buffer, std::function<bool()> gone) ABSL_LOCKS_EXCLUDED(mu_);

  // Those of the processes that this one shares memory with.
  ArenaMappings& others() { return others_; }

  int fd() const { return file_.get(); }
  int64_t capacity() const { return capacity_; }

 private:
  friend class SharedBuffer;
  struct Abandoned {
    SharedBuffer buffer;
    std::function<bool()> gone;
  };
  struct Extent {
    int64_t size = 0;         // rounded up
    int64_t file_offset = 0;  // of the pages behind it
  };

  SharedArena(UniqueFd file, std::byte* base, int64_t capacity);
  // Takes a range of the file out of the free list.
  absl::StatusOr<int64_t> Take(int64_t size) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Give(int64_t offset, int64_t size) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status Populate(std::byte* at, int64_t size) const;
  void FreeAbandoned() ABSL_LOCKS_EXCLUDED(mu_);
  void Free(std::byte* data) ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status Renew(std::byte* data) ABSL_LOCKS_EXCLUDED(mu_);

  const UniqueFd file_;
  std::byte* const base_;
  const int64_t capacity_;
  ArenaMappings others_;
  std::atomic<uint64_t> changes_{0};
  mutable Mutex mu_;
  std::map<int64_t, int64_t> free_ ABSL_GUARDED_BY(mu_);    // offset -> size, never adjacent
  std::vector<Abandoned> abandoned_ ABSL_GUARDED_BY(mu_);   // their arena_ is empty
  std::map<int64_t, Extent> extents_ ABSL_GUARDED_BY(mu_);  // by offset of the address from base_
};

}  // namespace muster

#endif  // MUSTER_COLLECTIVES_TRANSPORT_SHM_SHARED_ARENA_H_
