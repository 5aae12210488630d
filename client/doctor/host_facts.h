// What `muster doctor` finds out about a host. Plain values; the reading is in ReadHostFacts alone.
#ifndef MUSTER_CLIENT_DOCTOR_HOST_FACTS_H_
#define MUSTER_CLIENT_DOCTOR_HOST_FACTS_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "collectives/topology/host_topology.h"

namespace muster {

struct NetworkInterface {
  std::string name;
  bool up = false;
  bool loopback = false;
  int mtu = 0;                         // bytes; 0: not known
  std::vector<std::string> addresses;  // numeric, link-local IPv6 left out
};

struct HostFacts {
  static constexpr int64_t kUnlimited = INT64_MAX;

  std::string name;
  std::vector<std::string> addresses;             // that the name resolves to, numeric
  std::map<std::string, std::string> names_back;  // of each address; absent: it resolves to none
  std::vector<NetworkInterface> interfaces;

  int64_t open_files = 0;    // hard limit
  int64_t locked_bytes = 0;  // hard limit of what may be locked or registered
  int64_t ephemeral_ports = 0;
  int64_t shm_bytes = -1;     // size of /dev/shm; -1: there is none
  std::string shmem_enabled;  // the kernel's choice for huge pages in shared memory; empty: unknown
  int cores = 0;              // that this process may use
  int64_t memory_bytes = 0;
  int gpus = 0;
  int efa_devices = 0;
  HostTopology topology;
};

// Asks the kernel and the resolver, which may take as long as the resolver does. What cannot be
// read keeps its default.
HostFacts ReadHostFacts();

}  // namespace muster

#endif  // MUSTER_CLIENT_DOCTOR_HOST_FACTS_H_
