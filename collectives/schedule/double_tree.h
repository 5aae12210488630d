// All-reduce over two binary trees, each of which reduces and broadcasts one half of the vector
// (Sanders, Speck and Träff 2009, "Two-tree algorithms for full bandwidth broadcast, reduction and
// scan"). Pure functions.
//
// A rank that is inside one tree is a leaf of the other (but for one rank where p is odd), so each
// sends and receives about the whole vector twice, at 2 ceil(log2 p) hops; executors pass segments
// on as they come, so both halves flow at once. The first tree numbers the ranks in order: odd ones
// are leaves, a rank with lowest set bit b has children at distances below b. The second tree
// is its mirror image (p even) or shifted by one (p odd).
//
// Not the canonical order; one root makes each half, so all ranks hold the same bits. Partial sums
// travel: not for 16-bit floats.
#ifndef MUSTER_COLLECTIVES_SCHEDULE_DOUBLE_TREE_H_
#define MUSTER_COLLECTIVES_SCHEDULE_DOUBLE_TREE_H_

#include <vector>

#include "collectives/schedule/schedule.h"
#include "collectives/schedule/schedule_request.h"

namespace muster::schedule_internal {

// Requires: a valid all-reduce request.
Schedule DoubleTreeAllReduce(const ScheduleRequest& request);

struct TreePlace {
  Rank parent = -1;            // -1: the root
  std::vector<Rank> children;  // rising
};
// The place of `rank` in tree 0 or 1 of `size` ranks.
TreePlace DoubleTreePlace(int tree, Rank rank, int size);

}  // namespace muster::schedule_internal

#endif  // MUSTER_COLLECTIVES_SCHEDULE_DOUBLE_TREE_H_
