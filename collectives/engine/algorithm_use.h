// Which algorithms a communicator's operations have taken so far, for which sizes, and why.
//
// Thread-compatible: called under the communicator's lock, once for each new plan.
#ifndef MUSTER_COLLECTIVES_ENGINE_ALGORITHM_USE_H_
#define MUSTER_COLLECTIVES_ENGINE_ALGORITHM_USE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "collectives/schedule/schedule.h"

namespace muster {

struct AlgorithmUse {
  Collective collective = Collective::kAllReduce;
  Algorithm algorithm = Algorithm::kAuto;
  bool automatic = false;   // the caller left the choice
  int64_t least_bytes = 0;  // of the whole vectors that took it
  int64_t most_bytes = 0;
  std::string why;
  bool operator==(const AlgorithmUse&) const = default;
};

class AlgorithmUses {
 public:
  // A call of `bytes` takes `taken`, where `asked` was asked for. `why` explains an automatic
  // choice; the newest explanation counts.
  void Note(Collective collective, Algorithm asked, Algorithm taken, int64_t bytes,
            std::string why);
  // By collective, then smallest size.
  std::vector<AlgorithmUse> List() const;

 private:
  std::vector<AlgorithmUse> uses_;  // no more than there are collectives and algorithms
};

}  // namespace muster

#endif  // MUSTER_COLLECTIVES_ENGINE_ALGORITHM_USE_H_
