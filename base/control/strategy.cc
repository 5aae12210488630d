#include "base/control/strategy.h"

#include "absl/strings/str_cat.h"

namespace muster {

const char* Name(SyncAlgorithm algorithm) {
  switch (algorithm) {
    case SyncAlgorithm::kAutomatic:
      return "auto";
    case SyncAlgorithm::kRing:
      return "ring";
    case SyncAlgorithm::kDirect:
      return "direct";
    case SyncAlgorithm::kRecursiveDoubling:
      return "recursive-doubling";
    case SyncAlgorithm::kHalvingDoubling:
      return "halving-doubling";
    case SyncAlgorithm::kDoubleTree:
      return "double-tree";
    case SyncAlgorithm::kHierarchical:
      return "hierarchical";
    case SyncAlgorithm::kStar:
      return "star";
    case SyncAlgorithm::kWindow:
      return "window";
  }
  return "unknown";
}

const char* Name(SyncTransport transport) {
  switch (transport) {
    case SyncTransport::kAutomatic:
      return "auto";
    case SyncTransport::kTcp:
      return "tcp";
    case SyncTransport::kSharedMemory:
      return "shm";
    case SyncTransport::kLibfabric:
      return "libfabric";
  }
  return "unknown";
}

std::string ToString(const Strategy& strategy) {
  std::string text = "replicated";
  if (strategy.sharded()) {
    text = absl::StrCat("stage ", strategy.stage, ", ", strategy.replicas,
                        strategy.replicas == 1 ? " replica" : " replicas");
  }
  if (strategy.algorithm != SyncAlgorithm::kAutomatic) {
    absl::StrAppend(&text, ", ", Name(strategy.algorithm));
  }
  if (strategy.transport != SyncTransport::kAutomatic) {
    absl::StrAppend(&text, ", ", Name(strategy.transport));
  }
  return text;
}

}  // namespace muster
