#include "worker/runtime/state_part.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"

namespace muster {

template <typename T>
BasicPart<T>::BasicPart(std::vector<Range> ranges, int arrays) : ranges_(std::move(ranges)) {
  starts_.reserve(ranges_.size());
  for (const Range& range : ranges_) {
    starts_.push_back(element_count_);
    element_count_ += range.count;
  }
  arrays_.assign(static_cast<size_t>(arrays), std::vector<T>(static_cast<size_t>(element_count_)));
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
  return absl::MakeConstSpan(arrays_[static_cast<size_t>(array)])
      .subspan(static_cast<size_t>(starts_[i] + range.offset - ranges_[i].offset),
               static_cast<size_t>(range.count));
}

template <typename T>
absl::Span<T> BasicPart<T>::Of(int array, Range range) {
  const absl::Span<const T> values = std::as_const(*this).Of(array, range);
  return {const_cast<T*>(values.data()), values.size()};
}

template <typename T>
void BasicPart<T>::Put(int array, int64_t offset, absl::Span<const T> values) {
  const int64_t end = offset + static_cast<int64_t>(values.size());
  auto first = std::upper_bound(ranges_.begin(), ranges_.end(), offset,
                                [](int64_t at, const Range& range) { return at < range.end(); });
  for (; first != ranges_.end() && first->offset < end; ++first) {
    const int64_t from = std::max(first->offset, offset);
    const int64_t to = std::min(first->end(), end);
    const absl::Span<const T> piece =
        values.subspan(static_cast<size_t>(from - offset), static_cast<size_t>(to - from));
    std::copy(piece.begin(), piece.end(), Of(array, {from, to - from}).begin());
  }
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
  size_t i = 0;
  size_t j = 0;
  while (i < ranges_.size() && j < other.ranges_.size()) {
    const Range& mine = ranges_[i];
    const Range& theirs = other.ranges_[j];
    const int64_t begin = std::max(mine.offset, theirs.offset);
    const int64_t end = std::min(mine.end(), theirs.end());
    if (begin < end) {
      const Range both{begin, end - begin};
      for (int array = 0; array < array_count(); ++array) {
        const absl::Span<const T> from = other.Of(array, both);
        std::copy(from.begin(), from.end(), Of(array, both).begin());
      }
    }
    ++(mine.end() < theirs.end() ? i : j);
  }
}

template class BasicPart<float>;
template class BasicPart<uint16_t>;

}  // namespace muster
