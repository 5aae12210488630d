#include "base/control/strategy_algorithm.h"

namespace muster {

bool Takes(const Strategy& strategy, SyncAlgorithm algorithm) {
  switch (algorithm) {
    case SyncAlgorithm::kAutomatic:
    case SyncAlgorithm::kDirect:
      return true;
    case SyncAlgorithm::kRing:
      return !strategy.serves();  // there is no ring of pushes
    case SyncAlgorithm::kHierarchical:
      return strategy.stage == 0;
    case SyncAlgorithm::kRecursiveDoubling:
    case SyncAlgorithm::kHalvingDoubling:
    case SyncAlgorithm::kDoubleTree:
    case SyncAlgorithm::kStar:
    case SyncAlgorithm::kWindow:
    case SyncAlgorithm::kOneShot:
      return !strategy.sharded();
  }
  return false;
}

}  // namespace muster
