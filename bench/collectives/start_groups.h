// Starts the rank groups of Muster and of its peers.
#ifndef MUSTER_BENCH_COLLECTIVES_START_GROUPS_H_
#define MUSTER_BENCH_COLLECTIVES_START_GROUPS_H_

#include <memory>
#include <string>
#include <vector>

#include "bench/collectives/child_group.h"
#include "bench/collectives/muster_ranks.h"

namespace muster::bench {

struct GroupSettings {
  std::vector<std::string> transports;  // Muster's: of inproc, shm, tcp, grpc, ofi
  std::vector<std::string> algorithms;  // Muster's: auto, or by name
  std::vector<std::string> peers;       // of openmpi, gloo, bound
  MusterOptions muster;
};

// What Muster may be told to use for any of them, "auto" first.
std::vector<std::string> AlgorithmNames(const std::vector<Kind>& kinds,
                                        const std::vector<ElementType>& types, int hosts);

// Peers that are not installed are left out, with a word on standard error.
std::vector<std::unique_ptr<ChildGroup>> StartGroups(const GroupSettings& settings, int ranks);

// The part of a child of StartGroups: serves what `serve` names and returns the exit code.
int ServeGroup(const std::string& serve, int ranks, const MusterOptions& options);

}  // namespace muster::bench

#endif  // MUSTER_BENCH_COLLECTIVES_START_GROUPS_H_
