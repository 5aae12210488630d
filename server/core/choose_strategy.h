// The policy `auto`: which strategy a job goes on by, of its members' memory and of what their
// links were measured to be. A pure function: the same arguments give the same choice.
//
// Candidates are stages 0 to 3, and where there are parameter servers all of them, alone and with
// the workers (mixed). Of those that fit into memory the one with the least communication is taken,
// the simplest (in this order) of those that differ by little or of which nothing is known. The
// strategy in force is left only where it does not fit any more, or where it has lasted for a while
// and another is clearly faster: numbers are measured, and each change costs a view change.
#ifndef MUSTER_SERVER_CORE_CHOOSE_STRATEGY_H_
#define MUSTER_SERVER_CORE_CHOOSE_STRATEGY_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/control/resources.h"
#include "base/control/strategy.h"
#include "server/core/strategy_cost.h"

namespace muster {

struct ChoiceInputs {
  StateSize size;
  std::vector<CrewMember> crew;     // workers, one at least, and servers, whether or not in use
  std::optional<LinkSpeeds> links;  // none: not measured
  Strategy base;                    // what the choice keeps: replicas, algorithm, transport
  std::optional<Strategy> in_force;
  bool settled = true;      // that one has lasted long enough to be left for a faster one
  double least_gain = 0.1;  // a faster one takes less than 1 - this of its time
};

struct StrategyCandidate {
  Strategy strategy;
  int64_t worker_bytes = 0;
  int64_t server_bytes = 0;       // 0: it has no servers
  std::string obstacle;           // why it does not fit; empty: it does
  std::optional<double> seconds;  // of communication in a step
  bool fits() const { return obstacle.empty(); }
};

enum class ChoiceCause : uint8_t {
  kSimplest = 1,     // nothing is in force, nothing measured: the first that fits
  kFastest = 2,      // of those that fit
  kMemory = 3,       // the one in force does not fit
  kKept = 4,         // nothing that fits is clearly faster
  kUnsettled = 5,    // something is, and it is too early to change
  kNothingFits = 6,  // the one in force stays, or the one that takes the least is named
};
const char* Name(ChoiceCause cause);

struct StrategyChoice {
  Strategy strategy;
  ChoiceCause cause = ChoiceCause::kSimplest;
  std::string reason;  // one line, for people
  CrewSize crew;       // that was reckoned with
  // The chosen one, then those that fit, the fastest first, then the others.
  std::vector<StrategyCandidate> candidates;
};

// Requires: a worker in the crew.
StrategyChoice ChooseStrategy(const ChoiceInputs& inputs);

// One strategy with this crew. RESOURCE_EXHAUSTED names the member, the bytes that it would take
// and has, and what to do.
StrategyCandidate Assess(const ChoiceInputs& inputs, const Strategy& strategy);
absl::Status CheckFits(const ChoiceInputs& inputs, const Strategy& strategy);

}  // namespace muster

#endif  // MUSTER_SERVER_CORE_CHOOSE_STRATEGY_H_
