// What a worker keeps of arrays over the flat space (parameters, the optimizer's slots, a
// gradient): some ranges, or all of it. They lie one range after the other, in arrays no longer
// than the ranges together. Thread-compatible.
#ifndef MUSTER_WORKER_RUNTIME_STATE_PART_H_
#define MUSTER_WORKER_RUNTIME_STATE_PART_H_

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/types/span.h"
#include "state/range.h"
#include "worker/runtime/array_pool.h"

namespace muster {

template <typename T>
class BasicPart {
 public:
  // Nothing.
  BasicPart() = default;
  // `ranges` in order of offset, none of them empty or touching the next; `arrays` arrays of zeros.
  // Memory is of `pool`, if it is given, which must then outlive the part.
  BasicPart(std::vector<Range> ranges, int arrays, ArrayPool* pool = nullptr);
  // The same, with anything in the arrays: for what is written before it is read.
  static BasicPart Unset(std::vector<Range> ranges, int arrays, ArrayPool* pool = nullptr);

  const std::vector<Range>& ranges() const { return ranges_; }
  int array_count() const { return static_cast<int>(arrays_.size()); }
  int64_t element_count() const { return element_count_; }

  // Whether every element of `range` is here.
  bool Holds(Range range) const { return Find(range) >= 0; }
  // One array's elements of `range`. Requires: Holds(range).
  absl::Span<T> Of(int array, Range range);
  absl::Span<const T> Of(int array, Range range) const;
  // Copies what is kept of elements [offset, offset + values.size()) into an array.
  void Put(int array, int64_t offset, absl::Span<const T> values);
  // The other way: the rest of `values` stays as it is.
  void Get(int array, int64_t offset, absl::Span<T> values) const;
  // An array as it lies here: the flat space, if all of that is kept.
  absl::Span<T> Array(int array) {
    return {reinterpret_cast<T*>(arrays_[static_cast<size_t>(array)].data()),
            static_cast<size_t>(element_count_)};
  }
  absl::Span<const T> Array(int array) const {
    return {reinterpret_cast<const T*>(arrays_[static_cast<size_t>(array)].data()),
            static_cast<size_t>(element_count_)};
  }

  // All arrays, one after the other, of `range`, as bytes. Requires: Holds(range).
  void Pack(Range range, absl::Span<std::byte> bytes) const;
  void Unpack(Range range, absl::Span<const std::byte> bytes);

  // Copies what both hold.
  void CopyFrom(const BasicPart& other);
  // Keeps only these, which are held, in the memory that is here already; what is left of it is the
  // kernel's to take.
  void ShrinkTo(std::vector<Range> ranges);

 private:
  // The index of the range that holds `range`; -1: none.
  int Find(Range range) const;
  // Calls visit for the parts of `range` that are held.
  void ForEachHeld(Range range, absl::FunctionRef<void(Range part)> visit) const;

  std::vector<Range> ranges_;
  std::vector<int64_t> starts_;  // of each range, in the arrays
  std::vector<ArrayMemory> arrays_;
  int64_t element_count_ = 0;
};

using StatePart = BasicPart<float>;
using HalfPart = BasicPart<uint16_t>;  // of a 16-bit float format

}  // namespace muster

#endif  // MUSTER_WORKER_RUNTIME_STATE_PART_H_
