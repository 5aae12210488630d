// Muster's own ranks for bench-allreduce, and the bound they are measured against.
#ifndef MUSTER_BENCH_ALLREDUCE_MUSTER_RANKS_H_
#define MUSTER_BENCH_ALLREDUCE_MUSTER_RANKS_H_

#include <cstdint>
#include <string>

namespace muster::bench {

// Tunables that the bench exposes.
struct MusterOptions {
  int channels = 0;                 // 0: the default
  int socket_buffer_bytes = 0;
  int64_t segment_bytes = 0;        // 0: the default
  int64_t direct_limit_bytes = -1;  // negative: the default
  int64_t small_limit_bytes = -1;   // shm: negative: the default
  int spin_us = -1;                 // negative: the default
  std::string provider = "auto";    // of libfabric
  int packet_bytes = 0;             // of libfabric; 0: the default
};

// Each serves (rank_group.h) until its input ends and returns the exit code.
int ServeMusterTcp(int ranks, const MusterOptions& options);
int ServeMusterOfi(int ranks, const MusterOptions& options);
// With `registered` in buffers that the ranks share; otherwise in memory of their own.
int ServeMusterShm(int ranks, bool registered, const MusterOptions& options);
int ServeMusterInProcess(int ranks, const MusterOptions& options);

// Not an all-reduce: every rank streams 2 (n-1)/n of the bytes, which is what any all-reduce must
// send, to its right neighbour over one bare TCP connection while it receives as much from its
// left; no framing, no sum.
int ServeTcpBound(int ranks);

}  // namespace muster::bench

#endif  // MUSTER_BENCH_ALLREDUCE_MUSTER_RANKS_H_
