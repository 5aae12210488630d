#include "state/source_balance.h"

#include <algorithm>
#include <numeric>

#include "base/check.h"

namespace muster {
namespace {

// Chains of demands that share sources pairwise need a round for each link; after these many the
// rest is not worth the time.
constexpr int kMostRounds = 64;

// Adds `count` to the least of `loads` so that they become as even as can be; returns what each
// got.
std::vector<int64_t> Pour(int64_t count, const std::vector<int64_t>& loads) {
  std::vector<size_t> order(loads.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&loads](size_t a, size_t b) { return loads[a] < loads[b]; });
  // How many of the least loaded are reached by the water.
  size_t reached = 1;
  int64_t sum = loads[order[0]];
  while (reached < order.size() &&
         loads[order[reached]] * static_cast<int64_t>(reached) - sum < count) {
    sum += loads[order[reached]];
    ++reached;
  }
  const int64_t level = (sum + count) / static_cast<int64_t>(reached);
  int64_t left = (sum + count) % static_cast<int64_t>(reached);
  std::vector<int64_t> poured(loads.size());
  for (size_t i = 0; i < reached; ++i) {
    poured[order[i]] = level - loads[order[i]] + (left > 0 ? 1 : 0);
    left -= left > 0 ? 1 : 0;
  }
  return poured;
}

}  // namespace

std::vector<std::vector<int64_t>> BalanceSources(const std::vector<Demand>& demands, int ranks) {
  std::vector<int64_t> load(static_cast<size_t>(ranks));
  std::vector<std::vector<int64_t>> shares(demands.size());
  // Those with the least choice first.
  std::vector<size_t> order(demands.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&demands](size_t a, size_t b) {
    return demands[a].sources.size() < demands[b].sources.size();
  });
  bool changed = true;
  for (int round = 0; round < kMostRounds && changed; ++round) {
    changed = false;
    for (const size_t index : order) {
      const Demand& demand = demands[index];
      std::vector<int64_t>& share = shares[index];
      MUSTER_CHECK(!demand.sources.empty());
      if (share.empty()) share.resize(demand.sources.size());
      std::vector<int64_t> without;
      for (size_t i = 0; i < share.size(); ++i) {
        without.push_back(load[demand.sources[i]] - share[i]);
      }
      std::vector<int64_t> poured = Pour(demand.count, without);
      for (size_t i = 0; i < share.size(); ++i) load[demand.sources[i]] = without[i] + poured[i];
      // Single elements may wander for ever.
      for (size_t i = 0; i < share.size(); ++i) {
        changed = changed || poured[i] > share[i] + 1 || poured[i] < share[i] - 1;
      }
      share = std::move(poured);
    }
  }
  return shares;
}

}  // namespace muster
