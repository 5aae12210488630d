// bench-allreduce measures that alone.
#include "bench/collectives/bench.h"

namespace muster::bench {

std::vector<Kind> KindsOfThisProgram() { return {Kind::kAllReduce}; }

}  // namespace muster::bench
