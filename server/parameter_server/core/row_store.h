// Rows of a sparse table with their optimizer state. A row exists from its first touch on; others
// have their initial values, which are computed when asked for.
//
// Thread-compatible.
#ifndef MUSTER_SERVER_PARAMETER_SERVER_CORE_ROW_STORE_H_
#define MUSTER_SERVER_PARAMETER_SERVER_CORE_ROW_STORE_H_

#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/types/span.h"
#include "server/parameter_server/core/buffer_pool.h"
#include "state/layout.h"
#include "state/range.h"
#include "state/update_rule.h"

namespace muster {

class RowStore {
 public:
  // Rows `range` of the layout's only tensor, of shape (rows, width). All must outlive the object.
  RowStore(const Layout& layout, uint64_t seed, Range range, const UpdateRule& rule,
           BufferPool& pool, MemoryAccount& account);
  ~RowStore();

  Range range() const { return range_; }
  int64_t width() const { return width_; }
  int64_t row_count() const { return static_cast<int64_t>(index_.size()); }
  int64_t bytes() const { return bytes_; }  // of rows and their index

  // Makes the rows exist. False if the budget has no room: some may exist then. Requires: they lie
  // in the range.
  bool Touch(absl::Span<const int64_t> rows);
  // Makes all rows not exist.
  void Clear();
  // Writes a row's parameters, whether it exists or not.
  void Read(int64_t row, absl::Span<float> values) const;
  // Updates a row. Requires: it exists.
  void Apply(int64_t row, const UpdateScalars& scalars, absl::Span<const float> gradient);

  // Numbers of the rows that exist, rising.
  std::vector<int64_t> Rows() const;
  // Parameters (0) or a slot (1 ...) of a row. Requires: it exists.
  absl::Span<const float> Array(int64_t row, int array) const;
  absl::Span<float> MutableArray(int64_t row, int array);

 private:
  // Beside its floats: number, place, and what a hash table keeps free.
  static constexpr int64_t kIndexBytes = 40;

  float* PlaceOf(int64_t row) const;

  const Layout& layout_;
  const uint64_t seed_;
  const Range range_;
  const int64_t width_;
  const UpdateRule& rule_;
  const int64_t floats_per_row_;
  const int64_t rows_per_slab_;
  BufferPool& pool_;
  MemoryAccount& account_;
  absl::flat_hash_map<int64_t, int64_t> index_;  // row -> place
  std::vector<PooledFloats> slabs_;
  int64_t bytes_ = 0;
};

}  // namespace muster

#endif  // MUSTER_SERVER_PARAMETER_SERVER_CORE_ROW_STORE_H_
