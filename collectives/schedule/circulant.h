// Reduce-scatter, all-gather and all-reduce in ceil(log2 p) rounds each, for any p, with not one
// element more on the wire than the ring. Pure functions.
//
// Halving-doubling (Rabenseifner 2004: an all-reduce is a reduce-scatter by recursive halving and
// an all-gather by recursive doubling) on circulant graphs, which need no power of two and no fold
// (Träff 2024, "Optimal, non-pipelined reduce-scatter and allreduce algorithms", arXiv 2410.14234).
// A rank holds partial sums of the s blocks up to its own, at first of all p. In a round it keeps
// the last h = ceil(s / 2) of them and hands the others to the rank h behind, whose own block is
// the last of those. The all-gather runs the rounds backwards, between the same ranks. Blocks
// handed over at once are neighbours: one message, or two where the run wraps around the end of the
// vector.
//
// The direction makes rounds overlap: the blocks of a message that the next rounds pass on come
// first, and the own one last; in the all-gather the own one goes first.
//
// Bruck's all-gather (Bruck et al. 1997) is the same with distances 1, 2, 4, ...
//
// Every block has one owner, so all ranks hold the same bits, but the order is not the canonical
// one. Partial sums travel: the reducing ones are not for 16-bit floats.
#ifndef MUSTER_COLLECTIVES_SCHEDULE_CIRCULANT_H_
#define MUSTER_COLLECTIVES_SCHEDULE_CIRCULANT_H_

#include "collectives/schedule/builder.h"
#include "collectives/schedule/schedule.h"
#include "collectives/schedule/schedule_request.h"

namespace muster::schedule_internal {

// Each requires a valid request of its collective.
Schedule HalvingDoublingAllReduce(const ScheduleRequest& request);
Schedule HalvingDoublingReduceScatter(const ScheduleRequest& request);
Schedule HalvingDoublingAllGather(const ScheduleRequest& request);
Schedule BruckAllGather(const ScheduleRequest& request);

// One round of a gather: a rank has the first `have` blocks from its own on and gets `take` more.
struct GatherRound {
  int have = 1;
  int take = 1;
};
std::vector<GatherRound> DoublingRounds(int size);
std::vector<GatherRound> BruckRounds(int size);

// The phases alone, in a team whose member i owns block i. `raw` is where the contributions lie,
// `partial` where sums of blocks may be kept (half the team's, rounded up: those up to the own
// block), `result` where the own one ends. They may be one place.
void AddHalvingReduceScatter(ScheduleBuilder& builder, const Team& team, const Place& raw,
                             const Place& partial, const Place& result);
// `own` is where this rank's block lies before, and may be elsewhere than in `place`.
void AddCirculantAllGather(ScheduleBuilder& builder, const Team& team,
                           const std::vector<GatherRound>& rounds, Slice own, const Place& place);

}  // namespace muster::schedule_internal

#endif  // MUSTER_COLLECTIVES_SCHEDULE_CIRCULANT_H_
