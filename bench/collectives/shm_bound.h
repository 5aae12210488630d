// The hand-written bound of an all-reduce in shared memory: what is left when everything but the
// work is taken away.
#ifndef MUSTER_BENCH_COLLECTIVES_SHM_BOUND_H_
#define MUSTER_BENCH_COLLECTIVES_SHM_BOUND_H_

namespace muster::bench {

// Serves (rank_group.h): between two barriers, rank r reads slice r of every rank's mapped buffer,
// sums in registers, and writes the sum into slice r of every rank's buffer, past the caches from
// 4 MiB up. The barriers spin where each rank has a core, and sleep on a futex otherwise. No
// checks, no deadlines, no death.
int ServeShmBound(int ranks);

}  // namespace muster::bench

#endif  // MUSTER_BENCH_COLLECTIVES_SHM_BOUND_H_
