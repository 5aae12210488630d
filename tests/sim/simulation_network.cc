// Sessions and messages between workers and coordinator, and the coordinator's process.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/control/placement.h"
#include "tests/sim/describe.h"
#include "tests/sim/simulation.h"

namespace muster::sim {

absl::Duration Simulation::Latency() {
  absl::Duration latency = dice_.Time(tunables_.latency_low, tunables_.latency_high);
  if (!faults_over_ && dice_.Chance(tunables_.spike)) latency += tunables_.spike_time;
  return latency;
}

void Simulation::Reconnect(size_t slot) {
  const Incarnation incarnation = processes_[slot].incarnation;
  After(dice_.Time(tunables_.backoff_low, tunables_.backoff_high), [this, slot, incarnation] {
    OnProcess(slot, incarnation, [this, slot] { Connect(slot); });
  });
}

void Simulation::Connect(size_t slot) {
  Process& process = processes_[slot];
  if (process.session != 0) return;
  if (!coordinator_.has_value() || process.cut_until > now_) return Reconnect(slot);
  const uint64_t session = next_number_++;
  const Incarnation incarnation = process.incarnation;
  process.session = session;
  const absl::Time arrival = now_ + Latency();
  process.up_after = arrival;
  process.down_after = now_;
  At(arrival, [this, slot, incarnation, session, life = coordinator_life_,
               hello = process.worker->core().MakeHello()] {
    if (!coordinator_.has_value() || coordinator_life_ != life) return;
    if (processes_[slot].session != session) return;  // given up meanwhile
    sessions_[incarnation] = session;
    FeedCoordinator(coordinator::SessionOpened{hello});
  });
  FeedWorker(slot, worker::SessionAttached{});
}

// The worker's end of `session` breaks; the coordinator's too, if it can be told.
void Simulation::LoseSession(size_t slot, uint64_t session, bool tell_coordinator) {
  Process& process = processes_[slot];
  if (session == 0 || process.session != session) return;
  process.session = 0;
  const Incarnation incarnation = process.incarnation;
  if (tell_coordinator && process.cut_until <= now_) {
    At(std::max(process.up_after, now_ + Latency()),
       [this, incarnation, session, life = coordinator_life_] {
         const auto it = sessions_.find(incarnation);
         if (coordinator_life_ != life || it == sessions_.end() || it->second != session) return;
         sessions_.erase(it);
         FeedCoordinator(coordinator::SessionClosed{incarnation});
       });
  }
  OnProcess(slot, incarnation, [this, slot] {
    if (processes_[slot].session != 0) return;
    FeedWorker(slot, worker::SessionDetached{});
    if (processes_[slot].worker.has_value()) Reconnect(slot);
  });
}

void Simulation::SendUp(size_t slot, coordinator::Event event) {
  Process& process = processes_[slot];
  if (process.session == 0 || process.cut_until > now_) return;
  if (!faults_over_ && dice_.Chance(tunables_.drop)) return;
  const int copies = !faults_over_ && dice_.Chance(tunables_.duplicate) ? 2 : 1;
  for (int i = 0; i < copies; ++i) {
    absl::Time arrival = now_ + Latency();
    if (faults_over_ || !dice_.Chance(tunables_.reorder)) {
      arrival = std::max(arrival, process.up_after);
      process.up_after = arrival;
    }
    At(arrival, [this, incarnation = process.incarnation, session = process.session, event] {
      const auto it = sessions_.find(incarnation);
      if (it == sessions_.end() || it->second != session) return;
      FeedCoordinator(event);
    });
  }
}

void Simulation::SendDown(size_t slot, const Directive& directive, Term term) {
  Process& process = processes_[slot];
  const auto it = sessions_.find(process.incarnation);
  if (it == sessions_.end() || process.session != it->second || process.cut_until > now_) return;
  if (!faults_over_ && dice_.Chance(tunables_.drop)) return;
  const int copies = !faults_over_ && dice_.Chance(tunables_.duplicate) ? 2 : 1;
  for (int i = 0; i < copies; ++i) {
    absl::Time arrival = now_ + Latency();
    if (faults_over_ || !dice_.Chance(tunables_.reorder)) {
      arrival = std::max(arrival, process.down_after);
      process.down_after = arrival;
    }
    const Incarnation incarnation = process.incarnation;
    At(arrival, [this, slot, incarnation, session = process.session, directive, term] {
      OnProcess(slot, incarnation, [this, slot, session, directive, term] {
        if (processes_[slot].session != session) return;
        FeedWorker(slot, worker::DirectiveReceived{directive, term});
      });
    });
  }
}

void Simulation::StartCoordinator() {
  if (coordinator_.has_value()) return;
  ++coordinator_life_;
  coordinator_.emplace(tunables_.coordinator, stored_);
  coordinator_frozen_ = false;
  coordinator_waiting_.clear();
  coordinator_timers_.clear();
  sessions_.clear();
  Trace("coordinator", "starts");
  ObeyCoordinator(coordinator_->Start(now_));
}

void Simulation::CrashCoordinator() {
  if (!coordinator_.has_value()) return;
  Trace("coordinator", "crashes");
  coordinator_.reset();
  coordinator_frozen_ = false;
  coordinator_waiting_.clear();
  coordinator_timers_.clear();
  sessions_.clear();
  for (size_t slot = 0; slot < processes_.size(); ++slot) {
    const uint64_t session = processes_[slot].session;
    if (session == 0) continue;
    After(Latency(), [this, slot, session] { LoseSession(slot, session, false); });
  }
}

void Simulation::FeedCoordinator(const coordinator::Event& event) {
  if (!coordinator_.has_value()) return;
  if (coordinator_frozen_) {
    coordinator_waiting_.push_back(event);
    return;
  }
  if (const auto* fired = std::get_if<coordinator::TimerFired>(&event)) {
    Trace("coordinator", absl::StrFormat("timer %d of #%d", static_cast<int>(fired->id.kind),
                                         fired->id.worker.value));
  } else if (const auto* status = std::get_if<coordinator::StatusReceived>(&event)) {
    Trace("coordinator", absl::StrFormat("hears #%d: %s", status->worker.value,
                                         trace_ == nullptr ? "" : Describe(status->status)));
  } else if (const auto* closed = std::get_if<coordinator::SessionClosed>(&event)) {
    Trace("coordinator", absl::StrFormat("lost the session of #%d", closed->worker.value));
  }
  ObeyCoordinator(coordinator_->Handle(event, now_));
}

void Simulation::ObeyCoordinator(coordinator::Actions actions) {
  size_t obeyed = actions.size();
  const bool tear = !faults_over_ && tunables_.coordinator_crash < absl::InfiniteDuration() &&
                    actions.size() > 2 && dice_.Chance(tunables_.torn * 0.01);
  if (tear) obeyed = dice_.Below(actions.size());
  for (size_t i = 0; i < obeyed; ++i) ObeyOne(actions[i]);
  if (tear) {
    ++outcome_.faults;
    CrashCoordinator();
    After(dice_.Time(absl::Milliseconds(1), absl::Milliseconds(200)),
          [this] { StartCoordinator(); });
  }
}

void Simulation::ObeyOne(const coordinator::Action& action) {
  if (trace_ != nullptr && !std::holds_alternative<coordinator::SetTimer>(action) &&
      !std::holds_alternative<coordinator::CancelTimer>(action)) {
    Trace("coordinator", Describe(action));
  }
  if (const auto* persist = std::get_if<coordinator::Persist>(&action)) {
    PersistentLimits limits;
    limits.evictions = static_cast<size_t>(tunables_.coordinator.max_remembered_evictions);
    limits.jobs = static_cast<size_t>(tunables_.coordinator.max_jobs);
    const auto choices = [&](const JobId& id) {
      const PersistentJob* job = stored_.FindJob(id);
      return job == nullptr ? 0 : job->strategy_changes;
    };
    const auto* decision = std::get_if<DecisionMade>(&persist->record);
    const int before = decision == nullptr ? 0 : choices(decision->activate.view.job);
    Apply(persist->record, limits, &stored_);
    if (decision != nullptr) {
      outcome_.choices += choices(decision->activate.view.job) - before;
      checker.Decided(decision->activate.view);
      ++outcome_.view_changes;
      if (decision->activate.move.has_value()) ++outcome_.moves;
      if (GroupsOf(decision->activate.view).count() > 1) ++outcome_.grouped;
      if (faults_over_) ++outcome_.view_changes_after_faults;
      highest_branch_ = std::max(highest_branch_, decision->activate.view.resume.branch);
    } else if (const auto* dissolved = std::get_if<ViewDissolved>(&persist->record)) {
      outcome_.scattered += !dissolved->left.empty();
      checker.GivenUp(*dissolved);
    } else if (const auto* ended = std::get_if<JobEnded>(&persist->record)) {
      CheckEnd(*ended);
    } else if (const auto* named = std::get_if<CheckpointNamed>(&persist->record)) {
      if (!disk.named[named->report.path]) checker.Fail("a checkpoint is newest without its name");
    }
  } else if (const auto* send = std::get_if<coordinator::SendDirective>(&action)) {
    const std::optional<size_t> slot = SlotOf(send->to);
    if (slot.has_value()) SendDown(*slot, send->directive, coordinator_->term());
  } else if (const auto* close = std::get_if<coordinator::CloseSession>(&action)) {
    const auto it = sessions_.find(close->worker);
    if (it == sessions_.end()) return;
    const uint64_t session = it->second;
    sessions_.erase(it);
    After(absl::ZeroDuration(), [this, incarnation = close->worker] {
      if (!sessions_.contains(incarnation))
        FeedCoordinator(coordinator::SessionClosed{incarnation});
    });
    if (const std::optional<size_t> slot = SlotOf(close->worker)) {
      At(std::max(processes_[*slot].down_after, now_ + Latency()),
         [this, slot = *slot, session] { LoseSession(slot, session, false); });
    }
  } else if (const auto* set = std::get_if<coordinator::SetTimer>(&action)) {
    const uint64_t number = next_number_++;
    coordinator_timers_[set->id] = number;
    At(set->at, [this, id = set->id, number] {
      if (coordinator_frozen_) {
        // Fires when the process runs again, if nothing replaces it before.
        coordinator_waiting_.push_back(coordinator::TimerFired{id});
        return;
      }
      const auto it = coordinator_timers_.find(id);
      if (it == coordinator_timers_.end() || it->second != number) return;
      coordinator_timers_.erase(it);
      FeedCoordinator(coordinator::TimerFired{id});
    });
  } else if (const auto* cancel = std::get_if<coordinator::CancelTimer>(&action)) {
    coordinator_timers_.erase(cancel->id);
  }
}

}  // namespace muster::sim
