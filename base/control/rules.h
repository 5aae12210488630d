// The safety rules of the control plane as switches, so that the explorer can show that each
// of them is needed. Production always runs with the defaults; only tests/sim turns one off.
#ifndef MUSTER_BASE_CONTROL_RULES_H_
#define MUSTER_BASE_CONTROL_RULES_H_

#include <cstdint>

namespace muster {

// Version of the messages in base/control/messages.h and of the behaviour behind them. A worker of
// another version is refused.
inline constexpr uint32_t kControlProtocolVersion = 1;

struct ProtocolRules {
  // Rule 1, in WorkerCore: an answer is given only after everything older has stopped, and nothing
  // of an older epoch changes state afterwards.
  bool quiesce_before_answer = true;
  // Rule 2, in CoordinatorCore: an incarnation a decision went on without never comes back.
  bool eviction_is_final = true;
  // Rule 3, in the decision and in WorkerCore: states are compared by their whole tag, not by the
  // step alone.
  bool state_is_tagged = true;
  // Rule 4, in WorkerCore: a step is visible only when its successor's record is held, or a
  // coordinator's decision names it.
  bool stable_before_visible = true;
  // Rule 5, in WorkerCore: without a coordinator a state counts as sealed only when every member
  // is known to rest in it.
  bool rest_before_seal = true;

  // Rule 8, in WorkerCore: a part that others may still need is freed only when every member is
  // known to hold its new one.
  bool seal_before_freeing = true;

  bool AllOn() const {
    return quiesce_before_answer && eviction_is_final && state_is_tagged && stable_before_visible &&
           rest_before_seal && seal_before_freeing;
  }
};

}  // namespace muster

#endif  // MUSTER_BASE_CONTROL_RULES_H_
