// A bound for an all-reduce over TCP.
#ifndef MUSTER_BENCH_COLLECTIVES_TCP_BOUND_H_
#define MUSTER_BENCH_COLLECTIVES_TCP_BOUND_H_

namespace muster::bench {

// Serves (rank_group.h). Not an all-reduce: every rank streams 2 (n-1)/n of the bytes, which is
// what any all-reduce must send, to its right neighbour over one bare TCP connection while it
// receives as much from its left; no framing, no sum.
int ServeTcpBound(int ranks);

}  // namespace muster::bench

#endif  // MUSTER_BENCH_COLLECTIVES_TCP_BOUND_H_
