// Pushes to a dense table that have come in part: kept until they are whole, in the table's range.
//
// One push of a micro-batch is under way at a time. Its memory is taken at its first chunk, so that
// a push that was begun can be finished.
//
// Thread-compatible.
#ifndef MUSTER_SERVER_PARAMETER_SERVER_CORE_PUSH_ASSEMBLY_H_
#define MUSTER_SERVER_PARAMETER_SERVER_CORE_PUSH_ASSEMBLY_H_

#include <cstdint>
#include <map>

#include "absl/types/span.h"
#include "base/ids.h"
#include "server/parameter_server/core/buffer_pool.h"
#include "server/parameter_server/core/gradient_bytes.h"
#include "server/parameter_server/core/interval_set.h"
#include "server/parameter_server/core/table_messages.h"
#include "state/range.h"

namespace muster {

class PushAssembly {
 public:
  // `pool` must outlive the object.
  PushAssembly(Range range, BufferPool& pool) : range_(range), pool_(pool) {}

  struct Push {
    Step step = 0;
    int64_t samples = 0;
    PooledFloats values;  // of the range
    IntervalSet have;
  };

  // The push of this micro-batch that is under way, if there is one.
  const Push* Find(int32_t micro_batch) const;
  bool Received(int32_t micro_batch, Range range) const;
  // Adds a chunk of the push under way, or begins one. Returns it. Requires: its step is that of
  // the one under way.
  Push& Add(PushId id, int64_t samples, Range range, const GradientBytes& values);
  // Ends the push under way, whole or not.
  void Remove(int32_t micro_batch);

  int64_t held_bytes() const { return held_bytes_; }
  int64_t bytes_of_push() const { return BufferPool::BytesFor(range_.count); }

 private:
  const Range range_;
  BufferPool& pool_;
  std::map<int32_t, Push> pushes_;
  int64_t held_bytes_ = 0;
};

}  // namespace muster

#endif  // MUSTER_SERVER_PARAMETER_SERVER_CORE_PUSH_ASSEMBLY_H_
