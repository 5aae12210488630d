#include "tests/sim/simulation.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tests/sim/describe.h"

namespace muster::sim {
namespace {

constexpr int64_t kMostEvents = 400000;
// Proposals need a word from every member: a few waits of each kind end any run of bad luck. Far
// above what is seen, far below "for ever".
constexpr int kMostViewChangesAfterFaults = 30;

}  // namespace

Simulation::Simulation(uint64_t seed, ProtocolRules rules,
                       std::function<void(const std::string&)> trace)
    : seed_(seed),
      rules_(rules),
      trace_(std::move(trace)),
      dice_(seed),
      tunables_(ChooseTunables(dice_)),
      now_(absl::UnixEpoch() + absl::Hours(1)) {
  outcome_.seed = seed;
  tunables_.coordinator.rules = rules;
}

Outcome Simulation::Run() {
  const absl::Time start = now_;
  StartCoordinator();
  for (int i = 0; i < tunables_.workers + tunables_.servers; ++i) {
    const bool server = i >= tunables_.workers;
    processes_.emplace_back();
    processes_.back().name = absl::StrCat(server ? "server-" : "worker-", i);
    if (server) processes_.back().role = MemberRole::kParameterServer;
    const auto slot = static_cast<size_t>(i);
    After(dice_.Time(absl::ZeroDuration(), absl::Milliseconds(20)),
          [this, slot] { StartProcess(slot); });
  }
  for (int i = 0; i < tunables_.jobs; ++i) {
    After(dice_.Time(absl::ZeroDuration(), absl::Milliseconds(20)), [this, i] { Submit(i); });
  }
  PlanFaults();
  const absl::Time faults_end = start + tunables_.faults_until;
  At(faults_end, [this] { EndFaults(); });
  // Enough for a full round of every timer there is, several times, and for the steps themselves.
  const CoordinatorOptions& c = tunables_.coordinator;
  const absl::Duration round = c.orphan_timeout + c.orphan_margin + 6 * c.lease +
                               2 * c.largest_backoff + c.learner_answer_timeout +
                               c.drain_checkpoint_timeout + tunables_.plan.start_timeout +
                               2 * tunables_.data_deadline;
  const absl::Time deadline =
      faults_end + 4 * round +
      tunables_.jobs * tunables_.plan.total_steps * 10 *
          (tunables_.work_high + tunables_.latency_high + tunables_.disk_high);
  After(tunables_.data_deadline / 2, [this] { WatchMeshes(); });

  while (checker.ok() && jobs_ended_ < tunables_.jobs && !queue_.empty()) {
    auto first = queue_.begin();
    now_ = first->first.first;
    if (now_ > deadline || ++outcome_.events > kMostEvents) {
      checker.Fail(absl::StrFormat("(d) the job has not ended %s after the last fault",
                                   absl::FormatDuration(now_ - faults_end)));
      break;
    }
    const Task task = std::move(first->second);
    queue_.erase(first);
    task();
    PlanOps();
    if (outcome_.events % 64 == 0) CheckBounds();
  }
  if (outcome_.view_changes_after_faults > kMostViewChangesAfterFaults) {
    checker.Fail(absl::StrFormat("(d) %d view changes after the last fault",
                                 outcome_.view_changes_after_faults));
  }
  outcome_.failure = checker.failure();
  outcome_.virtual_time = now_ - start;
  outcome_.kept = kept[0] + kept[1];
  outcome_.kept_sealed = kept[1];
  outcome_.restarts_from_checkpoint =
      highest_branch_ > 1 ? static_cast<int>(highest_branch_ - 1) : 0;
  return outcome_;
}

// A client that sends its request, again, until the job is known.
void Simulation::Submit(int number) {
  coordinator::JobSubmitted submitted;
  submitted.plan = tunables_.plan;
  submitted.plan.id = absl::StrCat("job-", number);
  submitted.request_id = absl::StrCat("request-", number);
  FeedCoordinator(submitted);
  if (dice_.Chance(0.3)) FeedCoordinator(submitted);
  After(absl::Milliseconds(50), [this, number, id = submitted.plan.id] {
    if (stored_.FindJob(id) == nullptr) Submit(number);
  });
}

void Simulation::At(absl::Time time, Task task) {
  queue_.emplace(std::make_pair(std::max(time, now_), next_number_++), std::move(task));
}

void Simulation::Trace(absl::string_view who, const std::string& what) {
  if (trace_ == nullptr) return;
  trace_(absl::StrFormat("%10.3f ms  %-11s %s",
                         absl::ToDoubleMilliseconds(now_ - absl::UnixEpoch() - absl::Hours(1)), who,
                         what));
}

const ModelWorker* Simulation::Find(Incarnation incarnation) const {
  const std::optional<size_t> slot = SlotOf(incarnation);
  return slot.has_value() && processes_[*slot].worker.has_value() ? &*processes_[*slot].worker
                                                                  : nullptr;
}

std::optional<size_t> Simulation::SlotOf(Incarnation incarnation) const {
  for (size_t slot = 0; slot < processes_.size(); ++slot) {
    if (processes_[slot].incarnation == incarnation) return slot;
  }
  return std::nullopt;
}

void Simulation::StartProcess(size_t slot) {
  Process& process = processes_[slot];
  if (process.worker.has_value()) return;
  // What an earlier incarnation of the same process knew goes on; after a crash there is none.
  WorkerOptions options;
  options.self.name = process.name;
  options.self.incarnation = Incarnation{next_incarnation_++};
  options.self.role = process.role;
  options.self.host = absl::StrFormat("host%d", slot % static_cast<size_t>(tunables_.hosts));
  options.heartbeat = tunables_.coordinator.heartbeat;
  options.orphan_timeout = tunables_.coordinator.orphan_timeout;
  options.rules = rules_;
  if (process.role == MemberRole::kWorker) options.memory = tunables_.memory;
  ModelOptions model;
  model.total_steps = tunables_.plan.total_steps;
  for (const StrategySwitch& change : tunables_.plan.switches) {
    model.pause_after.push_back(change.after);
  }
  model.checkpoint_every = tunables_.checkpoint_every;
  model.state_size = tunables_.state_size;
  if (tunables_.state_size.has_value()) model.link_seed = tunables_.link_seed;
  model.rules = rules_;
  process.incarnation = options.self.incarnation;
  process.worker.emplace(std::move(options), model);
  process.frozen = false;
  process.drained = false;
  process.session = 0;
  process.timers.clear();
  process.planned.clear();
  process.waiting.clear();
  process.mesh_mark = 0;
  Trace(process.name, absl::StrFormat("starts as #%d", process.incarnation.value));
  Connect(slot);
}

void Simulation::KillProcess(size_t slot) {
  Process& process = processes_[slot];
  if (!process.worker.has_value()) return;
  plane.Die(process.incarnation);
  process.worker.reset();
  process.frozen = false;
  process.timers.clear();
  process.planned.clear();
  process.waiting.clear();
  LoseSession(slot, process.session, /*tell_coordinator=*/true);
}

// Runs the task if this very process still lives: now, or when it thaws.
void Simulation::OnProcess(size_t slot, Incarnation incarnation, Task task) {
  Process& process = processes_[slot];
  if (!process.worker.has_value() || process.incarnation != incarnation) return;
  if (process.frozen) {
    process.waiting.push_back(
        [this, slot, incarnation, task = std::move(task)] { OnProcess(slot, incarnation, task); });
    return;
  }
  task();
}

void Simulation::FeedWorker(size_t slot, const worker::Event& event) {
  ObeyWorker(slot, processes_[slot].worker->Feed(event, now_, *this));
}

void Simulation::ObeyWorker(size_t slot, worker::Actions actions) {
  Process& process = processes_[slot];
  const Incarnation incarnation = process.incarnation;
  for (const worker::Action& action : actions) {
    if (trace_ != nullptr && !std::holds_alternative<worker::SetTimer>(action)) {
      Trace(process.name, Describe(action));
    }
    if (const auto* status = std::get_if<worker::SendStatus>(&action)) {
      SendUp(slot, coordinator::StatusReceived{incarnation, status->status});
    } else if (const auto* suspicion = std::get_if<worker::SendSuspicion>(&action)) {
      SendUp(slot, coordinator::SuspicionReceived{incarnation, suspicion->suspicion});
    } else if (const auto* set = std::get_if<worker::SetTimer>(&action)) {
      const uint64_t number = next_number_++;
      process.timers[set->id] = number;
      At(set->at, [this, slot, incarnation, id = set->id, number] {
        OnProcess(slot, incarnation, [this, slot, id, number] {
          std::map<worker::TimerId, uint64_t>& timers = processes_[slot].timers;
          const auto it = timers.find(id);
          if (it == timers.end() || it->second != number) return;
          timers.erase(it);
          FeedWorker(slot, worker::TimerFired{id});
        });
      });
    } else if (const auto* cancel = std::get_if<worker::CancelTimer>(&action)) {
      process.timers.erase(cancel->id);
    } else if (std::holds_alternative<worker::Rejoin>(action)) {
      KillProcess(
          slot);  // everything of the old incarnation stops; the process goes on as a new one
      After(dice_.Time(tunables_.backoff_low, tunables_.backoff_high),
            [this, slot] { StartProcess(slot); });
      return;
    } else if (const auto* exit = std::get_if<worker::Exit>(&action)) {
      if (exit->code != 0) checker.Fail("a worker was refused: " + exit->reason);
      process.drained = true;
      KillProcess(slot);
      return;
    }
  }
}

// Every operation that has become possible is given a time.
void Simulation::PlanOps() {
  for (size_t slot = 0; slot < processes_.size(); ++slot) {
    Process& process = processes_[slot];
    if (!process.worker.has_value() || process.frozen) continue;
    for (const Op& op : process.worker->Enabled(*this)) {
      if (!process.planned.insert(op).second) continue;
      const bool disk_work =
          op.kind == OpKind::kDurable || op.kind == OpKind::kName || op.kind == OpKind::kMakeState;
      const absl::Duration delay = disk_work ? dice_.Time(tunables_.disk_low, tunables_.disk_high)
                                             : dice_.Time(tunables_.work_low, tunables_.work_high);
      After(delay, [this, slot, incarnation = process.incarnation, op] {
        OnProcess(slot, incarnation,
                  [this, slot, incarnation, op] { RunOp(slot, incarnation, op); });
      });
    }
  }
}

void Simulation::RunOp(size_t slot, Incarnation incarnation, const Op& op) {
  Process& process = processes_[slot];
  process.planned.erase(op);
  const std::vector<Op> enabled = process.worker->Enabled(*this);
  if (std::find(enabled.begin(), enabled.end(), op) == enabled.end()) return;
  if (op.kind == OpKind::kConnect && !CanConnect(process))
    return;  // planned again by the next event
  Trace(process.name, "does " + Describe(op));
  ObeyWorker(slot, process.worker->Execute(op, now_, *this));
}

bool Simulation::CanConnect(const Process& process) const {
  const std::optional<size_t> self = SlotOf(process.incarnation);
  for (const Member& member : process.worker->mesh_view()->members) {
    const std::optional<size_t> other = SlotOf(member.incarnation);
    if (!other.has_value() || processes_[*other].frozen) return false;
    const auto cut = data_cuts_.find(std::minmax(*self, *other));
    if (cut != data_cuts_.end() && cut->second > now_) return false;
  }
  return true;
}

// The peer that keeps this worker's mesh waiting, if one can be named.
std::optional<Rank> Simulation::Laggard(const Process& process) const {
  const View& view = *process.worker->mesh_view();
  const std::optional<size_t> self = SlotOf(process.incarnation);
  for (size_t rank = 0; rank < view.members.size(); ++rank) {
    const std::optional<size_t> other = SlotOf(view.members[rank].incarnation);
    if (other == self) continue;
    if (!other.has_value() || processes_[*other].frozen) return static_cast<Rank>(rank);
    const auto cut = data_cuts_.find(std::minmax(*self, *other));
    if (cut != data_cuts_.end() && cut->second > now_) return static_cast<Rank>(rank);
  }
  return std::nullopt;
}

// Collectives and connecting have a deadline.
void Simulation::WatchMeshes() {
  for (size_t slot = 0; slot < processes_.size(); ++slot) {
    Process& process = processes_[slot];
    if (!process.worker.has_value() || process.frozen) continue;
    const View* view = process.worker->mesh_view();
    const WorkerPhase phase = process.worker->core().phase();
    const bool waits =
        view != nullptr && ((phase == WorkerPhase::kActivating &&
                             (!process.worker->mesh_connected() || process.worker->moving())) ||
                            phase == WorkerPhase::kRunning);
    Digest digest;
    process.worker->AppendTo(&digest);
    if (!waits || digest.low() != process.mesh_mark) {
      process.mesh_mark = digest.low();
      process.mesh_moved = now_;
    } else if (now_ - process.mesh_moved >= tunables_.data_deadline) {
      process.mesh_moved = now_;
      Trace(process.name, absl::StrFormat("waits too long in mesh %d", view->epoch));
      ObeyWorker(slot, process.worker->BreakMesh(view->epoch, Laggard(process), now_, *this));
    }
  }
  After(tunables_.data_deadline / 2, [this] { WatchMeshes(); });
}

void Simulation::CheckBounds() {
  if (!coordinator_.has_value()) return;
  const size_t entries = coordinator_->TableEntries();
  outcome_.most_table_entries = std::max(outcome_.most_table_entries, entries);
  const size_t bound = static_cast<size_t>(tunables_.coordinator.max_remembered_evictions) + 40 +
                       30 * static_cast<size_t>(tunables_.most_workers);
  if (entries > bound) {
    checker.Fail(absl::StrFormat("the coordinator's tables hold %d entries, expected at most %d",
                                 entries, bound));
  }
  // What no living mesh needs any more.
  Epoch oldest = std::numeric_limits<Epoch>::max();
  for (const Process& process : processes_) {
    if (!process.worker.has_value()) continue;
    if (const View* view = process.worker->mesh_view()) oldest = std::min(oldest, view->epoch);
  }
  plane.Forget(std::min(oldest, stored_.epoch > 20 ? stored_.epoch - 20 : 0));
}

void Simulation::CheckEnd(const JobEnded& record) {
  ++jobs_ended_;
  if (record.outcome == JobState::kCancelled) return;
  if (record.outcome != JobState::kSucceeded) {
    checker.Fail(absl::StrCat("(d) the job failed: ", record.reason));
    return;
  }
  const PersistentJob* job = stored_.FindJob(record.job);
  for (const Member& member : job->decision->view.members) {
    const ModelWorker* worker = Find(member.incarnation);
    if (worker == nullptr) continue;  // died after it had finished
    if (!worker->state().has_value()) {
      checker.Fail("(e) a finished member holds no state");
    } else {
      checker.Finished(*worker->state(), job->plan.total_steps);
      checker.Holds(*worker->state());
    }
  }
}

}  // namespace muster::sim
