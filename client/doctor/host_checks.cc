#include "client/doctor/host_checks.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace muster {
namespace {

// A worker holds some connections to each peer, and its files.
constexpr int64_t kFewestOpenFiles = 4096;
constexpr int64_t kFewestPorts = 1024;
constexpr int64_t kGib = int64_t{1} << 30;

bool IsLoopback(const std::string& address) {
  return absl::StartsWith(address, "127.") || address == "::1";
}

// Made by container engines and the like: not the way to other hosts.
bool IsVirtual(const std::string& name) {
  for (const char* prefix : {"docker", "br-", "virbr", "veth", "cni", "flannel", "cali", "lxc"}) {
    if (absl::StartsWith(name, prefix)) return true;
  }
  return false;
}

std::string Bytes(int64_t bytes) {
  if (bytes == HostFacts::kUnlimited) return "unlimited";
  if (bytes >= kGib) return absl::StrFormat("%.1f GiB", static_cast<double>(bytes) / kGib);
  return absl::StrFormat("%d MiB", bytes >> 20);
}

Finding CheckName(const HostFacts& facts) {
  Finding finding{.subject = "name"};
  if (facts.addresses.empty()) {
    finding.level = FindingLevel::kWarning;
    finding.found = absl::StrCat("\"", facts.name, "\" resolves to no address");
    finding.advice = "add it to DNS or /etc/hosts, or give workers an address with --advertise";
    return finding;
  }
  finding.found = absl::StrCat(facts.name, " is ", absl::StrJoin(facts.addresses, ", "));
  const bool reachable = std::any_of(facts.addresses.begin(), facts.addresses.end(),
                                     [](const std::string& a) { return !IsLoopback(a); });
  if (!reachable) {
    finding.level = FindingLevel::kWarning;
    finding.advice =
        "that is this host alone: other hosts can't dial it. Give the name an address of a network "
        "in DNS or /etc/hosts, or give workers one with --advertise";
    return finding;
  }
  for (const std::string& address : facts.addresses) {
    if (IsLoopback(address)) {
      finding.level = FindingLevel::kWarning;
      finding.advice = absl::StrCat("remove ", address,
                                    " for this name from /etc/hosts: whoever dials the name may "
                                    "end at itself");
    } else if (!facts.names_back.contains(address) && finding.level == FindingLevel::kOk) {
      finding.level = FindingLevel::kNote;
      finding.found += absl::StrCat("; ", address, " resolves to no name");
    }
  }
  return finding;
}

Finding CheckInterfaces(const HostFacts& facts) {
  Finding finding{.subject = "interfaces"};
  std::vector<std::string> shown, ways;
  for (const NetworkInterface& interface : facts.interfaces) {
    if (interface.loopback || !interface.up || interface.addresses.empty()) continue;
    const bool is_virtual = IsVirtual(interface.name);
    shown.push_back(absl::StrFormat("%s %s mtu %d%s", interface.name,
                                    absl::StrJoin(interface.addresses, " "), interface.mtu,
                                    is_virtual ? " (virtual)" : ""));
    if (!is_virtual) ways.push_back(interface.name);
  }
  finding.found = shown.empty() ? "only loopback" : absl::StrJoin(shown, "; ");
  if (ways.empty()) {
    finding.level = FindingLevel::kWarning;
    finding.advice = "workers here can train with each other, not with other hosts";
  } else if (ways.size() > 1) {
    finding.level = FindingLevel::kNote;
    finding.advice = absl::StrCat("name the one of the data plane: --listen-data ", ways.front(),
                                  ":0 (or another)");
  } else {
    finding.advice =
        absl::StrCat("for jobs over several hosts: --listen-data ", ways.front(), ":0");
  }
  return finding;
}

Finding CheckOpenFiles(const HostFacts& facts) {
  Finding finding{.subject = "open files"};
  finding.found = facts.open_files == HostFacts::kUnlimited
                      ? std::string("unlimited")
                      : absl::StrCat("at most ", facts.open_files);
  if (facts.open_files < kFewestOpenFiles) {
    finding.level = FindingLevel::kWarning;
    finding.advice = absl::StrCat("raise the hard limit to ", kFewestOpenFiles,
                                  " or more (LimitNOFILE of systemd, ulimit -Hn): each peer takes "
                                  "several");
  }
  return finding;
}

Finding CheckLockedMemory(const HostFacts& facts) {
  Finding finding{.subject = "locked memory", .found = "at most " + Bytes(facts.locked_bytes)};
  if (facts.locked_bytes == HostFacts::kUnlimited) finding.found = "unlimited";
  if (facts.locked_bytes >= kGib) return finding;
  finding.level = facts.efa_devices > 0 ? FindingLevel::kError : FindingLevel::kNote;
  finding.advice = facts.efa_devices > 0
                       ? "EFA registers memory: LimitMEMLOCK=infinity of systemd, or memlock in "
                         "/etc/security/limits.conf"
                       : "enough without EFA";
  return finding;
}

Finding CheckPorts(const HostFacts& facts) {
  Finding finding{.subject = "ports",
                  .found = absl::StrCat(facts.ephemeral_ports, " for outgoing connections")};
  if (facts.ephemeral_ports < kFewestPorts) {
    finding.level = FindingLevel::kWarning;
    finding.advice = "widen net.ipv4.ip_local_port_range";
  }
  return finding;
}

Finding CheckSharedMemory(const HostFacts& facts) {
  Finding finding{.subject = "/dev/shm",
                  .found = facts.shm_bytes < 0 ? "there is none" : Bytes(facts.shm_bytes)};
  if (facts.shm_bytes >= kGib) return finding;
  finding.level = FindingLevel::kNote;
  finding.advice =
      "Muster shares memory without it; NCCL and PyTorch's data loaders want 1 GiB or more";
  return finding;
}

Finding CheckHugePages(const HostFacts& facts) {
  Finding finding{.subject = "huge pages"};
  if (facts.shmem_enabled.empty()) {
    finding.level = FindingLevel::kNote;
    finding.found = "the kernel has none for shared memory";
    return finding;
  }
  finding.found = absl::StrCat("shared memory: ", facts.shmem_enabled);
  if (facts.shmem_enabled == "never" || facts.shmem_enabled == "deny") {
    finding.level = FindingLevel::kNote;
    finding.advice =
        "gradients shared by workers of one host are faster with them: echo advise > "
        "/sys/kernel/mm/transparent_hugepage/shmem_enabled";
  }
  return finding;
}

// Where cards and GPUs sit, and which card is the nearest of each GPU.
Finding CheckTopology(const HostTopology& topology) {
  Finding finding{.subject = "topology"};
  std::vector<std::string> parts = {absl::StrFormat("%d NUMA node%s", topology.numa_nodes.size(),
                                                    topology.numa_nodes.size() == 1 ? "" : "s")};
  std::vector<DevicePlace> places;
  for (const NetworkCard& card : topology.cards) {
    parts.push_back(Describe(card));
    places.push_back(card.place);
  }
  for (const GpuDevice& gpu : topology.gpus) {
    std::string part = absl::StrCat("GPU ", gpu.place.pci);
    if (!places.empty()) {
      const size_t nearest = NearestFirst(places, gpu.place).front();
      absl::StrAppend(&part, " nearest to ", topology.cards[nearest].name, " (",
                      Name(NearnessOf(places[nearest], gpu.place)), ")");
    }
    parts.push_back(std::move(part));
  }
  finding.found = absl::StrJoin(parts, "; ");
  if (!topology.shows_pci) {
    finding.level = FindingLevel::kNote;
    finding.found += "; no PCI devices are visible";
    finding.advice =
        "cards can't be matched to GPUs: let the container see /sys, or name the rails of "
        "libfabric";
  }
  return finding;
}

}  // namespace

const char* Name(FindingLevel level) {
  switch (level) {
    case FindingLevel::kOk:
      return "ok";
    case FindingLevel::kNote:
      return "note";
    case FindingLevel::kWarning:
      return "warning";
    case FindingLevel::kError:
      return "error";
  }
  return "unknown";
}

std::vector<Finding> CheckHost(const HostFacts& facts) {
  return {
      CheckName(facts),
      CheckInterfaces(facts),
      CheckOpenFiles(facts),
      CheckLockedMemory(facts),
      CheckPorts(facts),
      CheckSharedMemory(facts),
      CheckHugePages(facts),
      {.subject = "machine",
       .found = absl::StrFormat("%d cores, %s of memory", facts.cores, Bytes(facts.memory_bytes))},
      {.subject = "devices",
       .found = absl::StrFormat("%d NVIDIA GPUs, %d EFA devices", facts.gpus, facts.efa_devices)},
      CheckTopology(facts.topology)};
}

}  // namespace muster
