// Muster's own ranks for the benches.
#ifndef MUSTER_BENCH_COLLECTIVES_MUSTER_RANKS_H_
#define MUSTER_BENCH_COLLECTIVES_MUSTER_RANKS_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "bench/collectives/rank_group.h"
#include "collectives/engine/communicator.h"
#include "collectives/transport/grpc/grpc_listener.h"
#include "collectives/transport/shm/shared_arena.h"
#include "collectives/transport/tcp_listener.h"
#include "collectives/transport/transport.h"

namespace muster::bench {

// Tunables that the benches expose.
struct MusterOptions {
  int channels = 0;  // 0: the default
  int socket_buffer_bytes = 0;
  int64_t segment_bytes = 0;        // 0: the default
  int64_t direct_limit_bytes = -1;  // negative: the default
  int64_t small_limit_bytes = -1;   // shm: negative: the default
  int spin_us = -1;                 // negative: the default
  std::string provider = "auto";    // of libfabric
  int packet_bytes = 0;             // of libfabric; 0: the default
  // The ranks measure their mesh, as workers do, before "auto" is first asked for.
  bool tunes = false;
  // Hosts that the ranks are on, as far as Muster knows, as many in a row on each.
  int hosts = 1;
};

// One process's end of a mesh.
struct MusterEnd {
  std::unique_ptr<TcpListener> listener;
  std::unique_ptr<GrpcListener> server;  // over gRPC
  std::shared_ptr<SharedArena> arena;
  std::unique_ptr<Transport> transport;
  std::string explanation;  // one line of what is in use and why, where there was a choice
};

// Connects this process with the others of `exchange` by "shm", "tcp", "shm+tcp"
// (memory within each of options.hosts), "grpc" or "ofi".
absl::StatusOr<MusterEnd> JoinMesh(const std::string& transport, int rank, Exchange& exchange,
                                   const MusterOptions& options);

CommunicatorOptions CommunicatorOptionsOf(const MusterOptions& options, int ranks);

// Whether such a rank can do it by `algorithm`, a name or "auto", on so many hosts.
bool CanMeasure(Kind kind, ElementType type, const std::string& algorithm, int hosts);

// A rank over a communicator of ranks on so many hosts. The variant names the algorithm. With
// `arena` its buffers are shared with the other ranks.
std::unique_ptr<BenchRank> MakeMusterRank(std::unique_ptr<Communicator> communicator,
                                          std::shared_ptr<SharedArena> arena,
                                          const MusterOptions& options);

// Serves (rank_group.h) until its input ends and returns the exit code. `transport` is as for
// JoinMesh, or "inproc". With `registered` in buffers that the ranks share.
int ServeMuster(const std::string& transport, int ranks, bool registered,
                const MusterOptions& options);

}  // namespace muster::bench

#endif  // MUSTER_BENCH_COLLECTIVES_MUSTER_RANKS_H_
