#include "base/control/placement.h"

#include <algorithm>
#include <numeric>

#include "base/check.h"

namespace muster {
namespace {

bool IsLeaving(const View& view, Incarnation incarnation) {
  return std::find(view.leaving.begin(), view.leaving.end(), incarnation) != view.leaving.end();
}

// Distances from owner to replica, best first.
std::vector<size_t> Strides(const View& view, const std::vector<Rank>& owners) {
  const size_t count = owners.size();
  const auto host = [&](size_t i) -> const std::string& {
    return view.members[static_cast<size_t>(owners[i % count])].host;
  };
  std::vector<int> same_host(count, 0);
  for (size_t stride = 1; stride < count; ++stride) {
    for (size_t i = 0; i < count; ++i) same_host[stride] += host(i) == host(i + stride);
  }
  std::vector<size_t> strides(count - 1);
  std::iota(strides.begin(), strides.end(), 1);
  std::stable_sort(strides.begin(), strides.end(),
                   [&](size_t a, size_t b) { return same_host[a] < same_host[b]; });
  return strides;
}

}  // namespace

ShareWeights WeightsOf(const Strategy& strategy, int64_t workers, int64_t servers) {
  if (!strategy.serves() || servers == 0) return {};
  if (strategy.mixed && workers > servers) {
    return {.worker = workers - servers, .server = 2 * (workers - 1)};
  }
  return {.worker = 0, .server = 1};
}

ShardGroups GroupsOf(const View& view) {
  std::vector<Rank> ranks;
  std::vector<std::string> hosts;
  for (size_t i = 0; i < view.members.size(); ++i) {
    if (IsLeaving(view, view.members[i].incarnation)) continue;
    ranks.push_back(static_cast<Rank>(i));
    hosts.push_back(view.members[i].host);
  }
  return FormShardGroups(view.strategy, ranks, hosts);
}

std::vector<int64_t> ShardWeights(const View& view) {
  std::vector<int64_t> weights(view.members.size(), 0);
  if (view.strategy.grouped()) {
    const ShardGroups groups = GroupsOf(view);
    for (const Rank rank : groups.groups.front()) weights[static_cast<size_t>(rank)] = 1;
    return weights;
  }
  int64_t workers = 0;
  int64_t servers = 0;
  for (const Member& member : view.members) {
    if (IsLeaving(view, member.incarnation)) continue;
    ++(member.role == MemberRole::kParameterServer ? servers : workers);
  }
  const ShareWeights of = WeightsOf(view.strategy, workers, servers);
  for (size_t i = 0; i < weights.size(); ++i) {
    const Member& member = view.members[i];
    if (IsLeaving(view, member.incarnation)) continue;
    weights[i] = member.role == MemberRole::kParameterServer ? of.server : of.worker;
  }
  return weights;
}

std::vector<Rank> ShardOwners(const View& view) {
  const std::vector<int64_t> weights = ShardWeights(view);
  std::vector<Rank> owners;
  for (size_t i = 0; i < weights.size(); ++i) {
    if (weights[i] > 0) owners.push_back(static_cast<Rank>(i));
  }
  return owners;
}

std::vector<std::vector<Rank>> ShardHolders(const View& view) {
  const std::vector<Rank> owners = ShardOwners(view);
  if (!view.strategy.sharded()) return {owners};
  MUSTER_CHECK(!owners.empty()) << "every member of view " << view.epoch << " is leaving";
  if (view.strategy.grouped()) {
    if (const ShardGroups groups = GroupsOf(view); groups.count() > 1) {
      std::vector<std::vector<Rank>> holders(owners.size());
      for (const std::vector<Rank>& group : groups.groups) {
        for (size_t place = 0; place < group.size(); ++place) {
          holders[place].push_back(group[place]);
        }
      }
      return holders;
    }
  }
  const std::vector<size_t> strides = Strides(view, owners);
  const size_t replicas =
      std::min(strides.size(), static_cast<size_t>(std::max(0, view.strategy.replicas)));
  std::vector<std::vector<Rank>> holders(owners.size());
  for (size_t s = 0; s < owners.size(); ++s) {
    holders[s].push_back(owners[s]);
    for (size_t k = 0; k < replicas; ++k) {
      holders[s].push_back(owners[(s + strides[k]) % owners.size()]);
    }
  }
  return holders;
}

int LeastHolders(const View& view, const std::vector<Incarnation>& members) {
  int least = static_cast<int>(view.members.size());
  for (const std::vector<Rank>& holders : ShardHolders(view)) {
    const auto count = std::count_if(holders.begin(), holders.end(), [&](Rank rank) {
      const Incarnation holder = view.members[static_cast<size_t>(rank)].incarnation;
      return std::find(members.begin(), members.end(), holder) != members.end();
    });
    least = std::min(least, static_cast<int>(count));
  }
  return least;
}

}  // namespace muster
