#include "state/bucket_order.h"

#include <numeric>

namespace muster {

std::vector<int> BucketsAsCompleted(const Layout& layout, int block) {
  const Layout::BucketRange range = layout.BucketsOfBlock(block);
  std::vector<int> order(static_cast<size_t>(range.last - range.first));
  std::iota(order.rbegin(), order.rend(), range.first);
  return order;
}

}  // namespace muster
