#include "tests/sim/describe.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace muster::sim {
namespace {

template <typename... F>
struct Overloaded : F... {
  using F::operator()...;
};
template <typename... F>
Overloaded(F...) -> Overloaded<F...>;

std::string Show(Incarnation incarnation) { return absl::StrCat("#", incarnation.value); }

const char* Name(coordinator::TimerKind kind) {
  using coordinator::TimerKind;
  switch (kind) {
    case TimerKind::kLease:
      return "lease";
    case TimerKind::kReattach:
      return "reattach";
    case TimerKind::kCollect:
      return "collect";
    case TimerKind::kLearnerAnswer:
      return "learner-answer";
    case TimerKind::kPauseBatch:
      return "pause-batch";
    case TimerKind::kStart:
      return "start";
    case TimerKind::kOrphan:
      return "orphan";
    case TimerKind::kDrainCheckpoint:
      return "drain-checkpoint";
    case TimerKind::kLinkWindow:
      return "link-window";
  }
  return "unknown";
}

std::string Show(const coordinator::TimerId& id) {
  return id.worker ? absl::StrCat(Name(id.kind), " ", Show(id.worker)) : Name(id.kind);
}

const char* Name(worker::TimerId id) {
  switch (id) {
    case worker::TimerId::kHeartbeat:
      return "heartbeat";
    case worker::TimerId::kOrphan:
      return "orphan";
    case worker::TimerId::kAlone:
      return "alone";
  }
  return "unknown";
}

}  // namespace

std::string Describe(const StateTag& tag) {
  return absl::StrFormat("%d.%d@%d", tag.branch, tag.step, tag.epoch);
}

std::string Describe(const View& view) {
  return absl::StrFormat("view %d [%s] from %s%s", view.epoch,
                         absl::StrJoin(view.members, " ",
                                       [](std::string* out, const Member& member) {
                                         out->append(Show(member.incarnation));
                                       }),
                         Describe(view.resume), view.hold ? " hold" : "") +
         (view.strategy.sharded() ? " " + ToString(view.strategy) : "");
}

std::string Describe(const Directive& directive) {
  return std::visit(
      Overloaded{
          [](const Welcome&) { return std::string("welcome"); },
          [](const Evicted& m) {
            return absl::StrCat(m.permanent ? "refused: " : "evicted: ", m.reason);
          },
          [](const Propose& m) {
            std::string text = absl::StrFormat("propose %d", m.epoch);
            if (m.sealed.has_value()) absl::StrAppend(&text, " sealed ", Describe(*m.sealed));
            return text;
          },
          [](const Activate& m) {
            std::string text = absl::StrCat("activate ", Describe(m.view));
            if (m.roll_forward.has_value()) {
              absl::StrAppendFormat(&text, " roll-forward %d@%d", m.roll_forward->step,
                                    m.roll_forward->epoch);
            }
            if (m.fresh_start.has_value()) {
              absl::StrAppend(&text, " fresh '", m.fresh_start->checkpoint, "'");
            }
            if (m.move.has_value()) {
              absl::StrAppendFormat(&text, " move from view %d:", m.move->view.epoch);
              for (Incarnation giver : m.move->givers) absl::StrAppend(&text, " ", Show(giver));
            }
            return text;
          },
          [](const Pause& m) { return absl::StrFormat("pause %d", m.epoch); },
          [](const Learn& m) {
            return absl::StrFormat("learn from %s (epoch %d)", Show(m.source.incarnation), m.epoch);
          },
          [](const Seal& m) { return absl::StrFormat("seal %d %s", m.epoch, Describe(m.tag)); },
          [](const CommitCheckpoint& m) { return "commit-checkpoint " + Describe(m.tag); },
          [](const EndJob& m) {
            return absl::StrCat("end-job ", m.job, " ", Name(m.outcome),
                                m.unknown ? " unknown" : "");
          },
          [](const Dismiss& d) { return absl::StrFormat("dismiss from view %d", d.epoch); },
          [](const Release&) { return std::string("release"); },
      },
      directive);
}

std::string Describe(const WorkerStatus& status) {
  std::string text = absl::StrFormat("status %s seen %d answered %d active %d", Name(status.phase),
                                     status.seen_epoch, status.answered_epoch, status.active_epoch);
  if (status.has_state) {
    absl::StrAppend(&text, " applied ", Describe(status.applied), " stable ",
                    Describe(status.stable));
  }
  if (status.prepared.has_value()) {
    absl::StrAppendFormat(&text, " prepared %d@%d", status.prepared->step, status.prepared->epoch);
  }
  if (status.learned.has_value()) absl::StrAppend(&text, " learned ", Describe(*status.learned));
  if (status.caught_up) absl::StrAppend(&text, " caught-up");
  if (status.drain_requested) absl::StrAppend(&text, " drain");
  if (status.durable.has_value())
    absl::StrAppend(&text, " durable ", Describe(status.durable->tag));
  if (status.committed.has_value()) {
    absl::StrAppend(&text, " committed ", Describe(status.committed->tag));
  }
  return text;
}

