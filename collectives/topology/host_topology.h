// What a host is made of, as far as moving data depends on it: NUMA nodes, cores, network cards and
// GPUs, and how near these are to each other. Plain values and pure functions, thread-safe.
//
// Nothing here need be known: in a container that shows no PCI devices there are cards without a
// place, or none, and everything is as near as everything else.
#ifndef MUSTER_COLLECTIVES_TOPOLOGY_HOST_TOPOLOGY_H_
#define MUSTER_COLLECTIVES_TOPOLOGY_HOST_TOPOLOGY_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace muster {

// Where a device, or a process, sits.
struct DevicePlace {
  std::string pci;               // "0000:10:1b.0", lower case; empty: not known
  int numa_node = -1;            // the kernel's number; -1: not known, or more than one
  std::vector<int64_t> bridges;  // from the host bridge down to the device; numbers of this host
  bool operator==(const DevicePlace&) const = default;
};

struct NumaNode {
  int number = 0;  // the kernel's
  int64_t memory_bytes = 0;
  int cores = 0;
  bool operator==(const NumaNode&) const = default;
};

struct NetworkCard {
  std::string name;             // of the interface ("eth0"), or of the RDMA device ("rdmap16s27")
  bool rdma = false;            // a device of the RDMA subsystem, EFA among them
  int64_t bits_per_second = 0;  // of the wire; 0: not known
  DevicePlace place;
  bool operator==(const NetworkCard&) const = default;
};

struct GpuDevice {
  std::string model;  // as the PCI registry names it, or its numbers
  DevicePlace place;
  bool operator==(const GpuDevice&) const = default;
};

struct HostTopology {
  std::vector<NumaNode> numa_nodes;
  int cores = 0;             // that this process may use
  int hardware_threads = 0;  // the same
  std::vector<NetworkCard> cards;
  std::vector<GpuDevice> gpus;
  bool shows_pci = false;  // PCI devices are visible at all
  // Where this process may run, if that is one NUMA node.
  DevicePlace process;
  bool operator==(const HostTopology&) const = default;
};

// Nearest first.
enum class Nearness : uint8_t {
  kSameDevice,
  kSameSwitch,      // they share a PCI bridge below the host bridge
  kSameHostBridge,  // they share the host bridge
  kSameNumaNode,
  kOtherNumaNode,
  kUnknown,
};
const char* Name(Nearness nearness);

Nearness NearnessOf(const DevicePlace& a, const DevicePlace& b);

// Indices of `places`, nearest to `from` first; those that share a longer way of bridges before
// those that share a shorter one; equals in the order given.
std::vector<size_t> NearestFirst(absl::Span<const DevicePlace> places, const DevicePlace& from);

// The place of the device with this PCI address, or of the card whose name `name` is or begins with
// (libfabric calls the device "rdmap16s27" "rdmap16s27-rdm"). Unknown: a place of which nothing is
// known but the address.
DevicePlace PlaceOf(const HostTopology& topology, absl::string_view pci, absl::string_view name);

// One line: "eth0 100 Gbit/s on NUMA node 0 (0000:00:03.0)".
std::string Describe(const NetworkCard& card);

}  // namespace muster

#endif  // MUSTER_COLLECTIVES_TOPOLOGY_HOST_TOPOLOGY_H_
