// What is held, what of it may be seen from outside, and how a learner comes to hold it.
#include "worker/core/worker_core.h"

namespace muster {

// Rule 3 stands here: two states are the same only if their whole tags are. (The explorer's mutant
// compares steps.)
bool WorkerCore::SameState(const StateTag& a, const StateTag& b) const {
  return options_.rules.state_is_tagged ? a == b : a.step == b.step;
}

bool WorkerCore::HoldsPartOf(const View& view) const {
  if (!view.strategy.sharded()) return has_state_ && holdings_.whole;
  return has_state_ && holdings_.Has(view.epoch);
}

bool WorkerCore::Holds(const StateTag& tag) const { return has_state_ && SameState(applied_, tag); }

bool WorkerCore::CanRollForward(const Activate& activate) const {
  const StateTag& resume = activate.view.resume;
  return activate.roll_forward.has_value() && has_state_ && applied_.branch == resume.branch &&
         applied_.step + 1 == resume.step && activate.roll_forward->step == resume.step &&
         activate.roll_forward->epoch == resume.epoch &&
         prepared_ == Prepared{resume.step, resume.epoch};
}

// Rule 4 stands here: what leaves the worker as done. (The explorer's mutant shows what is
// applied.)
StateTag WorkerCore::VisibleTag() const {
  return options_.rules.stable_before_visible ? stable_ : applied_;
}

bool WorkerCore::IsVisible(const StateTag& tag) const {
  const StateTag visible = VisibleTag();
  return has_state_ && tag.branch == visible.branch && tag.step <= visible.step;
}

void WorkerCore::RaiseStable(const StateTag& tag) {
  if (tag.branch != stable_.branch || tag.step > stable_.step) stable_ = tag;
  if (progress_pending_.has_value() && progress_pending_->step <= VisibleTag().step) {
    progress_ = progress_pending_;
    progress_pending_.reset();
  }
}

void WorkerCore::On(const worker::LearnProgress& event) {
  Learning* learning = std::get_if<Learning>(&role_);
  if (learning == nullptr || event.attempt != learn_attempt_) return;
  learning->learned = event.learned;
  learning->caught_up = event.caught_up;
  if (event.applied.has_value()) {
    // A learner applies only what is stable (rule 10).
    has_state_ = true;
    applied_ = *event.applied;
    holdings_ = {.whole = true};
    record_.reset();
    prepared_.reset();
    stable_ = applied_;
  }
  LearnWhatIsProposed();
}

// A planned change waits for this learner to hold the state at which everybody rests.
void WorkerCore::LearnWhatIsProposed() {
  Learning& learning = std::get<Learning>(role_);
  if (!learning.proposal.has_value()) return;
  const StateTag sealed = *learning.proposal->sealed;
  if (Holds(sealed)) {
    const Epoch epoch = learning.proposal->epoch;
    Emit(worker::StopLearning{});
    BeginAnswer(epoch);
  } else if (learning.learned.has_value() && SameState(*learning.learned, sealed) &&
             learning.applying_up_to != sealed) {
    learning.applying_up_to = sealed;
    Emit(worker::LearnUpTo{learn_attempt_, sealed});
  }
}

void WorkerCore::On(const worker::LearnFailed& event) {
  if (!std::holds_alternative<Learning>(role_) || event.attempt != learn_attempt_) return;
  Note(true, "learning failed: " + event.reason);
  role_ = Idle{};  // with what is applied; the coordinator names another source
}

void WorkerCore::On(const worker::StateKept& event) {
  Orphaned* orphaned = std::get_if<Orphaned>(&role_);
  if (orphaned == nullptr || !Holds(event.tag)) return;
  orphaned->kept = true;
  if (disowned_.has_value()) End(EndJob(*disowned_));
}

void WorkerCore::On(const worker::CheckpointDurable& event) {
  if (event.job != job_ || !has_state_ || event.report.tag.branch != applied_.branch) return;
  durable_ = event.report;
  if (durable_->part != 0) checkpoint_failure_.reset();  // this worker's share is done with that
}

void WorkerCore::On(const worker::CheckpointCommitted& event) {
  if (event.job != job_)
    return;  // one that has ended meanwhile: nobody resumes another job from it
  if (naming_ == event.report.tag) naming_.reset();
  if (durable_.has_value() && durable_->tag == event.report.tag) durable_.reset();
  committed_ = event.report;
  checkpoint_failure_.reset();
}

void WorkerCore::On(const worker::CheckpointFailed& event) {
  if (event.job == job_) checkpoint_failure_ = event.failure;
}

void WorkerCore::On(const worker::ProgressMeasured& event) {
  if (!has_state_) return;
  if (event.progress.step <= VisibleTag().step) {
    progress_ = event.progress;
  } else {
    progress_pending_ = event.progress;
  }
}

void WorkerCore::On(const worker::PathMeasured& event) {
  if (Active* active = InEpoch(event.epoch)) active->path = event.path;
}

void WorkerCore::On(const worker::LinksMeasured& event) {
  if (Active* active = InEpoch(event.epoch)) active->links = event.links;
}

void WorkerCore::On(const worker::StateSized& event) {
  if (event.job == job_) state_size_ = event.size;
}

void WorkerCore::On(const worker::WaitMeasured& event) {
  if (Active* active = InEpoch(event.epoch)) active->wait = event.wait;
}

}  // namespace muster
