// In which order the buckets of a layout are worth moving. Pure function.
//
// Backward completes gradients from the last block to the first, and within a block from its end.
// What brings parameters back (the all-gather of stages 1 and 2, a pull from parameter servers)
// goes by the layout's own order, which is forward's: the next forward pass may begin with the
// first block while later ones are still on their way.
#ifndef MUSTER_STATE_BUCKET_ORDER_H_
#define MUSTER_STATE_BUCKET_ORDER_H_

#include <vector>

#include "state/layout.h"

namespace muster {

// Indices into layout.buckets(): those of one block, in the order in which backward completes them.
std::vector<int> BucketsAsCompleted(const Layout& layout, int block);

}  // namespace muster

#endif  // MUSTER_STATE_BUCKET_ORDER_H_
