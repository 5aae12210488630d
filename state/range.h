// Elements [offset, offset + count) of the flat parameter space (state/layout.h). A value.
#ifndef MUSTER_STATE_RANGE_H_
#define MUSTER_STATE_RANGE_H_

#include <cstdint>

namespace muster {

struct Range {
  int64_t offset = 0;
  int64_t count = 0;

  int64_t end() const { return offset + count; }
  bool Contains(Range other) const { return offset <= other.offset && other.end() <= end(); }
  bool operator==(const Range&) const = default;
};

}  // namespace muster

#endif  // MUSTER_STATE_RANGE_H_
