#include "collectives/engine/algorithm_use.h"

#include <algorithm>
#include <tuple>
#include <utility>

namespace muster {

void AlgorithmUses::Note(Collective collective, Algorithm asked, Algorithm taken, int64_t bytes,
                         std::string why) {
  const bool automatic = asked == Algorithm::kAuto;
  if (!automatic) why = "asked for";
  for (AlgorithmUse& use : uses_) {
    if (use.collective != collective || use.algorithm != taken || use.automatic != automatic) {
      continue;
    }
    use.least_bytes = std::min(use.least_bytes, bytes);
    use.most_bytes = std::max(use.most_bytes, bytes);
    use.why = std::move(why);
    return;
  }
  uses_.push_back({collective, taken, automatic, bytes, bytes, std::move(why)});
}

std::vector<AlgorithmUse> AlgorithmUses::List() const {
  std::vector<AlgorithmUse> uses = uses_;
  std::sort(uses.begin(), uses.end(), [](const AlgorithmUse& a, const AlgorithmUse& b) {
    return std::tie(a.collective, a.least_bytes, a.algorithm, a.automatic) <
           std::tie(b.collective, b.least_bytes, b.algorithm, b.automatic);
  });
  return uses;
}

}  // namespace muster
