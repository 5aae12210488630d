// Floats in memory that the collectives of a host reach in place, where there is such memory.
#ifndef MUSTER_WORKER_RUNTIME_FLOAT_BUFFER_H_
#define MUSTER_WORKER_RUNTIME_FLOAT_BUFFER_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "collectives/transport/shm/shared_arena.h"

namespace muster {

// Movable. Thread-compatible.
class FloatBuffer {
 public:
  // Empty.
  FloatBuffer() = default;
  // `count` zeros, from `arena` or, if that is null, from the heap. RESOURCE_EXHAUSTED.
  static absl::StatusOr<FloatBuffer> Allocate(const std::shared_ptr<SharedArena>& arena,
                                              int64_t count);

  absl::Span<float> span() const { return span_; }
  bool empty() const { return span_.empty(); }
  // Takes the memory out of reach of processes that could write to it so far; the values stay.
  absl::Status Renew();

 private:
  SharedBuffer shared_;
  std::vector<float> own_;
  absl::Span<float> span_;
};

}  // namespace muster

#endif  // MUSTER_WORKER_RUNTIME_FLOAT_BUFFER_H_
