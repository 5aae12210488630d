// The weather: what goes wrong, and when it stops.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tests/sim/simulation.h"

namespace muster::sim {

void Simulation::Repeat(absl::Duration mean, std::function<void()> fault) {
  if (mean == absl::InfiniteDuration()) return;
  After(dice_.Time(mean / 10, mean * 2), [this, mean, fault = std::move(fault)] {
    if (faults_over_) return;
    ++outcome_.faults;
    fault();
    Repeat(mean, fault);
  });
}

size_t Simulation::Living() const {
  return static_cast<size_t>(
      std::count_if(processes_.begin(), processes_.end(),
                    [](const Process& process) { return process.worker.has_value(); }));
}

std::optional<size_t> Simulation::AnyLiving() {
  if (Living() == 0) return std::nullopt;
  for (;;) {
    const size_t slot = dice_.Below(processes_.size());
    if (processes_[slot].worker.has_value()) return slot;
  }
}

void Simulation::Freeze(size_t slot, absl::Duration time) {
  Process& process = processes_[slot];
  if (process.frozen) return;
  Trace(process.name, absl::StrCat("freezes for ", absl::FormatDuration(time)));
  process.frozen = true;
  After(time, [this, slot, incarnation = process.incarnation] {
    if (processes_[slot].incarnation == incarnation) Thaw(slot);
  });
}

void Simulation::Thaw(size_t slot) {
  Process& process = processes_[slot];
  if (!process.frozen) return;
  Trace(process.name, "thaws");
  process.frozen = false;
  for (Task& task : std::exchange(process.waiting, {})) At(now_, std::move(task));
}

void Simulation::PlanFaults() {
  const Tunables& t = tunables_;
  const absl::Duration lease = t.coordinator.lease;
  Repeat(t.crash, [this] {
    const std::optional<size_t> slot = AnyLiving();
    if (!slot.has_value()) return;
    Trace(processes_[*slot].name, "crashes");
    KillProcess(*slot);
    if (dice_.Chance(0.7)) {
      After(dice_.Time(absl::Milliseconds(1), absl::Milliseconds(200)),
            [this, slot] { StartProcess(*slot); });
    }
  });
  Repeat(t.freeze, [this, lease] {
    const std::optional<size_t> slot = AnyLiving();
    if (slot.has_value()) Freeze(*slot, dice_.Time(lease / 4, lease * 3));
  });
  Repeat(t.cut_control, [this, lease] {
    const std::optional<size_t> slot = AnyLiving();
    if (!slot.has_value()) return;
    const bool everybody = dice_.Chance(0.25);
    const absl::Duration time = dice_.Time(lease / 4, lease * 4);
    for (size_t i = 0; i < processes_.size(); ++i) {
      if (!everybody && i != *slot) continue;
      Process& process = processes_[i];
      Trace(process.name, absl::StrCat("is cut off for ", absl::FormatDuration(time)));
      process.cut_until = std::max(process.cut_until, now_ + time);
      // Both ends notice after a while, each for itself.
      if (time < tunables_.keepalive || process.session == 0) continue;
      const uint64_t session = process.session;
      const Incarnation incarnation = process.incarnation;
      After(tunables_.keepalive, [this, i, session, incarnation] {
        LoseSession(i, session, false);
        const auto it = sessions_.find(incarnation);
        if (it == sessions_.end() || it->second != session) return;
        sessions_.erase(it);
        FeedCoordinator(coordinator::SessionClosed{incarnation});
      });
    }
  });
  Repeat(t.cut_data, [this] {
    const std::optional<size_t> a = AnyLiving();
    const std::optional<size_t> b = AnyLiving();
    if (!a.has_value() || a == b) return;
    const absl::Duration time = dice_.Time(absl::Milliseconds(5), absl::Milliseconds(400));
    Trace(processes_[*a].name, absl::StrCat("loses its data link to ", processes_[*b].name, " for ",
                                            absl::FormatDuration(time)));
    data_cuts_[std::minmax(*a, *b)] = now_ + time;
    for (const auto& [self, other] : {std::make_pair(*a, *b), std::make_pair(*b, *a)}) {
      const Process& process = processes_[self];
      if (!process.worker.has_value() || process.frozen) continue;
      const View* view = process.worker->mesh_view();
      if (view == nullptr) continue;
      const Rank rank = view->RankOf(processes_[other].incarnation);
      if (rank < 0) continue;
      ObeyWorker(self, processes_[self].worker->BreakMesh(view->epoch, rank, now_, *this));
    }
  });
  Repeat(t.coordinator_crash, [this] {
    CrashCoordinator();
    After(dice_.Time(absl::Milliseconds(1), absl::Milliseconds(300)),
          [this] { StartCoordinator(); });
  });
  Repeat(t.coordinator_freeze, [this, lease] {
    if (!coordinator_.has_value() || coordinator_frozen_) return;
    coordinator_frozen_ = true;
    Trace("coordinator", "freezes");
    After(dice_.Time(lease / 4, lease * 3), [this, life = coordinator_life_] {
      if (life != coordinator_life_ || !coordinator_frozen_) return;
      coordinator_frozen_ = false;
      Trace("coordinator", "thaws");
      // Timers first, as a shell may well do: the core must not take its own sleep for silence.
      std::vector<coordinator::Event> waiting = std::exchange(coordinator_waiting_, {});
      std::stable_sort(waiting.begin(), waiting.end(), [](const auto& x, const auto& y) {
        return std::holds_alternative<coordinator::TimerFired>(x) &&
               !std::holds_alternative<coordinator::TimerFired>(y);
      });
      for (const coordinator::Event& event : waiting) {
        if (const auto* fired = std::get_if<coordinator::TimerFired>(&event)) {
          if (coordinator_timers_.erase(fired->id) == 0) continue;
        }
        FeedCoordinator(event);
      }
    });
  });
  Repeat(t.join, [this] {
    if (Living() >= static_cast<size_t>(tunables_.most_workers)) return;
    for (size_t slot = 0; slot < processes_.size(); ++slot) {
      if (!processes_[slot].worker.has_value()) return StartProcess(slot);
    }
    processes_.emplace_back();
    processes_.back().name = absl::StrCat("worker-", processes_.size() - 1);
    StartProcess(processes_.size() - 1);
  });
  Repeat(t.drain, [this] {
    const std::optional<size_t> slot = AnyLiving();
    if (!slot.has_value() || processes_[*slot].frozen) return;
    Trace(processes_[*slot].name, "is told to drain");
    FeedWorker(*slot, worker::DrainRequested{});
  });
  Repeat(t.switch_strategy, [this] {
    AskedStrategy asked{ChooseStrategy(dice_)};
    asked.automatic = tunables_.state_size.has_value() && dice_.Chance(0.6);
    // With as many replicas as were reckoned with something fits.
    if (asked.automatic) asked.strategy = {.replicas = tunables_.plan.strategy.replicas};
    Trace("operator", "asks for " + (asked.automatic ? "a choice" : ToString(asked.strategy)));
    FeedCoordinator(coordinator::StrategyRequested{"job-0", asked.strategy, asked.automatic});
  });
  Repeat(t.break_session, [this] {
    const std::optional<size_t> slot = AnyLiving();
    if (!slot.has_value()) return;
    Trace(processes_[*slot].name, "loses its session");
    LoseSession(*slot, processes_[*slot].session, true);
  });
  if (t.cancel > 0) {
    After(dice_.Time(absl::Milliseconds(1), t.faults_until), [this] {
      FeedCoordinator(coordinator::JobCancelled{"job-0", "by hand"});
    });
  }
}

void Simulation::EndFaults() {
  faults_over_ = true;
  Trace("weather", "clears up");
  data_cuts_.clear();
  for (size_t slot = 0; slot < processes_.size(); ++slot) {
    processes_[slot].cut_until = absl::InfinitePast();
    Thaw(slot);
  }
  KeepEnoughWorkers();
}

// Somebody sees to it that the job has the workers it needs.
void Simulation::KeepEnoughWorkers() {
  size_t staying = 0;
  for (const Process& process : processes_) {
    staying += process.role == MemberRole::kWorker && process.worker.has_value() &&
               !process.worker->core().drain_requested();
  }
  for (size_t slot = 0;
       slot < processes_.size() && staying < static_cast<size_t>(tunables_.plan.start_workers);
       ++slot) {
    const Process& process = processes_[slot];
    if (process.role != MemberRole::kWorker || process.worker.has_value()) continue;
    StartProcess(slot);
    ++staying;
  }
  After(absl::Milliseconds(100), [this] { KeepEnoughWorkers(); });
}

}  // namespace muster::sim
