#include "base/control/strategy.h"

#include "absl/strings/str_cat.h"

namespace muster {
namespace {

std::string Count(int32_t number, const char* what) {
  return absl::StrCat(number, " ", what, number == 1 ? "" : "s");
}

}  // namespace

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
    case SyncAlgorithm::kOneShot:
      return "one-shot";
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
    case SyncTransport::kGrpc:
      return "grpc";
  }
  return "unknown";
}

std::string ToString(const Strategy& strategy) {
  std::string text = "replicated";
  if (strategy.serves()) {
    text = strategy.servers == 0
               ? "parameter servers on the workers"
               : absl::StrCat("up to ", Count(strategy.servers, "parameter server"));
    if (strategy.mixed) text += " and the workers";
  } else if (strategy.sharded()) {
    text = absl::StrCat("stage ", strategy.stage);
  }
  if (strategy.grouped() && strategy.host_groups) {
    text += " within each host";
  } else if (strategy.grouped()) {
    absl::StrAppend(&text, " within groups of ", strategy.group_size);
  } else if (strategy.sharded()) {
    absl::StrAppend(&text, ", ", Count(strategy.replicas, "replica"));
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
