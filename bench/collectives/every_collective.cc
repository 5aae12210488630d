// bench-collectives measures all there are.
#include "bench/collectives/bench.h"

namespace muster::bench {

std::vector<Kind> KindsOfThisProgram() {
  std::vector<Kind> kinds;
  for (const std::string& name : KindNames()) kinds.push_back(*KindFromName(name));
  return kinds;
}

}  // namespace muster::bench
