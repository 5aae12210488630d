#include "server/parameter_server/core/interval_set.h"

#include <algorithm>

namespace muster {

void IntervalSet::Add(Range range) {
  if (range.count <= 0) return;
  // Those that overlap or touch `range` become one with it.
  const auto first = std::partition_point(intervals_.begin(), intervals_.end(),
                                          [&](const Range& r) { return r.end() < range.offset; });
  auto last = first;
  int64_t begin = range.offset;
  int64_t end = range.end();
  for (; last != intervals_.end() && last->offset <= range.end(); ++last) {
    begin = std::min(begin, last->offset);
    end = std::max(end, last->end());
    size_ -= last->count;
  }
  size_ += end - begin;
  const auto at = intervals_.erase(first, last);
  intervals_.insert(at, {.offset = begin, .count = end - begin});
}

bool IntervalSet::Contains(Range range) const {
  bool missing = false;
  ForEachMissing(range, [&](Range) { missing = true; });
  return !missing;
}

void IntervalSet::ForEachMissing(Range range, absl::FunctionRef<void(Range part)> visit) const {
  int64_t at = range.offset;
  auto it = std::partition_point(intervals_.begin(), intervals_.end(),
                                 [&](const Range& r) { return r.end() <= at; });
  for (; at < range.end(); ++it) {
    const int64_t next = it == intervals_.end() ? range.end() : std::min(it->offset, range.end());
    if (next > at) visit({.offset = at, .count = next - at});
    if (it == intervals_.end()) return;
    at = std::max(at, it->end());
  }
}

}  // namespace muster
