// What was received of pushes to a sparse table, and its sum in a fixed order (sparse_table.h).
//
// Thread-compatible.
#ifndef MUSTER_SERVER_PARAMETER_SERVER_CORE_SPARSE_CONTRIBUTIONS_H_
#define MUSTER_SERVER_PARAMETER_SERVER_CORE_SPARSE_CONTRIBUTIONS_H_

#include <cstdint>
#include <map>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/types/span.h"
#include "server/parameter_server/core/buffer_pool.h"
#include "server/parameter_server/core/contributions.h"
#include "server/parameter_server/core/gradient_bytes.h"
#include "server/parameter_server/core/table_messages.h"

namespace muster {

// Rows with one gradient each, in the order in which they first came.
class RowSums {
 public:
  explicit RowSums(int64_t width) : width_(width) {}

  // The row's gradient += values, or = values if it is new.
  void Add(int64_t row, absl::Span<const float> values);
  void Add(const RowSums& other);

  const std::vector<int64_t>& rows() const { return rows_; }
  absl::Span<const float> values(size_t index) const {
    return absl::MakeConstSpan(values_).subspan(index * width_, width_);
  }
  absl::Span<const float> all_values() const { return values_; }

 private:
  int64_t width_;
  absl::flat_hash_map<int64_t, size_t> index_;
  std::vector<int64_t> rows_;
  std::vector<float> values_;
};

class SparseContributions {
 public:
  // `pool` and `account` must outlive the object.
  SparseContributions(const Contributions& contributions, int64_t width, BufferPool& pool,
                      MemoryAccount& account);

  // The push of a micro-batch that is under way or waits for the others of its step.
  struct Push {
    Step step = 0;
    int64_t samples = 0;
    int32_t chunk_count = 1;
    struct Chunk {
      std::vector<int64_t> rows;
      TakenBytes row_bytes;
      PooledFloats values;  // none if there are no rows
    };
    std::map<int32_t, Chunk> chunks;
    bool complete() const { return static_cast<int32_t>(chunks.size()) == chunk_count; }
  };
  const Push* Find(int32_t micro_batch) const;

  // Adds a chunk. `rows` are the push's, one by one. Requires: the push under way, if there is one,
  // has this step, these samples and this number of chunks, and not this chunk.
  const Push& Add(const SparsePush& push, absl::Span<const int64_t> rows);
  void Remove(int32_t micro_batch);
  void Clear();

  // Micro-batches whose push is complete.
  int32_t complete_count() const { return complete_; }
  // Of all that are complete.
  int64_t SamplesOfStep() const;

  // Sums of one push, and of a whole step. Rows that came more than once are counted in `merged`.
  RowSums SumOfPush(int32_t micro_batch, int64_t* merged) const;
  RowSums SumOfStep(int64_t* merged) const;

  int64_t held_bytes() const { return held_bytes_; }
  // What a chunk of so many rows holds.
  int64_t BytesFor(int64_t rows) const;

 private:
  const Contributions contributions_;
  const int64_t width_;
  BufferPool& pool_;
  MemoryAccount& account_;
  std::map<int32_t, Push> pushes_;  // by micro-batch
  int32_t complete_ = 0;
  int64_t held_bytes_ = 0;
};

}  // namespace muster

#endif  // MUSTER_SERVER_PARAMETER_SERVER_CORE_SPARSE_CONTRIBUTIONS_H_
