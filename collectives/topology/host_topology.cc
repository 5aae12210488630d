#include "collectives/topology/host_topology.h"

#include <algorithm>
#include <numeric>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace muster {
namespace {

size_t SharedBridges(const DevicePlace& a, const DevicePlace& b) {
  const auto parted =
      std::mismatch(a.bridges.begin(), a.bridges.end(), b.bridges.begin(), b.bridges.end());
  return static_cast<size_t>(parted.first - a.bridges.begin());
}

bool IsNamed(absl::string_view name, absl::string_view card) {
  if (!absl::StartsWith(name, card) || card.empty()) return false;
  return name.size() == card.size() || name[card.size()] == '-';
}

}  // namespace

const char* Name(Nearness nearness) {
  switch (nearness) {
    case Nearness::kSameDevice:
      return "same device";
    case Nearness::kSameSwitch:
      return "same PCI switch";
    case Nearness::kSameHostBridge:
      return "same host bridge";
    case Nearness::kSameNumaNode:
      return "same NUMA node";
    case Nearness::kOtherNumaNode:
      return "other NUMA node";
    case Nearness::kUnknown:
      return "distance unknown";
  }
  return "unknown";
}

Nearness NearnessOf(const DevicePlace& a, const DevicePlace& b) {
  if (!a.pci.empty() && a.pci == b.pci) return Nearness::kSameDevice;
  const size_t shared = SharedBridges(a, b);
  if (shared > 1) return Nearness::kSameSwitch;
  if (shared == 1) return Nearness::kSameHostBridge;
  if (a.numa_node < 0 || b.numa_node < 0) return Nearness::kUnknown;
  return a.numa_node == b.numa_node ? Nearness::kSameNumaNode : Nearness::kOtherNumaNode;
}

std::vector<size_t> NearestFirst(absl::Span<const DevicePlace> places, const DevicePlace& from) {
  std::vector<size_t> order(places.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t i, size_t j) {
    const Nearness first = NearnessOf(places[i], from);
    const Nearness second = NearnessOf(places[j], from);
    if (first != second) return first < second;
    return SharedBridges(places[i], from) > SharedBridges(places[j], from);
  });
  return order;
}

DevicePlace PlaceOf(const HostTopology& topology, absl::string_view pci, absl::string_view name) {
  if (!pci.empty()) {
    for (const GpuDevice& gpu : topology.gpus) {
      if (gpu.place.pci == pci) return gpu.place;
    }
    for (const NetworkCard& card : topology.cards) {
      if (card.place.pci == pci) return card.place;
    }
  }
  for (const NetworkCard& card : topology.cards) {
    if (IsNamed(name, card.name)) return card.place;
  }
  return {.pci = std::string(pci)};
}

std::string Describe(const NetworkCard& card) {
  std::string text = card.name;
  if (card.rdma) text += " (RDMA)";
  if (card.bits_per_second > 0) {
    absl::StrAppend(&text, " ", static_cast<double>(card.bits_per_second) / 1e9, " Gbit/s");
  }
  if (card.place.numa_node >= 0) absl::StrAppend(&text, " on NUMA node ", card.place.numa_node);
  if (!card.place.pci.empty()) absl::StrAppend(&text, " (", card.place.pci, ")");
  return text;
}

}  // namespace muster
