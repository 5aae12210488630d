// A modelled network of hosts, for simulating collectives on more machines than anybody has at
// hand.
#ifndef MUSTER_BENCH_SIMULATE_NETWORK_H_
#define MUSTER_BENCH_SIMULATE_NETWORK_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/ids.h"

namespace muster {

// Ranks of one host talk through a switch that blocks nobody; those of different hosts through the
// network cards of their hosts, which the ranks of a host share evenly, and a network core that
// blocks nobody. Every link works in both directions at once.
struct NetworkModel {
  std::string name;
  int ranks_per_host = 1;

  // Inside a host, of each rank.
  double inside_latency_s = 0;
  double inside_bytes_per_s = 0;

  // Between hosts, of each card.
  int cards_per_host = 1;
  double between_latency_s = 0;
  double between_bytes_per_s = 0;

  // What a message costs each end besides its bytes.
  double message_s = 0;
  // Of a rank's memory: a sum of two reads both and writes one.
  double memory_bytes_per_s = 0;
  // Of a rank, in the number format that training computes in.
  double flops_per_s = 0;

  int HostOf(Rank rank) const { return rank / ranks_per_host; }
  int CardOf(Rank rank) const {
    return HostOf(rank) * cards_per_host + rank % ranks_per_host * cards_per_host / ranks_per_host;
  }
};

// "p4d", "p5" or "100g". INVALID_ARGUMENT names those there are. The .cc says where the numbers
// come from.
absl::StatusOr<NetworkModel> NetworkPreset(const std::string& name);
std::vector<std::string> NetworkPresetNames();

}  // namespace muster

#endif  // MUSTER_BENCH_SIMULATE_NETWORK_H_
