// Which of several sources gives how much, so that the busiest is as little busy as can be. Pure.
#ifndef MUSTER_STATE_SOURCE_BALANCE_H_
#define MUSTER_STATE_SOURCE_BALANCE_H_

#include <cstdint>
#include <vector>

#include "base/ids.h"

namespace muster {

// Elements that any of `sources` can give.
struct Demand {
  std::vector<Rank> sources;  // not empty, no rank twice, each 0 .. ranks - 1
  int64_t count = 0;
};

// For each demand how much each of its sources gives, in the order of its sources; they sum to its
// count. Demands share the load of ranks that are sources of several.
//
// Each demand in turn is poured over the loads that the others leave, as water over uneven ground,
// until nothing changes. That is descent on the sum of squared loads, one block of variables at a
// time; its minimum is also the least possible maximum. With whole elements it stops within one
// element per demand of it.
std::vector<std::vector<int64_t>> BalanceSources(const std::vector<Demand>& demands, int ranks);

}  // namespace muster

#endif  // MUSTER_STATE_SOURCE_BALANCE_H_
