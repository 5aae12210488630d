#include "worker/core/worker_core.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"

namespace muster {

using worker::Actions;
using worker::TimerId;

// Of the orphan timeout: how long members train on before they come to rest together. What is left
// must do for the step in the works.
constexpr double kAloneShare = 0.5;

WorkerCore::WorkerCore(WorkerOptions options)
    : options_(std::move(options)),
      fleet_id_(options_.fleet_id),
      highest_term_(options_.highest_term),
      heartbeat_(options_.heartbeat),
      orphan_timeout_(options_.orphan_timeout),
      seen_epoch_(options_.highest_epoch) {}

Actions WorkerCore::Handle(const worker::Event& event, absl::Time now) {
  if (left()) return {};
  now_ = now;
  actions_.clear();
  std::visit([this](const auto& e) { On(e); }, event);
  LeaveIfAlone();
  if (!left() && attached_ && MakeHeadline() != sent_headline_) SendStatusNow();
  return std::exchange(actions_, {});
}

Hello WorkerCore::MakeHello() const {
  Hello hello;
  hello.self = options_.self;
  hello.protocol_version = kControlProtocolVersion;
  hello.software_version = options_.software_version;
  hello.fleet_id = fleet_id_;
  hello.highest_epoch = seen_epoch_;
  hello.highest_term = highest_term_;
  hello.memory = options_.memory;
  return hello;
}

WorkerPhase WorkerCore::phase() const {
  struct Visitor {
    WorkerPhase operator()(const Idle&) const { return WorkerPhase::kIdle; }
    WorkerPhase operator()(const Learning&) const { return WorkerPhase::kLearning; }
    WorkerPhase operator()(const Answering&) const { return WorkerPhase::kQuiesced; }
    WorkerPhase operator()(const Active& active) const {
      switch (active.stage) {
        case Stage::kActivating:
          return WorkerPhase::kActivating;
        case Stage::kRunning:
          return WorkerPhase::kRunning;
        case Stage::kPaused:
        case Stage::kFinalWork:
          return WorkerPhase::kPaused;
        case Stage::kFinished:
          return WorkerPhase::kFinished;
      }
      return WorkerPhase::kActivating;
    }
    WorkerPhase operator()(const Orphaned&) const { return WorkerPhase::kOrphaned; }
    WorkerPhase operator()(const Failed&) const { return WorkerPhase::kFailed; }
    WorkerPhase operator()(const Left&) const { return WorkerPhase::kIdle; }
  };
  return std::visit(Visitor{}, role_);
}

const View* WorkerCore::view() const {
  const Active* active = std::get_if<Active>(&role_);
  return active == nullptr ? nullptr : &active->view;
}

WorkerStatus WorkerCore::Status() const {
  WorkerStatus status;
  status.sequence = sequence_;
  status.phase = phase();
  status.job = job_;
  status.seen_epoch = seen_epoch_;
  status.answered_epoch = answered_epoch_;
  status.active_epoch = active_epoch_;
  status.has_state = has_state_;
  status.applied = applied_;
  status.stable = VisibleTag();
  status.holdings = holdings_;
  status.prepared = prepared_;
  status.record = record_;
  if (const Learning* learning = std::get_if<Learning>(&role_)) {
    status.learned = learning->learned;
    status.caught_up = learning->caught_up;
  }
  status.drain_requested = drain_requested_;
  if (const Failed* failed = std::get_if<Failed>(&role_)) status.failure = failed->reason;
  if (durable_.has_value() && IsVisible(durable_->tag)) status.durable = durable_;
  status.committed = committed_;
  status.progress = progress_;
  if (const Active* active = std::get_if<Active>(&role_)) {
    status.final_report = active->final_report;
    status.path = active->path;
    status.links = active->links;
    status.wait = active->wait;
  }
  status.state_size = state_size_;
  status.checkpoint_failure = checkpoint_failure_;
  return status;
}

WorkerCore::Headline WorkerCore::MakeHeadline() const {
  Headline headline;
  headline.phase = phase();
  headline.job = job_;
  headline.seen_epoch = seen_epoch_;
  headline.answered_epoch = answered_epoch_;
  headline.active_epoch = active_epoch_;
  headline.has_state = has_state_;
  if (const Learning* learning = std::get_if<Learning>(&role_)) {
    headline.caught_up = learning->caught_up;
  }
  if (const Active* active = std::get_if<Active>(&role_)) {
    headline.stepped = active->stepped;
    headline.late = active->wait.has_value() && active->wait->late;
  }
  headline.drain_requested = drain_requested_;
  if (durable_.has_value() && IsVisible(durable_->tag)) headline.durable = durable_->tag;
  if (committed_.has_value()) headline.committed = committed_->tag;
  return headline;
}

void WorkerCore::On(const worker::SessionAttached&) {
  attached_ = true;
  Emit(worker::SetTimer{TimerId::kHeartbeat, now_ + heartbeat_});
  SendStatusNow();
}

void WorkerCore::On(const worker::SessionDetached&) {
  if (!attached_) return;
  attached_ = false;
  Emit(worker::CancelTimer{TimerId::kHeartbeat});
  const Active* active = std::get_if<Active>(&role_);
  if (active != nullptr && active->alone) return;  // it stops at the time that was set before
  orphaned_at_ = now_ + orphan_timeout_;
  Emit(worker::SetTimer{TimerId::kAlone, now_ + kAloneShare * orphan_timeout_});
  Emit(worker::SetTimer{TimerId::kOrphan, orphaned_at_});
}

void WorkerCore::On(const worker::TimerFired& event) {
  switch (event.id) {
    case TimerId::kHeartbeat: {
      if (!attached_) return;
      SendStatusNow();
      // A suspicion that got lost would leave the whole view waiting.
      const Active* active = std::get_if<Active>(&role_);
      if (active != nullptr && active->broken.has_value()) {
        Emit(worker::SendSuspicion{*active->broken});
      }
      Emit(worker::SetTimer{TimerId::kHeartbeat, now_ + heartbeat_});
      return;
    }
    case TimerId::kAlone:
      return OnAlone();
    case TimerId::kOrphan:
      return OnOrphanTimeout();
  }
}

// Rule 5: members that stop each by itself may stop a step apart, in a state that nobody else is
// known to hold. So they pause as for a planned change (rule 9), and seal the step among
// themselves.
void WorkerCore::OnAlone() {
  Active* active = std::get_if<Active>(&role_);
  if (active == nullptr || attached_) return;
  active->alone = true;
  MaybeSealAmongMembers();
}

// Rule 5: without a coordinator a fleet trains on for this long, so that the coordinator can know
// when it has certainly stopped.
void WorkerCore::OnOrphanTimeout() {
  // Nothing goes on here, so that to wait for a decision is only worth it for one that stays.
  if (drain_requested_ && std::holds_alternative<Answering>(role_)) {
    Leave(worker::Exit{0, "drained; no coordinator came back to decide about its view"});
  }
  const Active* active = std::get_if<Active>(&role_);
  // Not in a view that a coordinator has made of those that were to stop.
  if (active != nullptr && (active->alone || !attached_)) StopAlone();
}

void WorkerCore::StopAlone() {
  const Active* active = std::get_if<Active>(&role_);
  Note(true, disowned_.has_value()
                 ? "the coordinator does not know the job; stopping with the state kept"
                 : "no coordinator for the orphan timeout; stopping with the state kept");
  const Epoch epoch = seen_epoch_ + 1;  // nothing of the view in force goes on
  role_ = Orphaned{epoch, active->view.RankOf(options_.self.incarnation)};
  Emit(worker::Quiesce{epoch, job_, spec_});
}

// A coordinator without memory of the job, or another in its place, is as good as none: the members
// come to rest together and keep what they hold, and only then the job ends here. True if there is
// something to wait for.
bool WorkerCore::KeepBeforeEnd(const EndJob& end) {
  if (!has_state_) return false;
  if (Active* active = std::get_if<Active>(&role_)) {
    if (disowned_.has_value()) return true;
    disowned_ = end;
    if (IsVisible(applied_)) {
      StopAlone();
      return true;
    }
    if (!active->alone) orphaned_at_ = now_ + (1 - kAloneShare) * orphan_timeout_;
    active->alone = true;
    SetEndOfDisowned();
    MaybeSealAmongMembers();
    return true;
  }
  if (const Orphaned* orphaned = std::get_if<Orphaned>(&role_)) {
    disowned_ = end;
    return !orphaned->kept;
  }
  const Answering* answering = std::get_if<Answering>(&role_);
  if (answering == nullptr || active_epoch_ == 0) return false;  // no member's state
  disowned_ = end;
  const Answering given = *answering;
  role_ = Orphaned{given.epoch};
  if (given.quiesced) On(worker::Quiesced{given.epoch});
  return true;
}

// Over a mesh that is broken members can't meet any more. Those that have may not know it yet.
void WorkerCore::SetEndOfDisowned() {
  if (std::get<Active>(role_).broken.has_value()) {
    orphaned_at_ = std::min(orphaned_at_, now_ + heartbeat_);
  }
  Emit(worker::SetTimer{TimerId::kOrphan, orphaned_at_});
}

void WorkerCore::On(const worker::JobFailed& event) {
  if (job_.empty() || std::holds_alternative<Failed>(role_)) return;
  role_ = Failed{event.reason};
  // No view goes on from a job that failed, so that nothing takes back what was applied last.
  if (progress_pending_.has_value()) progress_ = std::exchange(progress_pending_, std::nullopt);
}

void WorkerCore::On(const worker::DrainRequested&) {
  drain_requested_ = true;
  if (!attached_ && std::holds_alternative<Answering>(role_)) {
    Emit(worker::SetTimer{TimerId::kOrphan, now_ + orphan_timeout_});  // it may be over already
  }
  MaybeDrainCheckpoint();
}

// A worker that drains leaves with the coordinator's permission. Without a coordinator it leaves
// as soon as no view counts on it: a member trains on until the orphan timeout makes it stop, and
// keeps its state.
void WorkerCore::LeaveIfAlone() {
  if (!drain_requested_ || attached_ || left()) return;
  if (const Orphaned* orphaned = std::get_if<Orphaned>(&role_)) {
    if (!orphaned->kept) return;
    Leave(worker::Exit{0, "drained; no coordinator came back, and the job stopped without one"});
  } else if (std::holds_alternative<Idle>(role_) || std::holds_alternative<Learning>(role_) ||
             std::holds_alternative<Failed>(role_)) {
    Leave(worker::Exit{0, "drained; there was no coordinator to ask"});
  }
}

void WorkerCore::Emit(worker::Action action) { actions_.push_back(std::move(action)); }

void WorkerCore::Note(bool warning, std::string text) {
  Emit(worker::Log{warning, std::move(text)});
}

void WorkerCore::SendStatusNow() {
  ++sequence_;
  sent_headline_ = MakeHeadline();
  Emit(worker::SendStatus{Status()});
}

void WorkerCore::Leave(worker::Action last) {
  role_ = Left{};
  Emit(std::move(last));
}

void WorkerCore::AppendTo(Digest* digest) const {
  digest->Add(options_.self.incarnation);
  digest->Add(highest_term_);
  digest->Add(static_cast<uint64_t>(attached_ | drain_requested_ << 1 | has_state_ << 2));
  digest->Add(Status());
  digest->Add(stable_);
  digest->Add(durable_);
  digest->Add(naming_);
  digest->Add(drain_checkpoint_);
  digest->Add(disowned_.has_value());
  digest->Add(role_.index());
  if (const Learning* learning = std::get_if<Learning>(&role_)) {
    digest->Add(Directive(learning->order));
    digest->Add(learning->applying_up_to);
    digest->Add(learning->proposal.has_value());
    if (learning->proposal.has_value()) digest->Add(Directive(*learning->proposal));
  } else if (const Answering* answering = std::get_if<Answering>(&role_)) {
    digest->Add(answering->epoch);
    digest->Add(static_cast<uint64_t>(answering->quiesced));
  } else if (const Active* active = std::get_if<Active>(&role_)) {
    digest->Add(active->view);
    digest->Add(static_cast<uint64_t>(active->stage) << 8 | active->mesh_connected << 1 |
                active->state_ready << 2 | active->pause_requested << 3 | active->applying << 4 |
                active->pausing << 5 | active->stepped << 6 | active->alone << 16 |
                active->sealing << 17 | active->gives << 18 | active->moving << 19 |
                active->moved << 20);
    digest->Add(active->broken.has_value());
    if (active->broken.has_value()) digest->Add(active->broken->suspect);
  } else if (const Orphaned* orphaned = std::get_if<Orphaned>(&role_)) {
    digest->Add(orphaned->quiesce_epoch);
    digest->Add(static_cast<uint64_t>(orphaned->rank) << 2 | orphaned->quiesced << 1 |
                orphaned->kept);
  }
}

}  // namespace muster