std::string Describe(const PersistentRecord& record) {
  return std::visit(
      Overloaded{
          [](const TermStarted& r) { return absl::StrFormat("term %d", r.term); },
          [](const EpochReserved& r) { return absl::StrFormat("epoch %d", r.epoch); },
          [](const MemberEvicted& r) { return "evicted " + Show(r.incarnation); },
          [](const DecisionMade& r) { return "decision: " + Describe(Directive(r.activate)); },
          [](const ViewDissolved& r) { return "dissolved " + r.job; },
          [](const JobAdded& r) { return "job " + r.plan.id; },
          [](const JobEnded& r) { return absl::StrCat("job ", r.job, " ", Name(r.outcome)); },
          [](const CheckpointDecided& r) { return "checkpoint decided " + Describe(r.report.tag); },
          [](const CheckpointNamed& r) { return "checkpoint named " + Describe(r.report.tag); },
          [](const SealDecided& r) { return "seal " + Describe(r.tag); },
          [](const StrategyChosen& r) {
            return r.automatic ? std::string("strategy is chosen here")
                               : "strategy " + ToString(r.strategy);
          },
      },
      record);
}

std::string Describe(const coordinator::Action& action) {
  return std::visit(
      Overloaded{
          [](const coordinator::Persist& a) { return "persist " + Describe(a.record); },
          [](const coordinator::SendDirective& a) {
            return absl::StrCat(Show(a.to), " <- ", Describe(a.directive));
          },
          [](const coordinator::CloseSession& a) { return "close " + Show(a.worker); },
          [](const coordinator::SetTimer& a) { return "set " + Show(a.id); },
          [](const coordinator::CancelTimer& a) { return "cancel " + Show(a.id); },
          [](const coordinator::JobChanged& a) {
            return absl::StrCat("job ", a.job, " is ", Name(a.state));
          },
          [](const coordinator::ViewChanged& a) {
            std::string text =
                absl::StrFormat("changed to view %d: %s", a.report.epoch, Name(a.report.cause));
            for (const WorkerName& name : a.report.workers) absl::StrAppend(&text, " ", name);
            if (a.report.cause == ViewChangeCause::kRestart && a.report.fresh_start.has_value()) {
              absl::StrAppend(&text, " from '", a.report.fresh_start->checkpoint, "'");
            }
            if (a.report.first_step_at != absl::InfinitePast()) absl::StrAppend(&text, ", stepped");
            return text;
          },
          [](const coordinator::Log& a) { return "log: " + a.text; },
      },
      action);
}

std::string Describe(const worker::Action& action) {
  return std::visit(
      Overloaded{
          [](const worker::SendStatus& a) { return Describe(a.status); },
          [](const worker::SendSuspicion& a) {
            return absl::StrFormat("suspect %s in %d", Show(a.suspicion.suspect),
                                   a.suspicion.epoch);
          },
          [](const worker::Quiesce& a) { return absl::StrFormat("quiesce %d", a.epoch); },
          [](const worker::StartLearning& a) {
            return absl::StrCat("start-learning from ", Show(a.source.incarnation));
          },
          [](const worker::StopLearning&) { return std::string("stop-learning"); },
          [](const worker::LearnUpTo& a) { return "learn-up-to " + Describe(a.tag); },
          [](const worker::StartFresh& a) {
            return absl::StrCat("start-fresh ", Describe(a.tag), " '", a.fresh.checkpoint, "'");
          },
          [](const worker::RollForward& a) { return "roll-forward " + Describe(a.tag); },
          [](const worker::MoveRanges& a) {
            return absl::StrFormat("move-ranges %d%s", a.view.epoch, a.gives ? " gives" : "");
          },
          [](const worker::SealMove& a) { return absl::StrFormat("seal-move %d", a.epoch); },
          [](const worker::AdoptPart& a) { return absl::StrFormat("adopt-part %d", a.epoch); },
          [](const worker::DiscardPrepared&) { return std::string("discard-prepared"); },
          [](const worker::ConnectMesh& a) {
            return absl::StrFormat("connect-mesh %d", a.view.epoch);
          },
          [](const worker::RunSteps& a) {
            return absl::StrFormat("run-steps %d from %d", a.view.epoch, a.first_step);
          },
          [](const worker::ContributeCommit& a) {
            return absl::StrFormat("contribute %d@%d%s", a.step, a.epoch, a.pause ? " pause" : "");
          },
          [](const worker::ApplyStep& a) { return "apply " + Describe(a.tag); },
          [](const worker::DoFinalWork& a) { return "final-work " + Describe(a.tag); },
          [](const worker::StartDrainCheckpoint& a) {
            return "drain-checkpoint " + Describe(a.tag);
          },
          [](const worker::SealAmongMembers& a) { return "seal-among-members " + Describe(a.tag); },
          [](const worker::KeepState& a) {
            return absl::StrCat("keep-state ", Describe(a.tag), a.sealed ? " sealed" : "");
          },
          [](const worker::CommitCheckpointFiles& a) { return "name-files " + Describe(a.tag); },
          [](const worker::BecomeIdle& a) {
            return absl::StrCat("become-idle ", a.job, " ", Name(a.outcome));
          },
          [](const worker::Rejoin& a) { return "rejoin: " + a.reason; },
          [](const worker::Exit& a) { return absl::StrFormat("exit %d: %s", a.code, a.reason); },
          [](const worker::SetTimer& a) { return absl::StrCat("set ", Name(a.id)); },
          [](const worker::CancelTimer& a) { return absl::StrCat("cancel ", Name(a.id)); },
          [](const worker::Log& a) { return "log: " + a.text; },
      },
      action);
}

std::string Describe(const coordinator::TimerId& id) { return Show(id); }

std::string Describe(const Op& op) {
  return absl::StrFormat("%s epoch %d step %d", Name(op.kind), op.epoch, op.step);
}

}  // namespace muster::sim
