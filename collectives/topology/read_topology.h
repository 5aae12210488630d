// Finds out what this host is made of, with hwloc. Stateless, thread-safe.
#ifndef MUSTER_COLLECTIVES_TOPOLOGY_READ_TOPOLOGY_H_
#define MUSTER_COLLECTIVES_TOPOLOGY_READ_TOPOLOGY_H_

#include <string>

#include "absl/status/statusor.h"
#include "collectives/topology/host_topology.h"

namespace muster {

// Takes tens of milliseconds. What a container hides is not in it; that is no error. UNAVAILABLE
// where hwloc itself fails.
absl::StatusOr<HostTopology> ReadHostTopology();

// The same of a host whose topology hwloc has exported (`lstopo --of xml`). Speeds of wires are not
// part of an export, nor is where a process runs. INVALID_ARGUMENT if hwloc does not take it.
absl::StatusOr<HostTopology> TopologyFromXml(const std::string& xml);

}  // namespace muster

#endif  // MUSTER_COLLECTIVES_TOPOLOGY_READ_TOPOLOGY_H_
