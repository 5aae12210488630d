// A set of whole numbers as disjoint intervals. A value; thread-compatible.
#ifndef MUSTER_SERVER_PARAMETER_SERVER_CORE_INTERVAL_SET_H_
#define MUSTER_SERVER_PARAMETER_SERVER_CORE_INTERVAL_SET_H_

#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "state/range.h"

namespace muster {

class IntervalSet {
 public:
  void Add(Range range);
  bool Contains(Range range) const;
  // Calls visit for the parts of `range` that are not in the set, in order.
  void ForEachMissing(Range range, absl::FunctionRef<void(Range part)> visit) const;
  int64_t size() const { return size_; }  // numbers in the set
  const std::vector<Range>& intervals() const { return intervals_; }

 private:
  std::vector<Range> intervals_;  // in order, not touching, none empty
  int64_t size_ = 0;
};

}  // namespace muster

#endif  // MUSTER_SERVER_PARAMETER_SERVER_CORE_INTERVAL_SET_H_
