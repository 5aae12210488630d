#include "tests/sim/explorer/world.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/check.h"
#include "tests/sim/describe.h"

namespace muster::sim {
namespace {

using coordinator::TimerId;
using coordinator::TimerKind;

const absl::Time kNow = absl::UnixEpoch();

CoordinatorOptions MakeOptions(const Scope& scope) {
  CoordinatorOptions options;
  options.fleet_id = "small";
  options.rules = scope.rules;
  options.link_faults_before_eviction = 1000;
  return options;
}

ModelOptions MakeModel(const Scope& scope) {
  ModelOptions model;
  model.total_steps = scope.steps;
  model.atomic_apply = true;
  model.rules = scope.rules;
  return model;
}

}  // namespace

World::World(const Scope& scope)
    : scope_(scope),
      model_(MakeModel(scope)),
      options_(MakeOptions(scope)),
      coordinator_(options_, PersistentState()) {
  Obey(coordinator_.Start(kNow));
  coordinator::JobSubmitted submitted;
  submitted.plan.id = "j";
  submitted.plan.min_workers = 1;
  submitted.plan.start_workers = scope.members;
  submitted.plan.total_steps = scope.steps;
  Tell(submitted, -1);
  for (int i = 0; i < scope.members; ++i) {
    places_.emplace_back();
    places_.back().name = std::string(1, static_cast<char>('a' + i));
    StartWorker(static_cast<size_t>(i));
  }
  RunQuietly();
  for (int i = 0; i < scope.joiners; ++i) {
    places_.emplace_back();
    places_.back().name = std::string(1, static_cast<char>('x' + i));
    StartWorker(places_.size() - 1);
  }
}

// Without faults, until the first view runs.
void World::RunQuietly() {
  const auto quiet = [](const Move& move) {
    return move.torn < 0 && move.kind != MoveKind::kTimer && move.kind != MoveKind::kCrash &&
           move.kind != MoveKind::kRestart &&
           !(move.kind == MoveKind::kOp &&
             (move.op.kind == OpKind::kPrepare || move.op.kind == OpKind::kForm));
  };
  for (;;) {
    const std::vector<Move> moves = Moves();
    const auto move = std::find_if(moves.begin(), moves.end(), quiet);
    if (move == moves.end()) return;
    Make(*move);
  }
}

const ModelWorker* World::Find(Incarnation incarnation) const {
  const std::optional<size_t> slot = SlotOf(incarnation);
  return slot.has_value() && places_[*slot].worker.has_value() ? &*places_[*slot].worker : nullptr;
}

std::optional<size_t> World::SlotOf(Incarnation incarnation) const {
  for (size_t slot = 0; slot < places_.size(); ++slot) {
    if (places_[slot].incarnation == incarnation) return slot;
  }
  return std::nullopt;
}

void World::StartWorker(size_t slot) {
  Place& place = places_[slot];
  WorkerOptions options;
  options.self.name = place.name;
  options.self.incarnation = Incarnation{(slot + 1) + 10 * place.generation++};
  options.rules = scope_.rules;
  place.incarnation = options.self.incarnation;
  place.worker.emplace(std::move(options), model_);
}

void World::EndWorker(size_t slot) {
  Place& place = places_[slot];
  plane.Die(place.incarnation);
  place.worker.reset();
  if (place.attached) {
    place.closed = true;
    place.closed_incarnation = place.incarnation;
  }
  place.attached = false;
  place.ending = false;
  place.down.clear();
  place.status.reset();
  place.suspicion.reset();
}

void World::ObeyWorker(size_t slot, worker::Actions actions) {
  Place& place = places_[slot];
  for (const worker::Action& action : actions) {
    if (const auto* status = std::get_if<worker::SendStatus>(&action)) {
      if (place.attached) place.status = status->status;
    } else if (const auto* suspicion = std::get_if<worker::SendSuspicion>(&action)) {
      if (place.attached) place.suspicion = suspicion->suspicion;
    } else if (std::holds_alternative<worker::Rejoin>(action)) {
      EndWorker(slot);
      if (rejoins_ < scope_.rejoins) {
        ++rejoins_;
        StartWorker(slot);
      }
      return;
    } else if (std::holds_alternative<worker::Exit>(action)) {
      EndWorker(slot);
      return;
    }
  }
}

void World::Obey(coordinator::Actions actions) {
  for (const coordinator::Action& action : actions) {
    if (const auto* persist = std::get_if<coordinator::Persist>(&action)) {
      Apply(persist->record, PersistentLimits(), &stored_);
      if (const auto* decision = std::get_if<DecisionMade>(&persist->record)) {
        checker.Decided(decision->activate.view);
      } else if (std::holds_alternative<JobEnded>(persist->record)) {
        job_over_ = true;
      }
    } else if (const auto* send = std::get_if<coordinator::SendDirective>(&action)) {
      const std::optional<size_t> slot = SlotOf(send->to);
      if (slot.has_value() && places_[*slot].attached && !places_[*slot].ending &&
          !std::holds_alternative<Welcome>(send->directive)) {
        places_[*slot].down.emplace_back(send->directive, coordinator_.term());
      }
    } else if (const auto* close = std::get_if<coordinator::CloseSession>(&action)) {
      const std::optional<size_t> slot = SlotOf(close->worker);
      if (slot.has_value() && places_[*slot].attached) places_[*slot].ending = true;
    } else if (const auto* set = std::get_if<coordinator::SetTimer>(&action)) {
      timers_.insert(set->id);
    } else if (const auto* cancel = std::get_if<coordinator::CancelTimer>(&action)) {
      timers_.erase(cancel->id);
    }
  }
}

// Hands an event to the coordinator. torn >= 0: it crashes when so many records are durable.
void World::Tell(const coordinator::Event& event, int torn) {
  coordinator::Actions actions = coordinator_.Handle(event, kNow);
  if (torn >= 0) {
    actions.resize(std::min(actions.size(), static_cast<size_t>(torn)));
    Obey(std::move(actions));
    Restart();
    return;
  }
  Obey(std::move(actions));
  for (TimerKind kind : {TimerKind::kCollect, TimerKind::kPauseBatch}) {
    if (timers_.erase(TimerId{kind, {}}) > 0) {
      Obey(coordinator_.Handle(coordinator::TimerFired{TimerId{kind, {}}}, kNow));
    }
  }
}

void World::Restart() {
  ++restarts_;
  timers_.clear();
  coordinator_ = CoordinatorCore(options_, stored_);
  for (Place& place : places_) {
    // What was sent may still arrive; the session ends after it, or earlier (kAttach).
    place.ending = place.attached;
    place.closed = false;
    place.status.reset();
    place.suspicion.reset();
  }
  Obey(coordinator_.Start(kNow));
}

std::vector<Move> World::Moves() const {
  std::vector<Move> moves;
  for (size_t slot = 0; slot < places_.size(); ++slot) {
    const Place& place = places_[slot];
    if (place.closed) moves.push_back({MoveKind::kClosed, slot});
    if (!place.worker.has_value()) continue;
    for (const Op& op : place.worker->Enabled(*this)) moves.push_back({MoveKind::kOp, slot, op});
    if (!place.down.empty()) moves.push_back({MoveKind::kDirective, slot});
    if (!place.attached || place.ending) moves.push_back({MoveKind::kAttach, slot});
    if (place.status.has_value() && !place.ending) moves.push_back({MoveKind::kStatus, slot});
    if (place.suspicion.has_value() && !place.ending) {
      moves.push_back({MoveKind::kSuspicion, slot});
    }
    if (crashes_ < scope_.crashes) moves.push_back({MoveKind::kCrash, slot});
  }
  for (const TimerId& timer : timers_) {
    if (timer.kind == TimerKind::kStart || timer.kind == TimerKind::kLinkWindow) continue;
    if (timer.kind == TimerKind::kLease && lapses_ >= scope_.lapses) continue;
    Move move{MoveKind::kTimer};
    move.timer = timer;
    moves.push_back(move);
  }
  if (restarts_ < scope_.coordinator_restarts) {
    // Torn: as many records as the event would write, less one.
    const size_t whole = moves.size();
    for (size_t i = 0; i < whole; ++i) {
      if (!IsTold(moves[i])) continue;
      World copy(*this);
      Move probe = moves[i];
      const PersistentState before = copy.stored_;
      CoordinatorCore core = coordinator_;
      coordinator::Actions actions;
      if (probe.kind == MoveKind::kStatus) {
        actions = core.Handle(coordinator::StatusReceived{places_[probe.slot].incarnation,
                                                          *places_[probe.slot].status},
                              kNow);
      } else if (probe.kind == MoveKind::kTimer) {
        actions = core.Handle(coordinator::TimerFired{probe.timer}, kNow);
      } else {
        continue;
      }
      const auto records =
          std::count_if(actions.begin(), actions.end(), [](const coordinator::Action& action) {
            return std::holds_alternative<coordinator::Persist>(action);
          });
      for (int torn = 1; torn < records; ++torn) {
        probe.torn = torn;
        moves.push_back(probe);
      }
    }
    moves.push_back({MoveKind::kRestart});
  }
  return moves;
}

bool World::IsTold(const Move& move) const {
  return move.kind == MoveKind::kStatus || move.kind == MoveKind::kTimer;
}

void World::Make(const Move& move) {
  Place& place = places_[std::min(move.slot, places_.size() - 1)];
  switch (move.kind) {
    case MoveKind::kOp:
      ObeyWorker(move.slot, place.worker->Execute(move.op, kNow, *this));
      break;
    case MoveKind::kDirective: {
      const auto [directive, term] = place.down.front();
      place.down.pop_front();
      ObeyWorker(move.slot,
                 place.worker->Feed(worker::DirectiveReceived{directive, term}, kNow, *this));
      break;
    }
    case MoveKind::kStatus: {
      const WorkerStatus status = *std::exchange(place.status, std::nullopt);
      Tell(coordinator::StatusReceived{place.incarnation, status}, move.torn);
      break;
    }
    case MoveKind::kSuspicion: {
      const Suspicion suspicion = *std::exchange(place.suspicion, std::nullopt);
      Tell(coordinator::SuspicionReceived{place.incarnation, suspicion}, move.torn);
      break;
    }
    case MoveKind::kClosed:
      place.closed = false;
      Tell(coordinator::SessionClosed{place.closed_incarnation}, -1);
      break;
    case MoveKind::kAttach: {
      // The old session's end and the new one's beginning are one move.
      if (place.attached) {
        place.attached = false;
        ObeyWorker(move.slot, place.worker->Feed(worker::SessionDetached{}, kNow, *this));
      }
      place.attached = true;
      place.ending = false;
      place.down.clear();
      place.suspicion.reset();
      if (place.closed && place.closed_incarnation == place.incarnation) place.closed = false;
      Tell(coordinator::SessionOpened{place.worker->core().MakeHello()}, -1);
      ObeyWorker(move.slot, place.worker->Feed(worker::SessionAttached{}, kNow, *this));
      break;
    }
    case MoveKind::kTimer:
      if (move.timer.kind == TimerKind::kLease) ++lapses_;
      timers_.erase(move.timer);
      Tell(coordinator::TimerFired{move.timer}, move.torn);
      break;
    case MoveKind::kCrash:
      ++crashes_;
      EndWorker(move.slot);
      break;
    case MoveKind::kRestart:
      Restart();
      break;
  }
  Look();
}

// A status could go out at any moment: what it would show must be true already.
void World::Look() {
  for (const Place& place : places_) {
    if (!place.worker.has_value()) continue;
    const WorkerStatus status = place.worker->core().Status();
    if (status.has_state && place.worker->state().has_value()) {
      checker.Visible(status.job, status.stable, place.worker->state()->history);
    }
  }
}

Digest World::digest() const {
  Digest digest;
  coordinator_.AppendTo(&digest);
  for (const TimerId& timer : timers_) {
    digest.Add(static_cast<uint64_t>(timer.kind));
    digest.Add(timer.worker);
  }
  for (const Place& place : places_) {
    digest.Add(place.incarnation);
    digest.Add(place.worker.has_value());
    if (place.worker.has_value()) place.worker->AppendTo(&digest);
    digest.Add(place.attached | place.ending << 1 | place.closed << 2);
    digest.Add(place.closed ? place.closed_incarnation : Incarnation{});
    digest.Add(place.down.size());
    for (const auto& [directive, term] : place.down) {
      digest.Add(directive);
      digest.Add(term);
    }
    digest.Add(place.status);
    digest.Add(place.suspicion.has_value());
    if (place.suspicion.has_value()) {
      digest.Add(place.suspicion->epoch);
      digest.Add(place.suspicion->suspect);
    }
  }
  plane.AppendTo(&digest);
  checker.AppendTo(&digest);
  digest.Add(static_cast<uint64_t>(crashes_ | restarts_ << 4 | rejoins_ << 8 | lapses_ << 12));
  return digest;
}

std::string World::Describe(const Move& move) {
  const std::string who = absl::StrFormat("worker %d", move.slot + 1);
  std::string text;
  switch (move.kind) {
    case MoveKind::kOp:
      text = who + " does " + sim::Describe(move.op);
      break;
    case MoveKind::kDirective:
      text = who + " receives a directive";
      break;
    case MoveKind::kStatus:
      text = "coordinator receives the status of " + who;
      break;
    case MoveKind::kSuspicion:
      text = "coordinator receives the suspicion of " + who;
      break;
    case MoveKind::kClosed:
      text = "coordinator loses the session of " + who;
      break;
    case MoveKind::kAttach:
      text = who + " attaches";
      break;
    case MoveKind::kTimer:
      text = absl::StrFormat("timer %d of #%d fires", static_cast<int>(move.timer.kind),
                             move.timer.worker.value);
      break;
    case MoveKind::kCrash:
      text = who + " crashes";
      break;
    case MoveKind::kRestart:
      text = "coordinator restarts";
      break;
  }
  if (move.torn >= 0) absl::StrAppendFormat(&text, ", crashes after %d records", move.torn);
  return text;
}

}  // namespace muster::sim
