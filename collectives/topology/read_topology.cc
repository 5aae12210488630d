#include "collectives/topology/read_topology.h"

#include <hwloc.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <type_traits>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status_macros.h"

namespace muster {
namespace {

constexpr int kNvidia = 0x10de;
constexpr int kDisplayClass = 0x03;  // the upper byte of PCI's class code

struct DestroyTopology {
  void operator()(hwloc_topology_t topology) const { hwloc_topology_destroy(topology); }
};
using Handle = std::unique_ptr<std::remove_pointer_t<hwloc_topology_t>, DestroyTopology>;

std::string HwlocError(absl::string_view call) {
  return absl::StrCat("hwloc: ", call, " failed: ", std::strerror(errno));
}

absl::StatusOr<Handle> NewTopology() {
  hwloc_topology_t topology = nullptr;
  if (hwloc_topology_init(&topology) != 0) return absl::UnavailableError(HwlocError("init"));
  Handle handle(topology);
  // These load drivers only to name devices that PCI shows anyway.
  for (const char* component : {"cuda", "nvml", "opencl", "rsmi", "levelzero", "gl"}) {
    hwloc_topology_set_components(topology, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, component);
  }
  if (hwloc_topology_set_io_types_filter(topology, HWLOC_TYPE_FILTER_KEEP_IMPORTANT) != 0 ||
      hwloc_topology_set_type_filter(topology, HWLOC_OBJ_BRIDGE, HWLOC_TYPE_FILTER_KEEP_ALL) != 0) {
    return absl::UnavailableError(HwlocError("set_io_types_filter"));
  }
  return handle;
}

std::string PciAddress(const hwloc_obj* device) {
  const auto& pci = device->attr->pcidev;
  return absl::StrFormat("%04x:%02x:%02x.%x", pci.domain, pci.bus, pci.dev, pci.func);
}

// Of a device or of what lies inside one.
DevicePlace PlaceOfObject(hwloc_topology_t topology, hwloc_obj* object) {
  DevicePlace place;
  for (const hwloc_obj* at = object; at != nullptr; at = at->parent) {
    if (at->type == HWLOC_OBJ_PCI_DEVICE && place.pci.empty()) place.pci = PciAddress(at);
    if (at->type == HWLOC_OBJ_BRIDGE) {
      place.bridges.push_back(static_cast<int64_t>(at->gp_index));
    }
  }
  std::reverse(place.bridges.begin(), place.bridges.end());
  const hwloc_obj* const host = hwloc_get_non_io_ancestor_obj(topology, object);
  if (host != nullptr && host->nodeset != nullptr && hwloc_bitmap_weight(host->nodeset) == 1) {
    place.numa_node = hwloc_bitmap_first(host->nodeset);
  }
  return place;
}

std::string ModelOf(hwloc_obj* device) {
  const char* const name = hwloc_obj_get_info_by_name(device, "PCIDevice");
  const auto& pci = device->attr->pcidev;
  return name != nullptr ? name : absl::StrFormat("%04x:%04x", pci.vendor_id, pci.device_id);
}

HostTopology FromHwloc(hwloc_topology_t topology) {
  HostTopology host;
  host.cores = hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_CORE);
  host.hardware_threads = hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_PU);
  hwloc_obj* object = nullptr;
  while ((object = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_NUMANODE, object)) != nullptr) {
    host.numa_nodes.push_back(
        {.number = static_cast<int>(object->os_index),
         .memory_bytes = static_cast<int64_t>(object->attr->numanode.local_memory),
         .cores =
             hwloc_get_nbobjs_inside_cpuset_by_type(topology, object->cpuset, HWLOC_OBJ_CORE)});
  }
  object = nullptr;
  while ((object = hwloc_get_next_osdev(topology, object)) != nullptr) {
    const hwloc_obj_osdev_type_t type = object->attr->osdev.type;
    if (type != HWLOC_OBJ_OSDEV_NETWORK && type != HWLOC_OBJ_OSDEV_OPENFABRICS) continue;
    host.cards.push_back({.name = object->name == nullptr ? "" : object->name,
                          .rdma = type == HWLOC_OBJ_OSDEV_OPENFABRICS,
                          .place = PlaceOfObject(topology, object)});
  }
  object = nullptr;
  while ((object = hwloc_get_next_pcidev(topology, object)) != nullptr) {
    host.shows_pci = true;
    const auto& pci = object->attr->pcidev;
    if (pci.vendor_id == kNvidia && pci.class_id >> 8 == kDisplayClass) {
      host.gpus.push_back({ModelOf(object), PlaceOfObject(topology, object)});
    }
  }
  return host;
}

