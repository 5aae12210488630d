#include "state/shard_map.h"

#include <algorithm>
#include <numeric>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "base/check.h"

namespace muster {

absl::StatusOr<ShardMap> ShardMap::Replicated(int64_t element_count, int world_size) {
  if (element_count <= 0) {
    return absl::InvalidArgumentError(
        absl::StrFormat("shard map: expected at least 1 element, got %d", element_count));
  }
  if (world_size <= 0) {
    return absl::InvalidArgumentError(
        absl::StrFormat("shard map: expected a world size of at least 1, got %d", world_size));
  }
  ShardMap map;
  map.element_count_ = element_count;
  map.world_size_ = world_size;
  Shard everything{.range = {.offset = 0, .count = element_count}, .holders = {}};
  everything.holders.resize(world_size);
  std::iota(everything.holders.begin(), everything.holders.end(), Rank{0});
  map.shards_.push_back(std::move(everything));
  return map;
}

const Shard& ShardMap::ShardOf(int64_t element) const {
  MUSTER_CHECK(element >= 0 && element < element_count_) << "element " << element;
  const auto after = std::upper_bound(
      shards_.begin(), shards_.end(), element,
      [](int64_t value, const Shard& shard) { return value < shard.range.offset; });
  return *std::prev(after);
}

std::vector<Range> ShardMap::RangesHeldBy(Rank rank) const {
  std::vector<Range> ranges;
  for (const Shard& shard : shards_) {
    if (std::find(shard.holders.begin(), shard.holders.end(), rank) == shard.holders.end()) {
      continue;
    }
    if (!ranges.empty() && ranges.back().end() == shard.range.offset) {
      ranges.back().count += shard.range.count;
    } else {
      ranges.push_back(shard.range);
    }
  }
  return ranges;
}

bool ShardMap::Holds(Rank rank, Range range) const {
  const std::vector<Range> held = RangesHeldBy(rank);
  return std::any_of(held.begin(), held.end(),
                     [range](Range candidate) { return candidate.Contains(range); });
}

std::string ShardMap::ToString() const {
  const bool replicated =
      shards_.size() == 1 && static_cast<int>(shards_.front().holders.size()) == world_size_;
  if (replicated) return absl::StrFormat("replicated over ranks 0..%d", world_size_ - 1);
  return absl::StrFormat("%d shards over ranks 0..%d", shards_.size(), world_size_ - 1);
}

}  // namespace muster
