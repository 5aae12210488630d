// The reshard plan: the moves that take state from where it is to where a shard map wants it.
// Growing, shrinking, healing, draining, switching strategy: all are such plans.
//
// Ranks here are *participants*: ranks of the mesh over which the state moves. Old and new views
// number their members as they like; whoever plans says which participant is which. A participant
// may give only, take only, or do neither; the dead are none.
//
// A plan
//   covers every range that a participant is to hold and does not, exactly once, from a holder of
//   the right tag;
//   moves nothing that is already in place;
//   spreads what several participants could give so that the one who gives most gives as little as
//   can be (up to rounding to elements);
//   leaves copies alone: old ones are freed only when the new map is held everywhere (rule 8), so
//   a participant's peak memory is what it had, what it gets, and the mover's window.
//
// Pure values and functions.
#ifndef MUSTER_STATE_RESHARD_PLAN_H_
#define MUSTER_STATE_RESHARD_PLAN_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/control/messages.h"
#include "base/ids.h"
#include "state/range.h"
#include "state/shard_map.h"

namespace muster {

// A participant has all of `range`, in the state that `tag` names.
struct Holding {
  Rank participant = 0;
  StateTag tag;
  Range range;
  bool operator==(const Holding&) const = default;
};

// What the members of a view with `map` hold. participant_of[r] is rank r's, none if it is dead.
// Requires: one entry per rank of the map.
std::vector<Holding> HoldingsOf(const ShardMap& map,
                                absl::Span<const std::optional<Rank>> participant_of,
                                const StateTag& tag);

struct Transfer {
  Rank from = 0;
  Rank to = 0;
  Range range;
  bool operator==(const Transfer&) const = default;
};

struct ReshardPlan {
  StateTag tag;
  int participants = 0;
  int64_t element_count = 0;
  // By (from, to), then offset; ranges of one pair are neither empty nor neighbours.
  std::vector<Transfer> transfers;
  // A hash of all of the above: who moves together must have the same plan.
  uint64_t fingerprint = 0;

  int64_t SentBy(Rank participant) const;
  int64_t ReceivedBy(Rank participant) const;
  bool operator==(const ReshardPlan&) const = default;
};

// The plan that leaves participant participant_of[r] with all that rank r holds in `target`, at
// `tag`. Holdings of other tags don't count; those of one participant may overlap.
//   INVALID_ARGUMENT     a holding outside the space or of no participant; participant_of does not
//                        name a participant of its own for each rank of `target`
//   FAILED_PRECONDITION  names the first range that nobody holds at `tag`, and who holds it at
//                        which other one
absl::StatusOr<ReshardPlan> PlanReshard(const StateTag& tag, absl::Span<const Holding> holdings,
                                        const ShardMap& target,
                                        absl::Span<const Rank> participant_of, int participants);

}  // namespace muster

#endif  // MUSTER_STATE_RESHARD_PLAN_H_
