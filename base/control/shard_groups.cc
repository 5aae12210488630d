#include "base/control/shard_groups.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"
#include "base/check.h"

namespace muster {
namespace {

struct HostMembers {
  std::string host;
  std::vector<Rank> ranks;
};

// In order of their first ranks.
std::vector<HostMembers> ByHost(absl::Span<const Rank> ranks, absl::Span<const std::string> hosts) {
  std::vector<HostMembers> result;
  for (size_t i = 0; i < ranks.size(); ++i) {
    auto found = std::find_if(result.begin(), result.end(),
                              [&](const HostMembers& each) { return each.host == hosts[i]; });
    if (found == result.end()) found = result.insert(found, HostMembers{hosts[i], {}});
    found->ranks.push_back(ranks[i]);
  }
  return result;
}

ShardGroups OneGroup(absl::Span<const Rank> ranks, std::string obstacle) {
  return {{{ranks.begin(), ranks.end()}}, std::move(obstacle)};
}

}  // namespace

ShardGroups FormShardGroups(const Strategy& strategy, absl::Span<const Rank> ranks,
                            absl::Span<const std::string> hosts) {
  MUSTER_CHECK_EQ(ranks.size(), hosts.size());
  if (!strategy.grouped() || ranks.empty()) return OneGroup(ranks, "");
  const std::vector<HostMembers> by_host = ByHost(ranks, hosts);
  if (strategy.host_groups) {
    ShardGroups result;
    for (const HostMembers& each : by_host) {
      const HostMembers& first = by_host.front();
      if (each.ranks.size() != first.ranks.size()) {
        return OneGroup(
            ranks, absl::StrFormat("host %s has %d workers and host %s %d, so shards are of all %d "
                                   "workers instead of each host's",
                                   first.host, first.ranks.size(), each.host, each.ranks.size(),
                                   ranks.size()));
      }
      result.groups.push_back(each.ranks);
    }
    return result;
  }
  const auto size = static_cast<size_t>(strategy.group_size);
  if (ranks.size() % size != 0) {
    return OneGroup(ranks,
                    absl::StrFormat("%d workers cannot be parted into groups of %d, so shards are "
                                    "of all of them",
                                    ranks.size(), size));
  }
  std::vector<Rank> in_order;
  for (const HostMembers& each : by_host) {
    in_order.insert(in_order.end(), each.ranks.begin(), each.ranks.end());
  }
  ShardGroups result;
  for (auto first = in_order.begin(); first != in_order.end();
       first += static_cast<std::ptrdiff_t>(size)) {
    std::vector<Rank>& group =
        result.groups.emplace_back(first, first + static_cast<std::ptrdiff_t>(size));
    std::sort(group.begin(), group.end());
  }
  return result;
}

}  // namespace muster
