// The shard maps of strategies, for tests that need some.
#ifndef MUSTER_TESTS_STATE_STRATEGY_MAPS_H_
#define MUSTER_TESTS_STATE_STRATEGY_MAPS_H_

#include "base/control/messages.h"
#include "state/layout.h"
#include "state/shard_map.h"
#include "state/view_map.h"

namespace muster {

// Of a view of so many workers and, behind them, parameter servers, all on one host.
inline ShardMap StrategyMap(const Layout& layout, const Strategy& strategy, int workers,
                            int servers = 0) {
  View view;
  view.strategy = strategy;
  for (int rank = 0; rank < workers + servers; ++rank) {
    view.members.emplace_back();
    view.members.back().incarnation = Incarnation{static_cast<uint64_t>(rank) + 1};
    if (rank >= workers) view.members.back().role = MemberRole::kParameterServer;
  }
  return MapOf(view, layout).value().map;
}

inline ShardMap Sharded(const Layout& layout, int workers, int replicas = 0) {
  return StrategyMap(layout, {.stage = 3, .replicas = replicas}, workers);
}

inline ShardMap Served(const Layout& layout, int workers, int servers, bool mixed,
                       int replicas = 0) {
  return StrategyMap(layout,
                     {.sync = SyncPath::kParameterServer,
                      .replicas = replicas,
                      .servers = servers,
                      .mixed = mixed},
                     workers, servers);
}

}  // namespace muster

#endif  // MUSTER_TESTS_STATE_STRATEGY_MAPS_H_
