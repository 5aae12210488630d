#include "worker/runtime/state_part.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"

namespace muster {

template <typename T>
BasicPart<T> BasicPart<T>::Unset(std::vector<Range> ranges, int arrays, ArrayPool* pool) {
  BasicPart part;
  part.ranges_ = std::move(ranges);
  part.starts_.reserve(part.ranges_.size());
  for (const Range& range : part.ranges_) {
    part.starts_.push_back(part.element_count_);
    part.element_count_ += range.count;
  }
  const size_t bytes = static_cast<size_t>(part.element_count_) * sizeof(T);
  for (int array = 0; array < arrays; ++array) {
    part.arrays_.push_back(pool == nullptr ? ArrayMemory(bytes) : pool->Take(bytes));
  }
  return part;
}

template <typename T>
BasicPart<T>::BasicPart(std::vector<Range> ranges, int arrays, ArrayPool* pool)
    : BasicPart(Unset(std::move(ranges), arrays, pool)) {
  for (int array = 0; array < arrays; ++array) std::ranges::fill(Array(array), T{});
}

template <typename T>
int BasicPart<T>::Find(Range range) const {
  const auto after =
      std::upper_bound(ranges_.begin(), ranges_.end(), range.offset,
                       [](int64_t offset, const Range& other) { return offset < other.offset; });
  if (after == ranges_.begin() || !std::prev(after)->Contains(range)) return -1;
  return static_cast<int>(std::prev(after) - ranges_.begin());
}

template <typename T>
absl::Span<const T> BasicPart<T>::Of(int array, Range range) const {
  if (range.count == 0) return {};
  const int index = Find(range);
  MUSTER_CHECK_GE(index, 0) << "elements " << range.offset << " to " << range.end()
                            << " are not held here";
  const auto i = static_cast<size_t>(index);
  return Array(array).subspan(static_cast<size_t>(starts_[i] + range.offset - ranges_[i].offset),
                              static_cast<size_t>(range.count));
}

template <typename T>
absl::Span<T> BasicPart<T>::Of(int array, Range range) {
  const absl::Span<const T> values = std::as_const(*this).Of(array, range);
  return {const_cast<T*>(values.data()), values.size()};
}

template <typename T>
void BasicPart<T>::ForEachHeld(Range range, absl::FunctionRef<void(Range part)> visit) const {
  auto held = std::upper_bound(ranges_.begin(), ranges_.end(), range.offset,
                               [](int64_t at, const Range& other) { return at < other.end(); });
  for (; held != ranges_.end() && held->offset < range.end(); ++held) {
    const int64_t from = std::max(held->offset, range.offset);
    visit({from, std::min(held->end(), range.end()) - from});
  }
}

template <typename T>
void BasicPart<T>::Put(int array, int64_t offset, absl::Span<const T> values) {
  ForEachHeld({offset, static_cast<int64_t>(values.size())}, [&](Range part) {
    const absl::Span<const T> piece =
        values.subspan(static_cast<size_t>(part.offset - offset), static_cast<size_t>(part.count));
    std::copy(piece.begin(), piece.end(), Of(array, part).begin());
  });
}

template <typename T>
void BasicPart<T>::Get(int array, int64_t offset, absl::Span<T> values) const {
  ForEachHeld({offset, static_cast<int64_t>(values.size())}, [&](Range part) {
    const absl::Span<const T> held = Of(array, part);
    std::copy(held.begin(), held.end(), values.begin() + (part.offset - offset));
  });
}

template <typename T>
void BasicPart<T>::Pack(Range range, absl::Span<std::byte> bytes) const {
  for (int array = 0; array < array_count(); ++array) {
    const absl::Span<const T> from = Of(array, range);
    const size_t size = from.size() * sizeof(T);
    std::memcpy(bytes.data() + static_cast<size_t>(array) * size, from.data(), size);
  }
}

template <typename T>
void BasicPart<T>::Unpack(Range range, absl::Span<const std::byte> bytes) {
  for (int array = 0; array < array_count(); ++array) {
    const absl::Span<T> to = Of(array, range);
    const size_t size = to.size() * sizeof(T);
    std::memcpy(to.data(), bytes.data() + static_cast<size_t>(array) * size, size);
  }
}

template <typename T>
void BasicPart<T>::CopyFrom(const BasicPart& other) {
  for (int array = 0; array < array_count(); ++array) {
    for (const Range& range : ranges_) other.Get(array, range.offset, Of(array, range));
  }
}

template <typename T>
void BasicPart<T>::ShrinkTo(std::vector<Range> ranges) {
  std::vector<int64_t> starts;
  int64_t count = 0;
  for (const Range& range : ranges) {
    starts.push_back(count);
    count += range.count;
  }
  for (int array = 0; array < array_count(); ++array) {
    T* const to = Array(array).data();
    // In order, so that nothing is overwritten before it has moved: no range moves up.
    for (size_t i = 0; i < ranges.size(); ++i) {
      const absl::Span<const T> from = Of(array, ranges[i]);
      std::memmove(to + starts[i], from.data(), from.size() * sizeof(T));
    }
    arrays_[static_cast<size_t>(array)].LetGoBehind(static_cast<size_t>(count) * sizeof(T));
  }
  ranges_ = std::move(ranges);
  starts_ = std::move(starts);
  element_count_ = count;
}

template class BasicPart<float>;
template class BasicPart<uint16_t>;

}  // namespace muster
