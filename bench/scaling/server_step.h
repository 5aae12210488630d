// An all-reduce through parameter servers: a vector in buckets, of which each is pushed while the
// one before it is pulled, so that a server's wire is busy in both directions. Not thread-safe.
#ifndef MUSTER_BENCH_SCALING_SERVER_STEP_H_
#define MUSTER_BENCH_SCALING_SERVER_STEP_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "collectives/engine/communicator.h"

namespace muster::bench {

// Workers are the first ranks, servers those after them, each on a host of its own, which has one
// wire. Every host of workers has as many.
struct ServerLayout {
  int workers = 1;
  int servers = 0;
  // Workers own parts as well, so large that all wires carry as much. Requires: servers <= workers,
  // one worker per host.
  bool workers_own = false;
  int workers_per_host = 1;
  bool hierarchical = false;  // inside the hosts first
};

// Bytes that the busiest wire carries in one direction by a push and a pull, over the vector's, if
// each host pushes and pulls once.
double WireLoad(const ServerLayout& layout);
// Elements of `count` that each rank owns.
std::vector<int64_t> OwnedCounts(const ServerLayout& layout, int64_t count);

class ServerStep {
 public:
  // `communicator` must outlive the object.
  ServerStep(Communicator& communicator, const ServerLayout& layout, int64_t count);

  // output = the sum of all workers' inputs, on workers; servers give no input and no output. All
  // ranks call it.
  absl::Status Run(const float* input, float* output);

 private:
  struct Bucket {
    int64_t offset = 0;
    std::vector<int64_t> counts;
    std::vector<int64_t> order_counts;
    std::vector<float> owned;
  };
  Work Push(Bucket& bucket, const float* input);
  Work Pull(Bucket& bucket, float* output);

  Communicator& communicator_;
  const ServerLayout layout_;
  CollectiveOptions call_options_;
  std::vector<Bucket> buckets_;
};

}  // namespace muster::bench

#endif  // MUSTER_BENCH_SCALING_SERVER_STEP_H_
