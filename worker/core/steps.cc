// A view from its activation to its end, and the doors through which a step changes the state.
#include "absl/strings/str_format.h"
#include "base/check.h"
#include "worker/core/worker_core.h"

namespace muster {

WorkerCore::Active* WorkerCore::InEpoch(Epoch epoch) {
  Active* active = std::get_if<Active>(&role_);
  return active != nullptr && active->view.epoch == epoch ? active : nullptr;
}

void WorkerCore::On(const worker::Quiesced& event) {
  if (Answering* answering = std::get_if<Answering>(&role_)) {
    if (answering->epoch != event.epoch) return;  // of an older proposal
    answering->quiesced = true;
    answered_epoch_ = event.epoch;
  } else if (Orphaned* orphaned = std::get_if<Orphaned>(&role_)) {
    if (orphaned->quiesce_epoch != event.epoch || orphaned->quiesced) return;
    orphaned->quiesced = true;
    orphaned->kept = !has_state_;
    if (has_state_) {
      // Rule 4: only what is stable gets a checkpoint's name.
      Emit(worker::KeepState{applied_, IsVisible(applied_), orphaned->rank});
    }
  }
}

void WorkerCore::On(const worker::MeshConnected& event) {
  Active* active = InEpoch(event.epoch);
  if (active == nullptr) return;
  active->mesh_connected = true;
  RunIfReady();
}

void WorkerCore::On(const worker::MeshFailed& event) {
  Active* active = InEpoch(event.epoch);
  if (active == nullptr) return;
  Suspicion suspicion;
  suspicion.epoch = event.epoch;
  suspicion.reason = event.reason;
  const auto size = static_cast<Rank>(active->view.members.size());
  if (event.culprit.has_value() && *event.culprit >= 0 && *event.culprit < size) {
    suspicion.suspect = active->view.members[static_cast<size_t>(*event.culprit)].incarnation;
  }
  // Reported once, and again when it names more than before.
  if (active->broken.has_value() && (active->broken->suspect || !suspicion.suspect)) return;
  active->broken = suspicion;
  Emit(worker::SendSuspicion{suspicion});
  if (disowned_.has_value()) SetEndOfDisowned();
}

void WorkerCore::On(const worker::StateReady& event) {
  Active* active = InEpoch(event.epoch);
  if (active == nullptr || active->state_ready) return;
  MUSTER_CHECK(event.tag == active->view.resume)
      << "the shell made the state of step " << event.tag.step << " where view "
      << active->view.epoch << " asked for step " << active->view.resume.step;
  active->state_ready = true;
  has_state_ = true;
  applied_ = active->view.resume;
  RaiseStable(active->view.resume);
  if (!active->move.has_value()) {
    const bool sharded = active->view.strategy.sharded();
    holdings_ = {.map = sharded ? event.epoch : 0, .whole = !sharded};
  }
  RunIfReady();
}

// Rule 8 stands here: old copies are freed only when every owner and replica holds the new ones.
// Until all are known to, this worker holds both, and says so when it is asked. (The explorer's
// mutant frees them at once.)
void WorkerCore::On(const worker::RangesMoved& event) {
  Active* active = InEpoch(event.epoch);
  if (active == nullptr || !active->moving || active->moved) return;
  has_state_ = true;
  applied_ = active->view.resume;
  RaiseStable(applied_);
  if (!options_.rules.seal_before_freeing) return Adopt(*active);
  if (active->view.strategy.sharded()) {
    holdings_.next = event.epoch;
  } else {
    holdings_.whole = true;
  }
  Emit(worker::SealMove{event.epoch});
}

void WorkerCore::On(const worker::MoveSealed& event) {
  Active* active = InEpoch(event.epoch);
  if (active == nullptr || !active->moving || active->moved) return;
  Adopt(*active);
}

void WorkerCore::Adopt(Active& active) {
  const bool sharded = active.view.strategy.sharded();
  holdings_ = {.map = sharded ? active.view.epoch : 0, .whole = !sharded};
  active.moved = true;
  Emit(worker::AdoptPart{active.view.epoch});
  RunIfReady();
}

void WorkerCore::RunIfReady() {
  Active& active = std::get<Active>(role_);
  if (active.stage != Stage::kActivating || !active.mesh_connected || !active.state_ready) return;
  if (active.move.has_value() && !active.moved) {
    if (active.moving) return;
    active.moving = true;
    Emit(worker::MoveRanges{active.view, *active.move, active.gives});
    return;
  }
  if (active.view.hold) {
    BecomePaused();
  } else {
    active.stage = Stage::kRunning;
    Emit(worker::RunSteps{active.view, active.view.resume.step + 1});
  }
}

// First door: everything the step needs is here. From now on a record of it may exist anywhere.
void WorkerCore::On(const worker::StepPrepared& event) {
  Active* active = InEpoch(event.epoch);
  if (active == nullptr || active->stage != Stage::kRunning || active->applying ||
      event.step != applied_.step + 1) {
    return;
  }
  prepared_ = Prepared{event.step, event.epoch};
  Emit(worker::ContributeCommit{event.epoch, event.step, active->pause_requested || active->alone});
}

// Rule 1 stands here, at the one place where a step enters the state: only a record of the view in
// force, for the step prepared in it. (The explorer's mutant asks for the step alone.)
bool WorkerCore::MayCommit(Epoch epoch, Step step) const {
  if (!prepared_.has_value() || prepared_->step != step) return false;
  if (!options_.rules.quiesce_before_answer) {
    return std::holds_alternative<Active>(role_) || std::holds_alternative<Answering>(role_);
  }
  const Active* active = std::get_if<Active>(&role_);
  return active != nullptr && active->view.epoch == epoch && prepared_->epoch == epoch;
}

// Second door: holding the record is having applied (rule 2), and makes the step before it stable.
void WorkerCore::On(const worker::RecordFormed& event) {
  if (!MayCommit(event.epoch, event.record.step)) return;
  const StateTag before = applied_;
  applied_ = {before.branch, event.record.step, event.epoch};
  record_ = event.record;
  prepared_.reset();
  RaiseStable(before);
  if (Active* active = std::get_if<Active>(&role_)) {
    active->applying = true;
    active->pausing = event.record.pause;
  }
  Emit(worker::ApplyStep{event.record, applied_});
}

void WorkerCore::On(const worker::StepApplied& event) {
  Active* active = InEpoch(event.epoch);
  if (active == nullptr || !active->applying) return;
  active->applying = false;
  active->stepped = true;
  if (active->pausing) BecomePaused();
}

void WorkerCore::BecomePaused() {
  std::get<Active>(role_).stage = Stage::kPaused;
  MaybeDrainCheckpoint();
  MaybeSealAmongMembers();
}

// A member that rests on hold and wants to leave may be the last: its state must be durable first.
void WorkerCore::MaybeDrainCheckpoint() {
  const Active* active = std::get_if<Active>(&role_);
  if (active == nullptr || !drain_requested_ || !active->view.hold ||
      active->stage != Stage::kPaused || drain_checkpoint_ == applied_) {
    return;
  }
  // It is not the last while others hold shards.
  if (active->view.strategy.sharded() && active->view.members.size() > 1) return;
  drain_checkpoint_ = applied_;
  if ((durable_.has_value() && durable_->tag == applied_) ||
      (committed_.has_value() && committed_->tag == applied_)) {
    return;
  }
  Emit(worker::StartDrainCheckpoint{applied_});
}

// Rule 5 stands here: the state at rest becomes stable when every member is known to rest in it,
// for then whoever is left of them holds it. Usually the coordinator sees to that. (The explorer's
// mutant takes its own rest for enough.)
void WorkerCore::MaybeSealAmongMembers() {
  Active* active = std::get_if<Active>(&role_);
  if (active == nullptr || !active->alone || active->stage != Stage::kPaused || active->sealing ||
      applied_ == stable_) {
    return;
  }
  active->sealing = true;
  if (!options_.rules.rest_before_seal) RaiseStable(applied_);
  Emit(worker::SealAmongMembers{active->view.epoch, applied_, orphaned_at_});
}

void WorkerCore::On(const worker::MembersSealed& event) {
  const Active* active = InEpoch(event.epoch);
  if (active == nullptr || active->stage != Stage::kPaused || !Holds(event.tag)) return;
  RaiseStable(event.tag);
  // Not at once: the others are about to pass the barrier as well.
  if (disowned_.has_value()) Emit(worker::SetTimer{worker::TimerId::kOrphan, now_ + heartbeat_});
}

void WorkerCore::On(const worker::FinalWorkDone& event) {
  Active* active = InEpoch(event.epoch);
  if (active == nullptr || active->stage != Stage::kFinalWork) return;
  active->stage = Stage::kFinished;
  active->final_report = event.report;
}

}  // namespace muster
