// How long communication takes in a step of each strategy: the cost model of collectives
// (collectives/model/cost_model.h) over all buckets of a job. Pure; docs/algorithms.md has the
// formulas.
#ifndef MUSTER_SERVER_CORE_STRATEGY_COST_H_
#define MUSTER_SERVER_CORE_STRATEGY_COST_H_

#include <optional>
#include <string>
#include <vector>

#include "base/control/messages.h"
#include "base/control/resources.h"
#include "base/control/state_memory.h"
#include "base/control/strategy.h"

namespace muster {

// A member of a view to come, as far as it matters here.
struct CrewMember {
  WorkerName name;
  MemberRole role = MemberRole::kWorker;
  std::string host;  // empty: a host of its own
  MemoryBudget memory;
  bool operator==(const CrewMember&) const = default;
};

// Who takes part in steps of `strategy`: all workers, and as many servers as it takes.
std::vector<CrewMember> TakersOf(const Strategy& strategy, const std::vector<CrewMember>& crew);
CrewSize SizeOf(const std::vector<CrewMember>& crew);
// The same with the groups that `takers` form (base/control/shard_groups.h).
CrewSize SizeOf(const Strategy& strategy, const std::vector<CrewMember>& takers);

// Seconds of a step in which links are busy, whether or not workers compute meanwhile, with
// `takers` as members. None if the links that it takes were not measured: those to servers, where
// the mesh was one in shared memory, and then those within several groups as well, who send
// messages. Links within groups are taken to be as fast as those between them.
std::optional<double> CommunicationSeconds(const StateSize& size, const Strategy& strategy,
                                           const std::vector<CrewMember>& takers,
                                           const LinkSpeeds& links);

}  // namespace muster

#endif  // MUSTER_SERVER_CORE_STRATEGY_COST_H_
