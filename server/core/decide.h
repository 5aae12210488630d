// The decision: from which state does the next view go on, and who can reach it?
//
// A pure function of the answers of the commit group of the last view and of the decision that put
// that view in force. It needs at least one answer (rule 5); whoever did not answer is evicted by
// the caller (rule 2), so his knowledge no longer counts.
#ifndef MUSTER_SERVER_CORE_DECIDE_H_
#define MUSTER_SERVER_CORE_DECIDE_H_

#include <optional>
#include <string>
#include <vector>

#include "base/control/messages.h"

namespace muster {

// What one member of the commit group holds, frozen since it answered (rule 1).
struct Answer {
  Incarnation worker;
  bool has_state = false;
  StateTag applied;
  std::optional<Prepared> prepared;
  std::optional<CommitRecord> record;  // of step applied.step
  Holdings holdings;                   // of the state at `applied`
};

enum class Verdict : uint8_t {
  kResume = 1,       // everybody able already holds the state; prepared steps are discarded
  kRollForward = 2,  // somebody holds the record; the others apply the step they prepared
  kStartAgain = 3,   // the fresh start of the last decision goes on where it is not complete
  kUnreachable = 4,  // no answer can reach the newest state: a bug or foreign state
};

struct Decision {
  Verdict verdict = Verdict::kUnreachable;
  StateTag resume;
  std::optional<CommitRecord> roll_forward;
  std::optional<FreshStart> fresh_start;
  std::vector<Incarnation> able;  // in the order of the answers
  // Of these, whoever holds its part of the state, or rolls forward to it; the others start again.
  std::vector<Incarnation> holding;
  std::string reason;  // for people; says what decided it
};

// `last` is the decision of the view whose members answer: its resume tag is a floor, and its ways
// to reach that tag stay open. `compare_whole_tags` is rule 3; false compares steps alone.
Decision Decide(const std::vector<Answer>& answers, const Activate& last, bool compare_whole_tags);

// Where the parts of the next view come from, of what `holding` members hold: the map that
// was to be moved to the last view, or the whole state, or the last view's map. None: some shard
// is lost.
std::optional<MoveSource> FindSource(const std::vector<Answer>& holding, const Activate& last);

// Whether `a` and `b` name the same state: here stands rule 3 of the coordinator.
bool SameState(const StateTag& a, const StateTag& b, bool compare_whole_tags);

const char* Name(Verdict verdict);

}  // namespace muster

#endif  // MUSTER_SERVER_CORE_DECIDE_H_
