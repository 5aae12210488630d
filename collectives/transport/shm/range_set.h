// A set of integers, kept as the fewest ranges [begin, end). Thread-compatible.
#ifndef MUSTER_COLLECTIVES_TRANSPORT_SHM_RANGE_SET_H_
#define MUSTER_COLLECTIVES_TRANSPORT_SHM_RANGE_SET_H_

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>

namespace muster {

class RangeSet {
 public:
  // All of [begin, end) is in it.
  bool Covers(int64_t begin, int64_t end) const {
    if (begin >= end) return true;
    const auto after = ranges_.upper_bound(begin);
    return after != ranges_.begin() && std::prev(after)->second >= end;
  }

  void Add(int64_t begin, int64_t end) {
    if (begin >= end) return;
    auto at = ranges_.upper_bound(begin);
    if (at != ranges_.begin() && std::prev(at)->second >= begin) --at;
    while (at != ranges_.end() && at->first <= end) {
      begin = std::min(begin, at->first);
      end = std::max(end, at->second);
      at = ranges_.erase(at);
    }
    ranges_.emplace(begin, end);
  }

  // How many ranges it takes.
  int64_t ranges() const { return static_cast<int64_t>(ranges_.size()); }

 private:
  std::map<int64_t, int64_t> ranges_;  // begin -> end; neither overlapping nor adjacent
};

}  // namespace muster

#endif  // MUSTER_COLLECTIVES_TRANSPORT_SHM_RANGE_SET_H_
