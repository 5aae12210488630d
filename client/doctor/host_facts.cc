#include "client/doctor/host_facts.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "collectives/topology/read_topology.h"

namespace muster {
namespace {

std::string Numeric(const sockaddr* address, socklen_t size) {
  char host[NI_MAXHOST];
  if (getnameinfo(address, size, host, sizeof host, nullptr, 0, NI_NUMERICHOST) != 0) return "";
  return host;
}

std::string ReadText(const std::string& path) {
  std::ifstream file(path);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

int64_t HardLimit(int resource) {
  rlimit limit = {};
  if (getrlimit(static_cast<__rlimit_resource_t>(resource), &limit) != 0) return 0;
  return limit.rlim_max == RLIM_INFINITY ? HostFacts::kUnlimited
                                         : static_cast<int64_t>(limit.rlim_max);
}

void ResolveName(HostFacts* facts) {
  char name[256] = {};
  if (gethostname(name, sizeof name - 1) == 0) facts->name = name;
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(facts->name.c_str(), nullptr, &hints, &found) != 0) return;
  for (const addrinfo* each = found; each != nullptr; each = each->ai_next) {
    const std::string address = Numeric(each->ai_addr, each->ai_addrlen);
    if (address.empty()) continue;
    facts->addresses.push_back(address);
    char back[NI_MAXHOST];
    if (getnameinfo(each->ai_addr, each->ai_addrlen, back, sizeof back, nullptr, 0, NI_NAMEREQD) ==
        0) {
      facts->names_back[address] = back;
    }
  }
  freeaddrinfo(found);
}

void ListInterfaces(HostFacts* facts) {
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) return;
  for (const ifaddrs* each = all; each != nullptr; each = each->ifa_next) {
    auto interface = std::find_if(facts->interfaces.begin(), facts->interfaces.end(),
                                  [&](const auto& known) { return known.name == each->ifa_name; });
    if (interface == facts->interfaces.end()) {
      NetworkInterface added;
      added.name = each->ifa_name;
      added.up = (each->ifa_flags & IFF_UP) != 0 && (each->ifa_flags & IFF_RUNNING) != 0;
      added.loopback = (each->ifa_flags & IFF_LOOPBACK) != 0;
      if (!absl::SimpleAtoi(ReadText(absl::StrCat("/sys/class/net/", added.name, "/mtu")),
                            &added.mtu)) {
        added.mtu = 0;
      }
      interface = facts->interfaces.insert(facts->interfaces.end(), std::move(added));
    }
    if (each->ifa_addr == nullptr) continue;
    if (each->ifa_addr->sa_family == AF_INET) {
      interface->addresses.push_back(Numeric(each->ifa_addr, sizeof(sockaddr_in)));
    } else if (each->ifa_addr->sa_family == AF_INET6) {
      const auto* address = reinterpret_cast<const sockaddr_in6*>(each->ifa_addr);
      if (IN6_IS_ADDR_LINKLOCAL(&address->sin6_addr)) continue;
      interface->addresses.push_back(Numeric(each->ifa_addr, sizeof(sockaddr_in6)));
    }
  }
  freeifaddrs(all);
}

// Of "always within_size [advise] never" the word in brackets.
std::string ChosenWord(const std::string& text) {
  const size_t begin = text.find('[');
  const size_t end = text.find(']');
  if (begin == std::string::npos || end == std::string::npos || end < begin) return "";
  return text.substr(begin + 1, end - begin - 1);
}

int CountEntries(const std::string& directory) {
  std::error_code error;
  const std::filesystem::directory_iterator entries(directory, error);
  return error ? 0 : static_cast<int>(std::distance(begin(entries), end(entries)));
}

int CountEfaDevices() {
  std::error_code error;
  int count = 0;
  for (const auto& device : std::filesystem::directory_iterator("/sys/class/infiniband", error)) {
    const auto driver = std::filesystem::read_symlink(device.path() / "device/driver", error);
    if (!error && driver.filename() == "efa") ++count;
  }
  return count;
}

}  // namespace

HostFacts ReadHostFacts() {
  HostFacts facts;
  ResolveName(&facts);
  ListInterfaces(&facts);
  facts.open_files = HardLimit(RLIMIT_NOFILE);
  facts.locked_bytes = HardLimit(RLIMIT_MEMLOCK);
  int64_t first = 0, last = 0;
  std::istringstream range(ReadText("/proc/sys/net/ipv4/ip_local_port_range"));
  if (range >> first >> last && last >= first) facts.ephemeral_ports = last - first + 1;
  struct statvfs shm = {};
  if (statvfs("/dev/shm", &shm) == 0) {
    facts.shm_bytes = static_cast<int64_t>(shm.f_blocks * shm.f_frsize);
  }
  facts.shmem_enabled = ChosenWord(ReadText("/sys/kernel/mm/transparent_hugepage/shmem_enabled"));
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) == 0) facts.cores = CPU_COUNT(&set);
  facts.memory_bytes =
      static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<int64_t>(sysconf(_SC_PAGESIZE));
  facts.gpus = CountEntries("/proc/driver/nvidia/gpus");
  facts.efa_devices = CountEfaDevices();
  if (auto topology = ReadHostTopology(); topology.ok()) facts.topology = *std::move(topology);
  return facts;
}

}  // namespace muster
