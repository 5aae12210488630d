#include "state/sharding.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "absl/types/span.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "state/bucket_slices.h"

namespace muster {
namespace {

// The map in which slice i of every bucket has holders_of(i).
absl::StatusOr<ShardMap> MapOfSlices(const Layout& layout, const BucketSlices& slices,
                                     int world_size,
                                     absl::FunctionRef<const Holders&(int)> holders_of) {
  std::vector<Shard> shards;
  for (const OwnedRange& piece : slices.PiecesOf({0, layout.padded_count()})) {
    shards.push_back({piece.range, holders_of(piece.owner)});
  }
  return ShardMap::Create(layout.padded_count(), world_size, std::move(shards));
}

absl::Status CheckHosts(const ReplicaOptions& replicas, int world_size) {
  if (replicas.count < 0) {
    return absl::InvalidArgumentError(
        absl::StrFormat("replicas: expected none or more, got %d", replicas.count));
  }
  if (!replicas.hosts.empty() && replicas.hosts.size() != static_cast<size_t>(world_size)) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "replicas: hosts has %d entries; expected none, or one for each of %d ranks",
        replicas.hosts.size(), world_size));
  }
  return absl::OkStatus();
}

// Of each of `owners`: itself, then its replicas.
std::vector<Holders> HoldersOf(absl::Span<const Rank> owners, const ReplicaOptions& replicas) {
  const auto count = static_cast<int64_t>(owners.size());
  const int64_t wanted = std::min<int64_t>(replicas.count, count - 1);
  std::vector<Holders> all(owners.size());
  for (int64_t i = 0; i < count; ++i) {
    Holders& holders = all[i];
    holders.push_back(owners[i]);
    const auto take = [&](bool same_host) {
      for (int64_t ahead = 1; ahead < count; ++ahead) {
        if (static_cast<int64_t>(holders.size()) > wanted) return;
        const Rank other = owners[(i + ahead) % count];
        const bool is_same =
            !replicas.hosts.empty() && replicas.hosts[other] == replicas.hosts[owners[i]];
        if (is_same == same_host) holders.push_back(other);
      }
    };
    take(/*same_host=*/false);
    take(/*same_host=*/true);
  }
  return all;
}

std::vector<Rank> RanksFrom(Rank first, int count) {
  std::vector<Rank> ranks(static_cast<size_t>(count));
  std::iota(ranks.begin(), ranks.end(), first);
  return ranks;
}

absl::StatusOr<StateMaps> MapsOfStage(int stage, ShardMap everything, ShardMap slices) {
  if (stage < 1 || stage > 3) {
    return absl::InvalidArgumentError(
        absl::StrFormat("sharding stage: expected 1, 2 or 3, got %d", stage));
  }
  return StateMaps{.parameters = stage >= 3 ? slices : everything,
                   .masters = slices,
                   .gradients = stage >= 2 ? slices : everything};
}

}  // namespace

absl::StatusOr<StateMaps> ReplicatedState(const Layout& layout, int workers) {
  MUSTER_ASSIGN_OR_RETURN(const ShardMap map, ShardMap::Replicated(layout.padded_count(), workers));
  return StateMaps{map, map, map};
}

absl::StatusOr<StateMaps> ShardedState(const Layout& layout, int workers, int stage,
                                       const ReplicaOptions& replicas) {
  MUSTER_ASSIGN_OR_RETURN(const BucketSlices slices, BucketSlices::Even(layout, workers));
  MUSTER_RETURN_IF_ERROR(CheckHosts(replicas, workers));
  const std::vector<Holders> holders = HoldersOf(RanksFrom(0, workers), replicas);
  MUSTER_ASSIGN_OR_RETURN(ShardMap map,
                          MapOfSlices(layout, slices, workers,
                                      [&](int slice) -> const Holders& { return holders[slice]; }));
  MUSTER_ASSIGN_OR_RETURN(ShardMap all, ShardMap::Replicated(layout.padded_count(), workers));
  return MapsOfStage(stage, std::move(all), std::move(map));
}

