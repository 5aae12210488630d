// Parameter servers, inside the hosts first: what the workers of a host contribute is added up
// there, so that the links between hosts, the slow ones, carry each element once per host instead
// of once per worker, and an owner adds up as many contributions as there are hosts (as Herring,
// Thangakrishnan et al. 2020). Pure functions.
//
// Push: 1. In each host a direct reduce-scatter: each worker gets the host's sum of what it owns,
// and of a share of what nobody of the host owns, the same for each of its workers: what it
// *carries*.
// 2. Each worker hands what it carries to the owners, who add up the hosts' sums in the order of
// the hosts. Pull: 1. Each worker fetches what it carries from the owners. 2. In each host a direct
// all-gather.
//
// So all workers of a host are lanes between it and the owners. Hosts cut their shares each for
// itself and may have different numbers of workers; servers may be on hosts of their own or beside
// workers. Where every host has one worker these are the direct push and pull, but for the order of
// the sums.
//
// Not the canonical order. Partial sums travel: not for 16-bit floats, but a pull does not add.
#ifndef MUSTER_COLLECTIVES_SCHEDULE_HIERARCHICAL_PUSH_PULL_H_
#define MUSTER_COLLECTIVES_SCHEDULE_HIERARCHICAL_PUSH_PULL_H_

#include <cstdint>
#include <vector>

#include "collectives/schedule/schedule.h"
#include "collectives/schedule/schedule_request.h"

namespace muster::schedule_internal {

// Each requires a valid request of its collective.
Schedule HierarchicalPush(const ScheduleRequest& request);
Schedule HierarchicalPull(const ScheduleRequest& request);

// A part of one chunk, of which a worker carries its host's sum to the owner, or the owner's result
// to its host.
struct CarriedPiece {
  Rank owner = 0;
  int64_t offset = 0;  // in the whole vector
  int64_t count = 0;
};

// The workers of a host, rising, and what each of them carries, in the order in which it travels.
struct HostCrew {
  std::vector<Rank> workers;
  std::vector<std::vector<CarriedPiece>> carried;
};
// The hosts that have workers, in the order of their first ones. Each starts with another owner, so
// that they do not all turn to the same one. Requires: a valid request of a push or a pull.
std::vector<HostCrew> HostCrews(const ScheduleRequest& request);

}  // namespace muster::schedule_internal

#endif  // MUSTER_COLLECTIVES_SCHEDULE_HIERARCHICAL_PUSH_PULL_H_
