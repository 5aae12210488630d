#include "state/shard_map.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "base/check.h"
#include "base/status_macros.h"

namespace muster {
namespace {

bool Contains(const Holders& holders, Rank rank) {
  return std::find(holders.begin(), holders.end(), rank) != holders.end();
}

absl::Status CheckHolders(const Shard& shard, int world_size) {
  if (shard.holders.empty()) {
    return absl::InvalidArgumentError(absl::StrFormat("shard map: nobody holds elements %d to %d",
                                                      shard.range.offset, shard.range.end()));
  }
  Holders sorted = shard.holders;
  std::sort(sorted.begin(), sorted.end());
  if (sorted.front() < 0 || sorted.back() >= world_size) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "shard map: elements %d to %d are held by rank %d; expected 0 to %d", shard.range.offset,
        shard.range.end(), sorted.front() < 0 ? sorted.front() : sorted.back(), world_size - 1));
  }
  const auto twice = std::adjacent_find(sorted.begin(), sorted.end());
  if (twice != sorted.end()) {
    return absl::InvalidArgumentError(
        absl::StrFormat("shard map: rank %d is named twice as holder of elements %d to %d", *twice,
                        shard.range.offset, shard.range.end()));
  }
  return absl::OkStatus();
}

// The ranges of the shards that `chosen` says, neighbours merged.
template <typename Predicate>
std::vector<Range> RangesWhere(const std::vector<Shard>& shards, Predicate chosen) {
  std::vector<Range> ranges;
  for (const Shard& shard : shards) {
    if (!chosen(shard)) continue;
    if (!ranges.empty() && ranges.back().end() == shard.range.offset) {
      ranges.back().count += shard.range.count;
    } else {
      ranges.push_back(shard.range);
    }
  }
  return ranges;
}

}  // namespace

absl::StatusOr<ShardMap> ShardMap::Replicated(int64_t element_count, int world_size) {
  Shard everything{.range = {.offset = 0, .count = element_count}, .holders = {}};
  everything.holders.resize(std::max(0, world_size));
  std::iota(everything.holders.begin(), everything.holders.end(), Rank{0});
  return Create(element_count, world_size, {std::move(everything)});
}

absl::StatusOr<ShardMap> ShardMap::Create(int64_t element_count, int world_size,
                                          std::vector<Shard> shards) {
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
  int64_t next = 0;
  for (Shard& shard : shards) {
    if (shard.range.offset != next || shard.range.count < 0 ||
        shard.range.count > element_count - next) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "shard map: a shard has %d elements from %d on; expected it to begin at %d, where the "
          "one before ends, and to end by %d",
          shard.range.count, shard.range.offset, next, element_count));
    }
    next += shard.range.count;
    if (shard.range.count == 0) continue;
    MUSTER_RETURN_IF_ERROR(CheckHolders(shard, world_size));
    if (!map.shards_.empty() && map.shards_.back().holders == shard.holders) {
      map.shards_.back().range.count += shard.range.count;
    } else {
      map.shards_.push_back(std::move(shard));
    }
  }
  if (next != element_count) {
    return absl::InvalidArgumentError(
        absl::StrFormat("shard map: shards end at element %d; expected %d", next, element_count));
  }
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
  return RangesWhere(shards_, [rank](const Shard& shard) { return Contains(shard.holders, rank); });
}

std::vector<Range> ShardMap::RangesOwnedBy(Rank rank) const {
  return RangesWhere(shards_, [rank](const Shard& shard) { return shard.holders[0] == rank; });
}

bool ShardMap::Holds(Rank rank, Range range) const {
  const std::vector<Range> held = RangesHeldBy(rank);
  return std::any_of(held.begin(), held.end(),
                     [range](Range candidate) { return candidate.Contains(range); });
}

int64_t ShardMap::CountHeldBy(Rank rank) const {
  int64_t count = 0;
  for (const Range range : RangesHeldBy(rank)) count += range.count;
  return count;
}

std::string ShardMap::ToString() const {
  const bool replicated =
      shards_.size() == 1 && static_cast<int>(shards_.front().holders.size()) == world_size_;
  if (replicated) return absl::StrFormat("replicated over ranks 0..%d", world_size_ - 1);
  return absl::StrFormat("%d shards over ranks 0..%d", shards_.size(), world_size_ - 1);
}

}  // namespace muster
