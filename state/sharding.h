// The shard maps of each strategy (docs/design.md, section 2): who keeps what between two steps.
//
// State comes in three kinds, each with a map of its own over the same ranks. Masters are the
// truth: parameters as the update rule keeps them, and its slots; they are what moves, heals and is
// saved. Gradients are those of the step under way, after they were summed. Parameters are what
// forward and backward read; where their map differs from the masters' they are a cache of them,
// gathered again after a change of view, and never the source of a move (docs/protocol.md, rule 7).
//
// All maps are made of slices of every bucket (state/bucket_slices.h), one for each owner, so
// owners are balanced over the layout and tensors may straddle shards.
//
// Pure functions.
#ifndef MUSTER_STATE_SHARDING_H_
#define MUSTER_STATE_SHARDING_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "state/layout.h"
#include "state/shard_map.h"

namespace muster {

struct StateMaps {
  ShardMap parameters;
  ShardMap masters;
  ShardMap gradients;
  bool operator==(const StateMaps&) const = default;
};

// Extra holders of what is owned by one rank alone.
struct ReplicaOptions {
  // How many beside the owner; fewer where there are fewer other owners. They are the next owners
  // in the order of ranks, those on other hosts first.
  int count = 0;
  // The host of each rank, any numbers. Empty: unknown, then the next owners whatever their host.
  std::vector<int32_t> hosts;
};

// Replicate: every worker keeps everything. Slices still decide the order of summation.
absl::StatusOr<StateMaps> ReplicatedState(const Layout& layout, int workers);

// ZeRO (Rajbhandari et al., SC 2020) stage 1: slices of masters. Stage 2: of gradients as well.
// Stage 3: of parameters as well. Slice i of every bucket is rank i's. What is not in slices every
// worker keeps. INVALID_ARGUMENT for another stage, or hosts that are not one per rank.
absl::StatusOr<StateMaps> ShardedState(const Layout& layout, int workers, int stage,
                                       const ReplicaOptions& replicas);

// The same in groups of `group_size` consecutive ranks, each of which keeps everything once: each
// bucket is cut among all workers, and the ranks of one position in their groups keep the slices of
// all of them. So there are workers / group_size - 1 replicas, and owners are as balanced as
// without groups. INVALID_ARGUMENT unless group_size divides workers.
absl::StatusOr<StateMaps> HybridShardedState(const Layout& layout, int workers, int group_size,
                                             int stage);

enum class ServerPlacement : uint8_t {
  kDedicated,  // servers own everything
  kMixed,      // servers and workers, in the proportion of MixedWeights; without servers all
               // workers alike, as servers co-located with them
};

// Parameter servers: masters and gradients in slices, one for each server, of ranks workers ..
// workers + servers - 1; every worker keeps all parameters, servers none. INVALID_ARGUMENT: no
// workers, or dedicated placement without servers.
absl::StatusOr<StateMaps> ServedState(const Layout& layout, int workers, int servers,
                                      ServerPlacement placement, const ReplicaOptions& replicas);

// How much of the gradients each rank should sum so that all links are busy for the same time: with
// n workers and k dedicated servers a worker n - k parts of n^2 + kn - 2k, a server 2 (n - 1)
// (Jiang et al., OSDI 2020, section 4.1); from k = n on servers all of it. Workers' weights, then
// servers'. Requires: workers >= 1, servers >= 0.
std::vector<int64_t> MixedWeights(int workers, int servers);

}  // namespace muster

#endif  // MUSTER_STATE_SHARDING_H_