absl::StatusOr<StateMaps> HybridShardedState(const Layout& layout, int workers, int group_size,
                                             int stage) {
  MUSTER_ASSIGN_OR_RETURN(const BucketSlices slices, BucketSlices::Even(layout, workers));
  if (group_size < 1 || workers % group_size != 0) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "hybrid sharding: groups of %d ranks; expected a size that divides the %d workers",
        group_size, workers));
  }
  const int groups = workers / group_size;
  std::vector<Holders> holders(static_cast<size_t>(workers));
  for (int slice = 0; slice < workers; ++slice) {
    const int position = slice / groups;
    const int first_group = slice % groups;
    for (int i = 0; i < groups; ++i) {
      holders[slice].push_back((first_group + i) % groups * group_size + position);
    }
  }
  MUSTER_ASSIGN_OR_RETURN(ShardMap map,
                          MapOfSlices(layout, slices, workers,
                                      [&](int slice) -> const Holders& { return holders[slice]; }));
  MUSTER_ASSIGN_OR_RETURN(ShardMap all, ShardMap::Replicated(layout.padded_count(), workers));
  return MapsOfStage(stage, std::move(all), std::move(map));
}

absl::StatusOr<StateMaps> ServedState(const Layout& layout, int workers, int servers,
                                      ServerPlacement placement, const ReplicaOptions& replicas) {
  const bool dedicated = placement == ServerPlacement::kDedicated;
  const int least_servers = dedicated ? 1 : 0;
  if (workers < 1 || servers < least_servers || workers > BucketSlices::kMaxOwners ||
      servers > BucketSlices::kMaxOwners) {
    return absl::InvalidArgumentError(
        absl::StrFormat("parameter servers: %d workers and %d servers; expected at least 1 and %d, "
                        "at most %d each",
                        workers, servers, least_servers, BucketSlices::kMaxOwners));
  }
  const int world_size = workers + servers;
  MUSTER_RETURN_IF_ERROR(CheckHosts(replicas, world_size));
  std::vector<int64_t> weights(static_cast<size_t>(world_size), 1);
  if (dedicated) {
    std::fill(weights.begin(), weights.begin() + workers, 0);
  } else {
    weights = MixedWeights(workers, servers);
  }
  // Slices are cut among those that own something, since others can't be replicas either.
  std::vector<Rank> owners;
  std::vector<int64_t> their_weights;
  for (Rank rank = 0; rank < world_size; ++rank) {
    if (weights[rank] == 0) continue;
    owners.push_back(rank);
    their_weights.push_back(weights[rank]);
  }
  MUSTER_ASSIGN_OR_RETURN(const BucketSlices slices, BucketSlices::Weighted(layout, their_weights));
  const std::vector<Holders> holders = HoldersOf(owners, replicas);
  MUSTER_ASSIGN_OR_RETURN(const ShardMap map,
                          MapOfSlices(layout, slices, world_size,
                                      [&](int slice) -> const Holders& { return holders[slice]; }));
  Shard all_parameters = {.range = {0, layout.padded_count()}, .holders = {}};
  for (Rank worker = 0; worker < workers; ++worker) all_parameters.holders.push_back(worker);
  MUSTER_ASSIGN_OR_RETURN(ShardMap parameters, ShardMap::Create(layout.padded_count(), world_size,
                                                                {std::move(all_parameters)}));
  return StateMaps{.parameters = std::move(parameters), .masters = map, .gradients = map};
}

std::vector<int64_t> MixedWeights(int workers, int servers) {
  MUSTER_CHECK(workers >= 1 && servers >= 0) << workers << " workers, " << servers << " servers";
  const int64_t worker = std::max(0, workers - servers);
  // From k = n on servers share alike, and a single worker's gradients need no sum.
  const int64_t server = worker == 0 ? 1 : 2 * (int64_t{workers} - 1);
  std::vector<int64_t> weights(static_cast<size_t>(workers), worker);
  weights.resize(static_cast<size_t>(workers) + static_cast<size_t>(servers), server);
  return weights;
}

}  // namespace muster
