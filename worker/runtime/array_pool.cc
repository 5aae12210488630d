#include "worker/runtime/array_pool.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>

namespace muster {
namespace {

// Tells the kernel something of the pages that lie wholly in the array.
void Advise(std::byte* data, size_t bytes, int advice) {
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const uintptr_t begin = (reinterpret_cast<uintptr_t>(data) + page - 1) / page * page;
  const uintptr_t end = (reinterpret_cast<uintptr_t>(data) + bytes) / page * page;
  // Where a kernel knows no such thing the pages stay, or come one by one, as in any allocator.
  if (begin < end) (void)madvise(reinterpret_cast<void*>(begin), end - begin, advice);
}

}  // namespace

ArrayMemory& ArrayMemory::operator=(ArrayMemory&& other) noexcept {
  if (this == &other) return *this;
  Reset();
  memory_ = std::move(other.memory_);
  bytes_ = std::exchange(other.bytes_, 0);
  pool_ = std::exchange(other.pool_, nullptr);
  return *this;
}

void ArrayMemory::LetGoBehind(size_t bytes) {
  if (bytes < bytes_) Advise(data() + bytes, bytes_ - bytes, MADV_FREE);
}

void ArrayMemory::Reset() {
  ArrayPool* const pool = std::exchange(pool_, nullptr);
  if (pool != nullptr && memory_ != nullptr) pool->Return(std::move(*this));
  memory_.reset();
  bytes_ = 0;
}

ArrayMemory ArrayPool::Take(size_t bytes) {
  auto best = idle_.end();
  for (auto it = idle_.begin(); it != idle_.end(); ++it) {
    if (it->bytes_ >= bytes && (best == idle_.end() || it->bytes_ < best->bytes_)) best = it;
  }
  ArrayMemory memory;
  if (best != idle_.end()) {
    memory = std::move(*best);
    idle_.erase(best);
    idle_bytes_ -= memory.bytes_;
  } else {
    memory = ArrayMemory(bytes);
#ifdef MADV_POPULATE_WRITE
    // All will be written, and a page that has to be missed first takes twice as long.
    Advise(memory.data(), bytes, MADV_POPULATE_WRITE);
#endif
  }
  memory.pool_ = this;
  return memory;
}

void ArrayPool::Return(ArrayMemory memory) {
  if (memory.bytes_ > max_idle_bytes_) return;
  while (idle_bytes_ + memory.bytes_ > max_idle_bytes_) {
    idle_bytes_ -= idle_.front().bytes_;
    idle_.erase(idle_.begin());
  }
  Advise(memory.data(), memory.bytes_, MADV_FREE);
  idle_bytes_ += memory.bytes_;
  idle_.push_back(std::move(memory));
}

}  // namespace muster
