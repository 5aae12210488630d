// Elements in memory that the collectives of a host reach in place, where there is such memory.
#ifndef MUSTER_WORKER_RUNTIME_ELEMENT_BUFFER_H_
#define MUSTER_WORKER_RUNTIME_ELEMENT_BUFFER_H_

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/dtype.h"
#include "collectives/transport/shm/shared_arena.h"

namespace muster {

// Movable. Thread-compatible.
class ElementBuffer {
 public:
  // Empty.
  ElementBuffer() = default;
  // `count` zeros, from `arena` or, if that is null, from the heap. RESOURCE_EXHAUSTED.
  static absl::StatusOr<ElementBuffer> Allocate(const std::shared_ptr<SharedArena>& arena,
                                                DType dtype, int64_t count);

  bool empty() const { return count_ == 0; }
  DType dtype() const { return dtype_; }
  int64_t count() const { return count_; }
  // Null if the buffer is empty.
  std::byte* at(int64_t element) const {
    return data_ == nullptr ? nullptr : data_ + element * static_cast<int64_t>(SizeOf(dtype_));
  }
  // Requires: the buffer is empty or its type is f32, or one of 16 bits.
  absl::Span<float> floats() const;
  absl::Span<uint16_t> halves() const;
  // Takes the memory out of reach of processes that could write to it so far; the values stay.
  absl::Status Renew();

 private:
  SharedBuffer shared_;
  std::unique_ptr<std::byte[]> own_;
  std::byte* data_ = nullptr;
  DType dtype_ = DType::kF32;
  int64_t count_ = 0;
};

}  // namespace muster

#endif  // MUSTER_WORKER_RUNTIME_ELEMENT_BUFFER_H_
