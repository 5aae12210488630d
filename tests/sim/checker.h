// The invariants of docs/protocol.md, watched from outside: the checker sees what every worker does
// and what the coordinator decides, and shares no code with the cores. The first violation is kept.
// A copyable value; not thread-safe.
#ifndef MUSTER_TESTS_SIM_CHECKER_H_
#define MUSTER_TESTS_SIM_CHECKER_H_

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/control/digest.h"
#include "base/control/messages.h"
#include "server/core/persistent.h"

namespace muster::sim {

// The state of a modelled model: which epoch reduced each of its steps, and a hash over everything
// that went into it (`chain`) and over the samples alone (`samples`), which must not depend on who
// computed them.
struct ModelState {
  JobId job;
  StateTag tag;
  uint64_t chain = 0;
  uint64_t samples = 0;
  std::vector<Epoch> history;  // history[k - 1] reduced step k

  bool operator==(const ModelState&) const = default;
};

// The initial weights, and what `samples` must be after `step` steps.
ModelState InitialState();
uint64_t PlannedSamples(Step step);
uint64_t Mix(uint64_t a, uint64_t b);

class Checker {
 public:
  // (a) A member connects the mesh of this view: members of one epoch agree on the view.
  void Connecting(const View& view);
  // (b) A member runs in this view from this state: all start from the same bits, and nothing that
  // was visible on the branch is missing.
  void Running(const View& view, const ModelState& state);
  // (b) A worker holds this state now: equal tags mean equal bits.
  void Holds(const ModelState& state);
  // (b) Two members reduce gradients computed from different states.
  void Mixed(Epoch epoch, Step step);
  // (b) A step was applied out of order: lost or twice.
  void Applied(const ModelState& before, const CommitRecord& record);
  // (c) A worker applies a record after it answered a proposal.
  void AppliedAfterAnswer(Epoch record_epoch, Epoch answered_epoch);
  // (b), rule 4: `tag` left the fleet as done; `history` is of the worker that says so.
  void Visible(const JobId& job, const StateTag& tag, const std::vector<Epoch>& history);
  // The coordinator persisted this decision: it never undoes what was visible on its branch.
  void Decided(const View& view);
  // (f) Every member of this view holds its part.
  void Settled(const View& view);
  // (f) The coordinator gives a state up since the members left hold too little of it: only when
  // more are gone than there were replicas.
  void GivenUp(const ViewDissolved& dissolved);
  // (e) The job ended well in this state.
  void Finished(const ModelState& state, Step total_steps);
  void Fail(std::string what);

  // Forgets views and states, not what was visible: the explorer compares those that live.
  void ForgetStates();

  bool ok() const { return failure_.empty(); }
  const std::string& failure() const { return failure_; }
  size_t entries() const { return views_.size() + chains_.size() + visible_.size(); }
  // What was visible; the rest follows from the states that live.
  void AppendTo(Digest* digest) const;

 private:
  using Branch = std::pair<JobId, uint64_t>;

  std::string failure_;
  std::map<Epoch, uint64_t> views_;                        // digest of the view
  std::map<std::pair<JobId, StateTag>, uint64_t> chains_;  // bits behind a tag
  std::map<Branch, StateTag> bases_;                       // where a branch began
  std::map<Branch, std::vector<Epoch>> visible_;           // which epoch reduced each step
  View settled_;                                           // the newest
};

}  // namespace muster::sim

#endif  // MUSTER_TESTS_SIM_CHECKER_H_
