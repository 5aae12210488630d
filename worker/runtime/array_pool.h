// Memory of large arrays that is used again: the first touch of fresh pages costs more than the
// copy that fills them, and when the strategy changes a job stands still meanwhile.
//
// What is given back is kept, up to a limit, in a form that the kernel may take at any time
// (MADV_FREE), without asking and before it lacks memory for anything else. So it is free as far as
// other processes are concerned, though a resident set goes on showing it until then.
//
// Thread-compatible; a pool outlives its arrays.
#ifndef MUSTER_WORKER_RUNTIME_ARRAY_POOL_H_
#define MUSTER_WORKER_RUNTIME_ARRAY_POOL_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace muster {

class ArrayPool;

// Memory of a pool, which gets it back, or of the heap. Movable.
class ArrayMemory {
 public:
  ArrayMemory() = default;
  // Of the heap. Contents are anything.
  explicit ArrayMemory(size_t bytes) : memory_(new std::byte[bytes]), bytes_(bytes) {}
  ArrayMemory(ArrayMemory&& other) noexcept { *this = std::move(other); }
  ArrayMemory& operator=(ArrayMemory&& other) noexcept;
  ~ArrayMemory() { Reset(); }

  std::byte* data() const { return memory_.get(); }
  // Lets the kernel take what lies behind the first `bytes`; its contents are anything from now on.
  void LetGoBehind(size_t bytes);
  void Reset();

 private:
  friend class ArrayPool;
  std::unique_ptr<std::byte[]> memory_;
  size_t bytes_ = 0;  // as allocated: at least what was asked for
  ArrayPool* pool_ = nullptr;
};

class ArrayPool {
 public:
  explicit ArrayPool(size_t max_idle_bytes) : max_idle_bytes_(max_idle_bytes) {}
  ArrayPool(const ArrayPool&) = delete;
  ArrayPool& operator=(const ArrayPool&) = delete;

  // At least `bytes`, with anything in them. A larger array serves as well: of what is idle only
  // those pages take memory that are touched.
  ArrayMemory Take(size_t bytes);

  size_t idle_bytes() const { return idle_bytes_; }

 private:
  friend class ArrayMemory;
  void Return(ArrayMemory memory);

  const size_t max_idle_bytes_;
  size_t idle_bytes_ = 0;
  std::vector<ArrayMemory> idle_;  // the one that has waited longest first
};

}  // namespace muster

#endif  // MUSTER_WORKER_RUNTIME_ARRAY_POOL_H_
