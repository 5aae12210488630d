// Sessions, leases and evictions: what is known of each worker, before any view is considered.
#include <algorithm>

#include "absl/strings/str_format.h"
#include "server/core/coordinator_core.h"

namespace muster {

using coordinator::Severity;
using coordinator::TimerKind;

void CoordinatorCore::On(const coordinator::SessionOpened& event) {
  const Hello& hello = event.hello;
  const Incarnation incarnation = hello.self.incarnation;
  const std::string& name = hello.self.name;
  if (hello.protocol_version != kControlProtocolVersion) {
    Refuse(incarnation,
           absl::StrFormat("worker %s speaks protocol %d, this coordinator %d: install the same "
                           "version of Muster on both",
                           name, hello.protocol_version, kControlProtocolVersion),
           /*permanent=*/true);
    return;
  }
  if (!hello.fleet_id.empty() && hello.fleet_id != persistent_.fleet_id) {
    Refuse(
        incarnation,
        absl::StrFormat("worker %s belongs to fleet '%s', this is fleet '%s': restart the worker "
                        "to let it join here",
                        name, hello.fleet_id, persistent_.fleet_id),
        /*permanent=*/true);
    return;
  }
  std::vector<Incarnation> namesakes;
  for (const auto& [other, known] : workers_) {
    if (other != incarnation && known.self.name == name) namesakes.push_back(other);
  }
  // A restarted worker has the same name: the old incarnation is dead. Of two live workers with one
  // name the newer wins, as nothing tells the two cases apart; the older one is told to leave for
  // good, or both would go on to push each other out.
  const std::string replaced = absl::StrFormat(
      "a newer process has joined as worker %s, and two workers cannot have one name", name);
  if (IsEvicted(incarnation)) {
    if (namesakes.empty()) {
      Refuse(incarnation, "this incarnation was evicted while it was silent", /*permanent=*/false);
    } else {
      Refuse(incarnation, replaced, /*permanent=*/true);
    }
    return;
  }
  heard_epoch_ = std::max(heard_epoch_, hello.highest_epoch);

  Worker* worker = Find(incarnation);
  if (worker == nullptr) {
    for (const Incarnation other : namesakes) {
      Evict(other, replaced, ViewChangeCause::kDeath, /*permanent=*/true);
    }
    if (static_cast<int>(workers_.size()) >= options_.max_workers) {
      Refuse(
          incarnation,
          absl::StrFormat("the fleet has its %d workers; raise the coordinator's limit to let %s "
                          "join",
                          options_.max_workers, name),
          /*permanent=*/true);
      return;
    }
    worker = &workers_[incarnation];
    Note(Severity::kInfo, absl::StrFormat("worker %s joined from %s", name, hello.self.host));
  }
  worker->self = hello.self;
  worker->software_version = hello.software_version;
  worker->memory = hello.memory;
  worker->attached = true;
  worker->restart_grace = false;
  worker->sent.clear();
  if (worker->grace_armed) CancelTimer(TimerKind::kReattach, incarnation);
  worker->grace_armed = false;
  worker->grace_over = false;
  worker->lapsed = false;
  worker->last_seen = now_;
  RenewLease(incarnation, *worker, options_.lease);
  if (run_.lost) GiveEverybodyAnotherChance(incarnation);

  Welcome welcome;
  welcome.fleet_id = persistent_.fleet_id;
  welcome.heartbeat_ms = absl::ToInt64Milliseconds(options_.heartbeat);
  welcome.lease_ms = absl::ToInt64Milliseconds(options_.lease);
  welcome.orphan_timeout_ms = absl::ToInt64Milliseconds(options_.orphan_timeout);
  Emit(coordinator::SendDirective{incarnation, welcome});
}

void CoordinatorCore::On(const coordinator::SessionClosed& event) {
  Worker* worker = Find(event.worker);
  if (worker == nullptr || !worker->attached) return;
  worker->attached = false;
  worker->detached_at = now_;
  if (IsAsked(event.worker)) ArmGrace(event.worker, *worker);
}

void CoordinatorCore::On(const coordinator::StatusReceived& event) {
  Worker* worker = Find(event.worker);
  if (worker == nullptr) {
    if (IsEvicted(event.worker)) {
      Refuse(event.worker, "this incarnation was evicted while it was silent", false);
    } else {
      Emit(coordinator::CloseSession{event.worker, "its lease ran out; it may attach again"});
    }
    return;
  }
  if (!worker->attached) return;
  const WorkerStatus& status = event.status;
  if (worker->status_known && status.sequence <= worker->status.sequence) return;  // came late

  // A learner whose source is of no use is idle again, or never began.
  const auto learn = worker->sent.find(Directive(Learn{}).index());
  if (worker->learn_source.has_value() && status.phase != WorkerPhase::kLearning) {
    const bool began = worker->status_known && worker->status.phase == WorkerPhase::kLearning;
    const bool late =
        learn != worker->sent.end() && now_ - learn->second.at >= options_.retransmit_after;
    if (status.phase == WorkerPhase::kIdle && (began || late)) worker->learn_failed = true;
  }
  worker->status = status;
  worker->status_known = true;
  worker->lapsed = false;
  worker->last_seen = now_;
  heard_epoch_ = std::max(heard_epoch_, status.seen_epoch);
  RenewLease(event.worker, *worker, options_.lease);
  if (run_.lost) GiveEverybodyAnotherChance(event.worker);
  if (IsImpostor(event.worker, *worker)) {
    Evict(event.worker, "it acts in a view that went on without it", ViewChangeCause::kLeave);
    return;
  }
  NoteResources(status);
  ShowProgress(status, worker->self.role);
}

void CoordinatorCore::On(const coordinator::SuspicionReceived& event) {
  // Suspicion is not death (rule 14): it starts a proposal, no more.
  const View* view = CurrentView();
  const Suspicion& suspicion = event.suspicion;
  if (view == nullptr || suspicion.epoch != view->epoch) return;
  if (view->RankOf(event.reporter) < 0 || Find(event.reporter) == nullptr) return;
  run_.change.started_at = std::min(run_.change.started_at, now_);
  run_.failure = suspicion.reason;
  if (view->RankOf(suspicion.suspect) < 0 || suspicion.suspect == event.reporter) {
    if (!run_.broken_somewhere) {
      Note(Severity::kWarning,
           absl::StrFormat("%s reports: %s", NameOf(event.reporter), suspicion.reason));
    }
    run_.broken_somewhere = true;
    return;
  }
  const auto [first, second] = std::minmax(event.reporter, suspicion.suspect);
  if (run_.broken_links.insert({first, second}).second) {
    Note(Severity::kWarning,
         absl::StrFormat("%s reports its link to %s broken: %s", NameOf(event.reporter),
                         NameOf(suspicion.suspect), suspicion.reason));
  }
}

void CoordinatorCore::Refuse(Incarnation incarnation, const std::string& reason, bool permanent) {
  Note(Severity::kWarning, absl::StrFormat("refused %s: %s", incarnation.ToString(), reason));
  Emit(coordinator::SendDirective{incarnation, Evicted{reason, permanent}});
  Emit(coordinator::CloseSession{incarnation, reason});
}

void CoordinatorCore::RenewLease(Incarnation incarnation, Worker& worker, absl::Duration duration) {
  worker.lease_until = now_ + duration;
  SetTimer(TimerKind::kLease, duration, incarnation);
}

void CoordinatorCore::OnLease(Incarnation incarnation) {
  Worker* worker = Find(incarnation);
  if (worker == nullptr) return;
  // A timer that is very late means that this process was stopped: words that prove the workers
  // alive may wait in its sockets.
  if (now_ > worker->lease_until + options_.lease / 2) {
    RenewLease(incarnation, *worker, options_.lease);
    return;
  }
  const View* view = CurrentView();
  if (view == nullptr || view->RankOf(incarnation) < 0) {
    Note(Severity::kInfo,
         absl::StrFormat("worker %s has been silent for its lease and is forgotten",
                         worker->self.name));
    Emit(coordinator::CloseSession{incarnation, "its lease ran out; it may attach again"});
    Forget(incarnation);
    return;
  }
  Note(Severity::kWarning,
       absl::StrFormat("worker %s has been silent for its lease", worker->self.name));
  worker->lapsed = true;
  worker->restart_grace = false;
}

void CoordinatorCore::ArmGrace(Incarnation incarnation, Worker& worker) {
  if (worker.attached || worker.restart_grace || worker.grace_armed || worker.grace_over) return;
  worker.grace_armed = true;
  SetTimer(TimerKind::kReattach, options_.reattach_grace, incarnation);
}

void CoordinatorCore::OnReattachGrace(Incarnation incarnation) {
  Worker* worker = Find(incarnation);
  if (worker == nullptr) return;
  worker->grace_armed = false;
  worker->grace_over = !worker->attached;
}

void CoordinatorCore::Evict(Incarnation incarnation, const std::string& reason,
                            ViewChangeCause cause, bool permanent) {
  const Worker* worker = Find(incarnation);
  if (worker == nullptr) return;
  const View* view = CurrentView();
  if (view != nullptr && view->RankOf(incarnation) >= 0) {
    absl::Time since = now_;
    if (!worker->attached) since = std::min(since, worker->detached_at);
    if (worker->lapsed) since = std::min(since, worker->last_seen);
    NoteChange(worker->self.name, cause, since);
  }
  // Rule 2: for good. Without it the incarnation stays known and may answer again.
  if (!options_.rules.eviction_is_final) return;
  Note(Severity::kWarning, absl::StrFormat("evicted worker %s: %s", worker->self.name, reason));
  Record(MemberEvicted{incarnation, reason});
  Emit(coordinator::SendDirective{incarnation, Evicted{reason, permanent}});
  Emit(coordinator::CloseSession{incarnation, reason});
  Forget(incarnation);
}

void CoordinatorCore::Retire(Incarnation incarnation, const std::string& reason) {
  if (Find(incarnation) == nullptr) return;
  Record(MemberEvicted{incarnation, reason});
  Emit(coordinator::SendDirective{incarnation, Release{reason}});
  Emit(coordinator::CloseSession{incarnation, reason});
  Forget(incarnation);
}

void CoordinatorCore::Forget(Incarnation incarnation) {
  CancelTimer(TimerKind::kLease, incarnation);
  if (workers_.at(incarnation).grace_armed) CancelTimer(TimerKind::kReattach, incarnation);
  workers_.erase(incarnation);
  std::erase_if(run_.link_faults, [incarnation](const auto& entry) {
    return entry.first.first == incarnation || entry.first.second == incarnation;
  });
  changed_ = true;
}

bool CoordinatorCore::IsEvicted(Incarnation incarnation) const {
  return std::find(persistent_.evicted.begin(), persistent_.evicted.end(), incarnation) !=
         persistent_.evicted.end();
}

// An incarnation that was once in a view, is in none, and is not on its way out was evicted so long
// ago that it is no longer on the list (rule 2).
bool CoordinatorCore::IsServer(Incarnation incarnation) const {
  const Worker* worker = Find(incarnation);
  return worker != nullptr && worker->self.role == MemberRole::kParameterServer;
}

bool CoordinatorCore::IsImpostor(Incarnation incarnation, const Worker& worker) const {
  if (!options_.rules.eviction_is_final) return false;
  const WorkerStatus& status = worker.status;
  if (status.job.empty() || status.job != run_.job || IsAsked(incarnation)) return false;
  const View* view = CurrentView();
  if (view != nullptr && view->RankOf(incarnation) >= 0) return false;
  switch (status.phase) {
    case WorkerPhase::kIdle:
    case WorkerPhase::kLearning:
    case WorkerPhase::kFailed:
      return false;
    case WorkerPhase::kQuiesced:
      // A parameter server that the job needs no more is dismissed when the view is active.
      return status.active_epoch > 0 && !status.drain_requested &&
             worker.self.role == MemberRole::kWorker;
    case WorkerPhase::kActivating:
    case WorkerPhase::kRunning:
    case WorkerPhase::kPaused:
    case WorkerPhase::kFinished:
    case WorkerPhase::kOrphaned:
      return true;
  }
  return false;
}

CoordinatorCore::Worker* CoordinatorCore::Find(Incarnation incarnation) {
  auto it = workers_.find(incarnation);
  return it == workers_.end() ? nullptr : &it->second;
}

const CoordinatorCore::Worker* CoordinatorCore::Find(Incarnation incarnation) const {
  return const_cast<CoordinatorCore*>(this)->Find(incarnation);
}

std::string CoordinatorCore::NameOf(Incarnation incarnation) const {
  const Worker* worker = Find(incarnation);
  return worker == nullptr ? incarnation.ToString() : worker->self.name;
}

// Nobody waits any longer for a word of it.
bool CoordinatorCore::IsGone(Incarnation incarnation) const {
  const Worker* worker = Find(incarnation);
  return worker == nullptr || worker->lapsed || (!worker->attached && worker->grace_over);
}

bool CoordinatorCore::IsDraining(Incarnation incarnation) const {
  const Worker* worker = Find(incarnation);
  return worker != nullptr && worker->status.drain_requested;
}

}  // namespace muster
