// What a worker keeps of arrays over the flat space (parameters, the optimizer's slots, a
// gradient): some ranges, or all of it. They lie one range after the other, in arrays no longer
// than the ranges together. Thread-compatible.
#ifndef MUSTER_WORKER_RUNTIME_STATE_PART_H_
#define MUSTER_WORKER_RUNTIME_STATE_PART_H_

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "state/range.h"

namespace muster {

template <typename T>
class BasicPart {
 public:
  // Nothing.
  BasicPart() = default;
  // `ranges` in order of offset, none of them empty or touching the next; `arrays` arrays of zeros.
  BasicPart(std::vector<Range> ranges, int arrays);

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
  // An array as it lies here: the flat space, if all of that is kept.
  absl::Span<T> Array(int array) { return absl::MakeSpan(arrays_[static_cast<size_t>(array)]); }
  absl::Span<const T> Array(int array) const { return arrays_[static_cast<size_t>(array)]; }
  // The arrays; nothing is left.
  std::vector<std::vector<T>> TakeArrays() && { return std::move(arrays_); }

  // All arrays, one after the other, of `range`, as bytes. Requires: Holds(range).
  void Pack(Range range, absl::Span<std::byte> bytes) const;
  void Unpack(Range range, absl::Span<const std::byte> bytes);

  // Copies what both hold.
  void CopyFrom(const BasicPart& other);

 private:
  // The index of the range that holds `range`; -1: none.
  int Find(Range range) const;

  std::vector<Range> ranges_;
  std::vector<int64_t> starts_;  // of each range, in the arrays
  std::vector<std::vector<T>> arrays_;
  int64_t element_count_ = 0;
};

using StatePart = BasicPart<float>;
using HalfPart = BasicPart<uint16_t>;  // of a 16-bit float format

}  // namespace muster

#endif  // MUSTER_WORKER_RUNTIME_STATE_PART_H_
