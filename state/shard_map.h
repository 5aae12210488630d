// The shard map: which ranks hold which range of the flat space.
//
// The map cuts [0, element_count) into shards without gaps or overlap. The first holder of a shard
// is its owner; the others are replicas. Every holder applies the same update to the range. Shards
// are as long as they can be: neighbours differ in their holders. A rank may hold nothing.
// state/sharding.h makes the maps of the strategies.
//
// A value; immutable after construction, so thread-safe.
#ifndef MUSTER_STATE_SHARD_MAP_H_
#define MUSTER_STATE_SHARD_MAP_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/status/statusor.h"
#include "base/ids.h"
#include "state/range.h"

namespace muster {

// Maps of large fleets have many shards of few holders.
using Holders = absl::InlinedVector<Rank, 4>;

struct Shard {
  Range range;
  Holders holders;  // never empty, no rank twice; holders[0] is the owner
  bool operator==(const Shard&) const = default;
};

class ShardMap {
 public:
  // Every one of ranks 0 .. world_size - 1 holds everything. INVALID_ARGUMENT unless
  // element_count > 0 and world_size > 0.
  static absl::StatusOr<ShardMap> Replicated(int64_t element_count, int world_size);

  // `shards` in order of offset; empty ones are dropped, neighbours of equal holders are merged.
  // INVALID_ARGUMENT names a gap or an overlap, a shard without holders, a rank outside the world
  // or twice in one shard.
  static absl::StatusOr<ShardMap> Create(int64_t element_count, int world_size,
                                         std::vector<Shard> shards);

  int64_t element_count() const { return element_count_; }
  int world_size() const { return world_size_; }
  // In order of offset.
  const std::vector<Shard>& shards() const { return shards_; }

  // The shard that `element` lies in. Requires: 0 <= element < element_count().
  const Shard& ShardOf(int64_t element) const;
  Rank OwnerOf(int64_t element) const { return ShardOf(element).holders.front(); }

  // What `rank` holds, as owner or replica: ranges in order of offset, neighbours merged.
  std::vector<Range> RangesHeldBy(Rank rank) const;
  // What `rank` owns, likewise.
  std::vector<Range> RangesOwnedBy(Rank rank) const;
  // True if `rank` holds every element of `range`.
  bool Holds(Rank rank, Range range) const;
  // Elements that `rank` holds, as owner or replica.
  int64_t CountHeldBy(Rank rank) const;

  // "replicated over ranks 0..3", for people.
  std::string ToString() const;

  bool operator==(const ShardMap&) const = default;

 private:
  ShardMap() = default;
  int64_t element_count_ = 0;
  int world_size_ = 0;
  std::vector<Shard> shards_;
};

}  // namespace muster

#endif  // MUSTER_STATE_SHARD_MAP_H_
