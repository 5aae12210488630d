// What the coordinator says. Every directive is checked against what has been seen and answered, so
// that one that comes late, twice or out of order is harmless.
#include <algorithm>

#include "absl/strings/str_format.h"
#include "worker/core/worker_core.h"

namespace muster {

using worker::TimerId;

void WorkerCore::On(const worker::DirectiveReceived& event) {
  if (event.term < highest_term_) return;  // a coordinator that has been replaced (rule 13)
  highest_term_ = event.term;
  told_spec_ = event.job;
  std::visit([this](const auto& directive) { Obey(directive); }, event.directive);
}

void WorkerCore::Obey(const Welcome& welcome) {
  fleet_id_ = welcome.fleet_id;
  if (welcome.heartbeat_ms > 0) heartbeat_ = absl::Milliseconds(welcome.heartbeat_ms);
  if (welcome.orphan_timeout_ms > 0) {
    orphan_timeout_ = absl::Milliseconds(welcome.orphan_timeout_ms);
  }
  Active* active = std::get_if<Active>(&role_);
  // A member whose job was not known goes on stopping: sessions that break again and again would
  // put its end off for ever. Whoever does know the job makes a view of those that have stopped.
  if (active == nullptr || !disowned_.has_value()) {
    Emit(worker::CancelTimer{TimerId::kAlone});
    Emit(worker::CancelTimer{TimerId::kOrphan});
    if (active != nullptr) active->alone = false;
  }
  disowned_.reset();
}

void WorkerCore::Obey(const Evicted& evicted) {
  if (drain_requested_) {
    Leave(worker::Exit{0, "evicted while draining: " + evicted.reason});
  } else if (evicted.permanent) {
    Leave(worker::Exit{1, evicted.reason});
  } else {
    Leave(worker::Rejoin{evicted.reason});
  }
}

void WorkerCore::Obey(const Propose& propose) {
  if (std::holds_alternative<Failed>(role_)) return;
  if (!job_.empty() && job_ != propose.job) return;  // EndJob of the other one comes first
  if (propose.epoch <= seen_epoch_) {
    // The coordinator asks again: it has not heard the answer.
    if (propose.epoch == answered_epoch_) SendStatusNow();
    return;
  }
  seen_epoch_ = propose.epoch;
  Adopt(propose.job);
  // `sealed` is the coordinator's word that every member rests at that state: it is stable.
  if (propose.sealed.has_value() && Holds(*propose.sealed)) RaiseStable(*propose.sealed);
  if (Learning* learning = std::get_if<Learning>(&role_)) {
    if (propose.sealed.has_value() && !learning->order.sharded) {
      learning->proposal = propose;
      LearnWhatIsProposed();
      return;
    }
    Emit(worker::StopLearning{});
  }
  BeginAnswer(propose.epoch);
}

// Rule 1 stands here: the answer is given when Quiesced says that everything older has stopped.
// (The explorer's mutant answers at once.)
void WorkerCore::BeginAnswer(Epoch epoch) {
  role_ = Answering{epoch, /*quiesced=*/false};
  Emit(worker::Quiesce{epoch, job_, spec_});
  if (!options_.rules.quiesce_before_answer) {
    std::get<Answering>(role_).quiesced = true;
    answered_epoch_ = epoch;
  }
}

void WorkerCore::Obey(const Activate& activate) {
  const View& view = activate.view;
  const Answering* answering = std::get_if<Answering>(&role_);
  if (answering == nullptr || !answering->quiesced || answering->epoch != view.epoch ||
      seen_epoch_ != view.epoch) {
    return;  // not the proposal answered last
  }
  if (view.RankOf(options_.self.incarnation) < 0) {
    Note(true, absl::StrFormat("view %d came here and has no place for this worker", view.epoch));
    return;
  }
  Active active;
  active.view = view;
  active.move = activate.move;
  bool receives_all = false;
  if (activate.move.has_value()) {
    const std::vector<Incarnation>& givers = activate.move->givers;
    receives_all =
        std::find(givers.begin(), givers.end(), options_.self.incarnation) == givers.end();
    active.gives = !receives_all && HoldsPartOf(activate.move->view);
  }
  // What is held is of use as it is, or as the source of what moves.
  const bool keeps =
      activate.move.has_value() ? active.gives : holdings_.whole && !view.strategy.sharded();
  if (keeps && Holds(view.resume)) {
    active.state_ready = true;
    if (prepared_.has_value()) Emit(worker::DiscardPrepared{});
  } else if (keeps && CanRollForward(activate)) {
    // Holding the record counts as having applied (rule 2).
    applied_ = view.resume;
    record_ = activate.roll_forward;
    Emit(worker::RollForward{view.epoch, view.resume, *activate.roll_forward});
  } else if (activate.fresh_start.has_value()) {
    DropState();
    Emit(worker::StartFresh{job_, view.epoch, view.resume, *activate.fresh_start, view, spec_});
  } else if (receives_all) {
    DropState();
    active.state_ready = true;  // nothing to be done before it comes
  } else {
    // The coordinator should have evicted this worker; staying would be worse than leaving.
    Leave(worker::Rejoin{absl::StrFormat(
        "view %d goes on from step %d (branch %d, epoch %d), which cannot be reached from step %d "
        "(branch %d, epoch %d)",
        view.epoch, view.resume.step, view.resume.branch, view.resume.epoch, applied_.step,
        applied_.branch, applied_.epoch)});
    return;
  }
  prepared_.reset();
  if (active.gives) {
    const View& source = activate.move->view;
    holdings_ = {.map = source.strategy.sharded() ? source.epoch : 0,
                 .whole = !source.strategy.sharded()};
  }
  active_epoch_ = view.epoch;
  // The decision is persisted: every later one starts here or beyond.
  if (has_state_) RaiseStable(view.resume);
  role_ = std::move(active);
  Emit(worker::ConnectMesh{view});
}

void WorkerCore::Obey(const Pause& pause) {
  Active* active = InEpoch(pause.epoch);
  if (active == nullptr) return;
  if (active->stage == Stage::kActivating || active->stage == Stage::kRunning) {
    active->pause_requested = true;
  }
}

void WorkerCore::Obey(const Learn& learn) {
  if (learn.epoch < seen_epoch_) return;  // said before a proposal that has been heard of since
  if (!job_.empty() && job_ != learn.job) return;
  if (Learning* learning = std::get_if<Learning>(&role_)) {
    learning->proposal.reset();  // it was decided without this learner
    const bool same = learning->order.source.incarnation == learn.source.incarnation &&
                      learning->order.sharded == learn.sharded;
    learning->order = learn;
    if (same) return;  // healing is not restarted by a change of view (rule 10)
  } else if (const Answering* answering = std::get_if<Answering>(&role_)) {
    // A learner that was asked and then not taken. Whoever was in a view never learns.
    if (!answering->quiesced || active_epoch_ > 0) return;
  } else if (!std::holds_alternative<Idle>(role_)) {
    return;
  }
  Adopt(learn.job);
  Learning learning;
  learning.order = learn;
  ++learn_attempt_;
  role_ = std::move(learning);
  Emit(worker::StartLearning{learn.job, learn.epoch, learn.source, learn_attempt_, spec_,
                             learn.sharded});
}

void WorkerCore::Obey(const Seal& seal) {
  Active* active = InEpoch(seal.epoch);
  if (active == nullptr || active->stage != Stage::kPaused || !Holds(seal.tag)) return;
  RaiseStable(seal.tag);
  active->stage = Stage::kFinalWork;
  Emit(worker::DoFinalWork{seal.epoch, seal.tag});
}

void WorkerCore::Obey(const CommitCheckpoint& commit) {
  if (!durable_.has_value() || durable_->tag != commit.tag || naming_ == commit.tag) return;
  naming_ = commit.tag;
  Emit(worker::CommitCheckpointFiles{commit.tag});
}

void WorkerCore::Obey(const EndJob& end) {
  if (job_.empty() || job_ != end.job) return;
  if (end.unknown && KeepBeforeEnd(end)) return;
  End(end);
}

void WorkerCore::End(const EndJob& end) {
  Emit(worker::BecomeIdle{end.job, end.outcome, end.reason});
  DropState();
  committed_.reset();
  checkpoint_failure_.reset();
  disowned_.reset();
  job_.clear();
  spec_.reset();
  state_size_.reset();
  active_epoch_ = 0;
  role_ = Idle{};
}

// A view without this member is active everywhere, so that nobody needs what it holds (rule 8).
// Whoever has heard of a newer proposal may be a member again.
void WorkerCore::Obey(const Dismiss& dismiss) {
  const Answering* answering = std::get_if<Answering>(&role_);
  if (job_ != dismiss.job || dismiss.epoch != seen_epoch_ || answering == nullptr ||
      !answering->quiesced) {
    return;
  }
  End(EndJob{dismiss.job, JobState::kRunning, "it goes on without this member"});
}

void WorkerCore::Obey(const Release& release) {
  if (!drain_requested_) {
    Note(true, "the coordinator releases a worker that was not asked to drain; ignored");
    return;
  }
  Leave(worker::Exit{0, release.reason});
}

void WorkerCore::Adopt(const JobId& job) {
  if (job_ == job) return;
  job_ = job;
  spec_ = told_spec_;
  state_size_.reset();
}

void WorkerCore::DropState() {
  has_state_ = false;
  applied_ = {};
  stable_ = {};
  holdings_ = {};
  prepared_.reset();
  record_.reset();
  durable_.reset();
  naming_.reset();
  drain_checkpoint_.reset();
  progress_pending_.reset();
  progress_.reset();
}

}  // namespace muster