std::string FirstLine(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// The kernel says megabits of an interface (-1 where there is no wire), and of an RDMA port
// "100 Gb/sec (4X EDR)".
int64_t WireSpeed(const NetworkCard& card) {
  std::error_code error;
  if (!card.rdma) {
    int64_t megabits = 0;
    const std::string line =
        FirstLine(std::filesystem::path("/sys/class/net") / card.name / "speed");
    return absl::SimpleAtoi(line, &megabits) && megabits > 0 ? megabits * 1'000'000 : 0;
  }
  int64_t total = 0;
  const auto ports = std::filesystem::path("/sys/class/infiniband") / card.name / "ports";
  for (const auto& port : std::filesystem::directory_iterator(ports, error)) {
    const std::string line = FirstLine(port.path() / "rate");
    double gigabits = 0;
    if (absl::SimpleAtod(absl::string_view(line).substr(0, line.find(' ')), &gigabits)) {
      total += static_cast<int64_t>(gigabits * 1e9);
    }
  }
  return total;
}

// Cards of other buses, or whose PCI device a container hides. The kernel makes up all others.
void AddCardsWithoutPci(HostTopology* host) {
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/sys/class/net", error)) {
    const std::string name = entry.path().filename();
    const bool known = std::any_of(host->cards.begin(), host->cards.end(),
                                   [&](const NetworkCard& card) { return card.name == name; });
    if (!known && std::filesystem::exists(entry.path() / "device", error)) {
      host->cards.push_back({.name = name});
    }
  }
}

}  // namespace

absl::StatusOr<HostTopology> ReadHostTopology() {
  MUSTER_ASSIGN_OR_RETURN(const Handle topology, NewTopology());
  if (hwloc_topology_load(topology.get()) != 0) return absl::UnavailableError(HwlocError("load"));
  HostTopology host = FromHwloc(topology.get());
  AddCardsWithoutPci(&host);
  for (NetworkCard& card : host.cards) card.bits_per_second = WireSpeed(card);
  std::sort(host.cards.begin(), host.cards.end(),
            [](const NetworkCard& a, const NetworkCard& b) { return a.name < b.name; });
  const std::unique_ptr<hwloc_bitmap_s, decltype(&hwloc_bitmap_free)> bound(hwloc_bitmap_alloc(),
                                                                            &hwloc_bitmap_free);
  const std::unique_ptr<hwloc_bitmap_s, decltype(&hwloc_bitmap_free)> nodes(hwloc_bitmap_alloc(),
                                                                            &hwloc_bitmap_free);
  if (hwloc_get_cpubind(topology.get(), bound.get(), HWLOC_CPUBIND_PROCESS) == 0 &&
      hwloc_cpuset_to_nodeset(topology.get(), bound.get(), nodes.get()) == 0 &&
      hwloc_bitmap_weight(nodes.get()) == 1) {
    host.process.numa_node = hwloc_bitmap_first(nodes.get());
  }
  return host;
}

absl::StatusOr<HostTopology> TopologyFromXml(const std::string& xml) {
  MUSTER_ASSIGN_OR_RETURN(const Handle topology, NewTopology());
  if (hwloc_topology_set_xmlbuffer(topology.get(), xml.c_str(), static_cast<int>(xml.size() + 1)) !=
          0 ||
      hwloc_topology_load(topology.get()) != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("expected an export of hwloc 2 (lstopo --of xml), got ", xml.size(),
                     " bytes that it does not take"));
  }
  return FromHwloc(topology.get());
}

}  // namespace muster
