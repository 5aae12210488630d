// Drives a CoordinatorCore by hand: workers are statuses written by the test. Each call returns
// what the coordinator does, one line an action, without timers and logs, so that a test reads as a
// trace.
#ifndef MUSTER_TESTS_SERVER_CORE_FLEET_SCRIPT_H_
#define MUSTER_TESTS_SERVER_CORE_FLEET_SCRIPT_H_

#include <map>
#include <set>
#include <string>
#include <vector>

#include "server/core/coordinator_core.h"
#include "tests/sim/describe.h"

namespace muster {

using Lines = std::vector<std::string>;

class FleetScript {
 public:
  explicit FleetScript(CoordinatorOptions options = {}, PersistentState state = {})
      : core_(options, std::move(state)) {
    Render(core_.Start(now_));
  }

  // Of jobs that are submitted.
  bool workers_hand_on = false;

  CoordinatorCore& core() { return core_; }
  WorkerStatus& status(uint64_t worker) { return statuses_[worker]; }
  void Wait(absl::Duration time) { now_ += time; }
  bool IsSet(coordinator::TimerKind kind, uint64_t worker = 0) const {
    return timers_.contains({kind, Incarnation{worker}});
  }

  Lines Feed(const coordinator::Event& event) { return Render(core_.Handle(event, now_)); }

  Lines Submit(int min_workers, int start_workers, Step steps, int max_workers = 8,
               const Strategy& strategy = {}) {
    coordinator::JobSubmitted submitted;
    submitted.plan.id = "j";
    submitted.plan.min_workers = min_workers;
    submitted.plan.start_workers = start_workers;
    submitted.plan.max_workers = max_workers;
    submitted.plan.total_steps = steps;
    submitted.plan.strategy = strategy;
    submitted.plan.workers_hand_on = workers_hand_on;
    submitted.request_id = "r";
    return Feed(submitted);
  }

  // Of workers that join from now on; others have none.
  std::map<uint64_t, std::string> hosts;

  // Worker n is named "w<n>" unless told otherwise, and has incarnation n.
  Lines Join(uint64_t worker, std::string name = "", MemberRole role = MemberRole::kWorker,
             const MemoryBudget& memory = {}) {
    Hello hello;
    hello.memory = memory;
    hello.self.role = role;
    hello.protocol_version = kControlProtocolVersion;
    hello.self.name = name.empty() ? "w" + std::to_string(worker) : name;
    hello.self.incarnation = Incarnation{worker};
    hello.self.host = hosts[worker];
    Lines lines = Feed(coordinator::SessionOpened{hello});
    for (const std::string& line : Say(worker)) lines.push_back(line);
    return lines;
  }

  // A parameter server.
  Lines JoinServer(uint64_t server) {
    return Join(server, "p" + std::to_string(server), MemberRole::kParameterServer);
  }

  // Sends the status as it stands.
  Lines Say(uint64_t worker) {
    ++statuses_[worker].sequence;
    return Feed(coordinator::StatusReceived{Incarnation{worker}, statuses_[worker]});
  }

  Lines Answer(uint64_t worker, Epoch epoch) {
    WorkerStatus& s = statuses_[worker];
    s.job = "j";
    s.phase = WorkerPhase::kQuiesced;
    s.seen_epoch = s.answered_epoch = epoch;
    return Say(worker);
  }

  // Runs (or rests) in the view of `epoch` with this state.
  Lines Run(uint64_t worker, Epoch epoch, StateTag applied,
            WorkerPhase phase = WorkerPhase::kRunning, bool whole = true) {
    WorkerStatus& s = statuses_[worker];
    s.job = "j";
    s.phase = phase;
    s.seen_epoch = s.answered_epoch = s.active_epoch = epoch;
    s.has_state = true;
    s.holdings.whole = whole;
    s.applied = applied;
    s.prepared.reset();
    s.record.reset();
    s.caught_up = false;
    return Say(worker);
  }

  // The same of a member that holds its part of the view of `epoch`.
  Lines RunPart(uint64_t worker, Epoch epoch, StateTag applied,
                WorkerPhase phase = WorkerPhase::kRunning) {
    WorkerStatus& s = statuses_[worker];
    s.holdings = {.map = epoch};
    return Run(worker, epoch, applied, phase, /*whole=*/false);
  }

  // Is ready to join.
  Lines Learned(uint64_t worker) {
    WorkerStatus& s = statuses_[worker];
    s.job = "j";
    s.phase = WorkerPhase::kLearning;
    s.caught_up = true;
    return Say(worker);
  }

  Lines Close(uint64_t worker) { return Feed(coordinator::SessionClosed{Incarnation{worker}}); }

  Lines Suspect(uint64_t reporter, uint64_t suspect, Epoch epoch) {
    return Feed(coordinator::SuspicionReceived{Incarnation{reporter},
                                               {epoch, Incarnation{suspect}, "reset"}});
  }

  // Requires: the timer is set.
  Lines Fire(coordinator::TimerKind kind, uint64_t worker = 0) {
    const coordinator::TimerId id{kind, Incarnation{worker}};
    if (timers_.erase(id) == 0) return {"the timer is not set"};
    return Feed(coordinator::TimerFired{id});
  }

  // Workers 1..n run the job in view 1, each having applied `step`.
  void StartJob(int workers, Step step, int min_workers = 1, Step steps = 100) {
    Submit(min_workers, workers, steps);
    for (int i = 1; i <= workers; ++i) Join(static_cast<uint64_t>(i));
    for (int i = 1; i <= workers; ++i) Answer(static_cast<uint64_t>(i), 1);
    for (int i = 1; i <= workers; ++i) {
      Run(static_cast<uint64_t>(i), 1, {1, step, 1});
    }
  }

 private:
  Lines Render(const coordinator::Actions& actions) {
    Lines lines;
    for (const coordinator::Action& action : actions) {
      if (const auto* set = std::get_if<coordinator::SetTimer>(&action)) {
        timers_.insert(set->id);
      } else if (const auto* cancel = std::get_if<coordinator::CancelTimer>(&action)) {
        timers_.erase(cancel->id);
      } else if (!std::holds_alternative<coordinator::Log>(action)) {
        lines.push_back(sim::Describe(action));
      }
    }
    return lines;
  }

  absl::Time now_ = absl::UnixEpoch();
  CoordinatorCore core_;
  std::set<coordinator::TimerId> timers_;
  std::map<uint64_t, WorkerStatus> statuses_;
};

}  // namespace muster

#endif  // MUSTER_TESTS_SERVER_CORE_FLEET_SCRIPT_H_
