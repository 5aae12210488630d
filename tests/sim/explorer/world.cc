#include "tests/sim/explorer/world.h"

#include <algorithm>

#include "base/control/state_memory.h"

namespace muster::sim {
namespace {

using coordinator::TimerId;
using coordinator::TimerKind;

const absl::Time kNow = absl::UnixEpoch();
// In stage 1 the less the more workers there are.
constexpr StateSize kSize{.elements = 1200,
                          .largest_block = 100,
                          .bucket = 300,
                          .slots = 2,
                          .parameter_bytes = 2,
                          .gradient_bytes = 2};

CoordinatorOptions MakeOptions(const Scope& scope) {
  CoordinatorOptions options;
  options.fleet_id = "small";
  options.rules = scope.rules;
  options.link_faults_before_eviction = 0;
  options.strategy_steps = 0;
  return options;
}

ModelOptions MakeModel(const Scope& scope) {
  ModelOptions model;
  model.total_steps = scope.steps;
  model.atomic_apply = true;
  model.rules = scope.rules;
  if (scope.automatic) {
    model.state_size = kSize;
    model.link_seed = 0;
  }
  return model;
}

MemoryBudget BudgetOf(const Scope& scope) {
  if (!scope.tight) return {};
  return {.process_bytes = StateBytes(kSize, {.stage = 1, .replicas = scope.replicas},
                                      {.workers = scope.members}, MemberRole::kWorker)};
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
  submitted.plan.strategy.stage = scope.stage;
  submitted.plan.strategy.replicas = scope.replicas;
  submitted.plan.strategy.group_size = scope.stage > 0 ? scope.group_size : 0;
  submitted.plan.automatic = scope.automatic;
  if (scope.servers > 0 && !scope.automatic) {
    submitted.plan.strategy.sync = SyncPath::kParameterServer;
    submitted.plan.strategy.servers = scope.servers;
  }
  Tell(submitted);
  for (int i = 0; i < scope.servers; ++i) {
    places_.emplace_back();
    places_.back().name = std::string(1, static_cast<char>('p' + i));
    places_.back().role = MemberRole::kParameterServer;
    StartWorker(places_.size() - 1);
  }
  for (int i = 0; i < scope.members; ++i) {
    places_.emplace_back();
    places_.back().name = std::string(1, static_cast<char>('a' + i));
    StartWorker(places_.size() - 1);
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
    return move.kind == MoveKind::kDirective || move.kind == MoveKind::kAttach ||
           (move.kind == MoveKind::kOp && move.op.kind != OpKind::kPrepare);
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
  options.self.role = place.role;
  options.rules = scope_.rules;
  if (place.role == MemberRole::kWorker) options.memory = BudgetOf(scope_);
  place.incarnation = options.self.incarnation;
  place.timers.clear();
  place.worker.emplace(std::move(options), model_);
}

void World::EndWorker(size_t slot) {
  Place& place = places_[slot];
  plane.Die(place.incarnation);
  place.worker.reset();
  const bool attached = std::exchange(place.attached, false);
  place.ending = false;
  place.down.clear();
  if (attached) Tell(coordinator::SessionClosed{place.incarnation});
}

void World::EndSession(size_t slot) {
  Place& place = places_[slot];
  if (!place.attached) return;
  place.attached = false;
  place.ending = false;
  place.down.clear();
  ObeyWorker(slot, place.worker->Feed(worker::SessionDetached{}, kNow, *this));
}

void World::FireWorkerTimer(size_t slot, worker::TimerId id) {
  places_[slot].timers.erase(id);
  if (!places_[slot].worker.has_value()) return;  // it left with its session
  ObeyWorker(slot, places_[slot].worker->Feed(worker::TimerFired{id}, kNow, *this));
}

// As a new incarnation, if the scope has one left.
void World::StartAgain(size_t slot) {
  if (rejoins_ >= scope_.rejoins) return;
  ++rejoins_;
  StartWorker(slot);
}

void World::ObeyWorker(size_t slot, worker::Actions actions) {
  for (const worker::Action& action : actions) {
    const Place& place = places_[slot];
    if (const auto* status = std::get_if<worker::SendStatus>(&action)) {
      if (place.attached && !place.ending) {
        Tell(coordinator::StatusReceived{place.incarnation, status->status});
      }
    } else if (std::holds_alternative<worker::Rejoin>(action)) {
      EndWorker(slot);
      StartAgain(slot);
      return;
    } else if (std::holds_alternative<worker::Exit>(action)) {
      EndWorker(slot);
      return;
    } else if (const auto* set = std::get_if<worker::SetTimer>(&action)) {
      if (set->id != worker::TimerId::kHeartbeat) places_[slot].timers.insert(set->id);
    } else if (const auto* cancel = std::get_if<worker::CancelTimer>(&action)) {
      places_[slot].timers.erase(cancel->id);
    }
  }
}

void World::Obey(coordinator::Actions actions) {
  for (const coordinator::Action& action : actions) {
    if (const auto* persist = std::get_if<coordinator::Persist>(&action)) {
      Apply(persist->record, PersistentLimits(), &stored_);
      if (const auto* decision = std::get_if<DecisionMade>(&persist->record)) {
        checker.Decided(decision->activate.view);
      } else if (const auto* dissolved = std::get_if<ViewDissolved>(&persist->record)) {
        checker.GivenUp(*dissolved);
      } else if (std::holds_alternative<JobEnded>(persist->record)) {
        job_over_ = true;
      }
    } else if (const auto* send = std::get_if<coordinator::SendDirective>(&action)) {
      const std::optional<size_t> slot = SlotOf(send->to);
      if (slot.has_value() && places_[*slot].attached && !places_[*slot].ending &&
          (scope_.orphans > 0 || !std::holds_alternative<Welcome>(send->directive))) {
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

// Hands an event to the coordinator, which crashes in it if the move says so.
void World::Tell(const coordinator::Event& event) {
  coordinator::Actions actions = coordinator_.Handle(event, kNow);
  const auto records = static_cast<int>(
      std::count_if(actions.begin(), actions.end(), [](const coordinator::Action& action) {
        return std::holds_alternative<coordinator::Persist>(action);
      }));
  records_of_move_ = std::max(records_of_move_, records);
  if (torn_ >= 0 && records > torn_) {
    actions.resize(static_cast<size_t>(torn_));  // records come first
    torn_ = -1;
    Obey(std::move(actions));
    Restart();
    return;
  }
  Obey(std::move(actions));
  for (TimerKind kind : {TimerKind::kCollect, TimerKind::kPauseBatch}) {
    if (timers_.erase(TimerId{kind, {}}) > 0) Tell(coordinator::TimerFired{TimerId{kind, {}}});
  }
}

void World::Restart() {
  ++restarts_;
  timers_.clear();
  coordinator_ = CoordinatorCore(options_, stored_);
  // What was sent may still arrive; the session ends after it, or earlier (kAttach).
  for (Place& place : places_) place.ending = place.attached;
  Obey(coordinator_.Start(kNow));
}

void World::Make(const Move& move) {
  torn_ = move.torn;
  records_of_move_ = 0;
  Place& place = places_[move.slot];
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
    case MoveKind::kSuspicion: {
      const View view = *coordinator_.CurrentView();
      for (const Member& member : view.members) {
        const Suspicion suspicion{view.epoch, Incarnation{}, "a link broke"};
        Tell(coordinator::SuspicionReceived{member.incarnation, suspicion});
        if (coordinator_.PendingEpoch() > 0) break;  // heard from one that is known
      }
      break;
    }
    case MoveKind::kAttach:
      // The old session's end and the new one's beginning are one move.
      EndSession(move.slot);
      place.attached = true;
      place.ending = false;
      place.down.clear();
      Tell(coordinator::SessionOpened{place.worker->core().MakeHello()});
      ObeyWorker(move.slot, place.worker->Feed(worker::SessionAttached{}, kNow, *this));
      break;
    case MoveKind::kTimer:
      timers_.erase(move.timer);
      Tell(coordinator::TimerFired{move.timer});
      break;
    case MoveKind::kLonely:
      ++orphans_;
      EndSession(move.slot);
      FireWorkerTimer(move.slot, move.worker_timer);
      break;
    case MoveKind::kGiveUp:
      for (Incarnation incarnation : Pending()) {
        const TimerId lease{TimerKind::kLease, incarnation};
        if (timers_.erase(lease) > 0) Tell(coordinator::TimerFired{lease});
      }
      break;
    case MoveKind::kCrash:
      ++crashes_;
      EndWorker(move.slot);
      StartAgain(move.slot);
      break;
    case MoveKind::kRestart:
      Restart();
      break;
    case MoveKind::kSwitch: {
      ++switches_;
      Strategy strategy = coordinator_.persistent().jobs.front().asked.strategy;
      if (scope_.servers > 0) {
        strategy.sync = strategy.serves() ? SyncPath::kAllReduce : SyncPath::kParameterServer;
        strategy.servers = strategy.serves() ? scope_.servers : 0;
      } else {
        strategy.stage = strategy.stage == 0 ? 1 : 0;
        strategy.group_size = strategy.stage > 0 ? scope_.group_size : 0;
      }
      Tell(coordinator::StrategyRequested{"j", strategy});
      break;
    }
  }
  DoEagerOps();
  torn_ = -1;
  Look();
  RetireEvicted();
  Prune();
}

// A decision stands when all members that stay have answered, so an evicted one meets nobody but
// others of its kind. What it may still do is done at once, as all it can lead to is to show more;
// then it ends.
void World::RetireEvicted() {
  if (!options_.rules.AllOn()) return;
  const std::deque<Incarnation>& evicted = coordinator_.persistent().evicted;
  const auto is_evicted = [&evicted](const Place& place) {
    return place.worker.has_value() &&
           std::find(evicted.begin(), evicted.end(), place.incarnation) != evicted.end();
  };
  if (coordinator_.PendingEpoch() > 0) return;  // its records may still be torn from the decision
  const auto do_ops = [&] {
    for (size_t slot = 0; slot < places_.size();) {
      slot = is_evicted(places_[slot]) && DoOpOfEvicted(slot) ? 0 : slot + 1;
    }
  };
  do_ops();
  if (scope_.orphans > 0) {
    for (worker::TimerId timer : {worker::TimerId::kAlone, worker::TimerId::kOrphan}) {
      for (size_t slot = 0; slot < places_.size(); ++slot) {
        if (!is_evicted(places_[slot])) continue;
        EndSession(slot);
        FireWorkerTimer(slot, timer);
      }
      DoEagerOps();
      do_ops();
    }
  }
  for (size_t slot = 0; slot < places_.size(); ++slot) {
    if (!is_evicted(places_[slot])) continue;
    EndWorker(slot);
    StartAgain(slot);
  }
}

bool World::DoOpOfEvicted(size_t slot) {
  for (const Op& op : places_[slot].worker->Enabled(*this)) {
    if (op.kind != OpKind::kPrepare && op.kind != OpKind::kForm && op.kind != OpKind::kSeal &&
        op.kind != OpKind::kKeep) {
      continue;
    }
    ObeyWorker(slot, places_[slot].worker->Execute(op, kNow, *this));
    Look();
    return true;
  }
  return false;
}

bool World::IsEager(const Op& op) const {
  switch (op.kind) {
    case OpKind::kQuiesce:
      return scope_.rules.quiesce_before_answer;
    case OpKind::kMakeState:
      return op.step > 0;  // a fresh start is a move of its own
    case OpKind::kConnect:
    case OpKind::kFinalWork:
    case OpKind::kLearnUpTo:
    case OpKind::kKeep:  // what it shows could be shown since it was sealed
      return true;
    case OpKind::kBreak:
    case OpKind::kMove:
    case OpKind::kSealMove:
    case OpKind::kPrepare:
    case OpKind::kForm:
    case OpKind::kApply:
    case OpKind::kLearn:
    case OpKind::kLearnBreak:
    case OpKind::kSeal:
    case OpKind::kDurable:
    case OpKind::kName:
      return false;
  }
  return false;
}

void World::DoEagerOps() {
  for (size_t slot = 0; slot < places_.size();) {
    bool done = false;
    if (places_[slot].worker.has_value()) {
      for (const Op& op : places_[slot].worker->Enabled(*this)) {
        if (!IsEager(op)) continue;
        ObeyWorker(slot, places_[slot].worker->Execute(op, kNow, *this));
        done = true;
        break;
      }
    }
    slot = done ? 0 : slot + 1;
  }
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

// Forgets what no living process can meet again, so that states with the same future look the same.
void World::Prune() {
  std::set<Epoch> epochs;
  std::set<Incarnation> met;
  if (const View* view = coordinator_.CurrentView()) {
    for (const Member& member : view->members) met.insert(member.incarnation);
  }
  checker.ForgetStates();
  for (const Place& place : places_) {
    if (!place.worker.has_value()) continue;
    if (place.worker->state().has_value()) checker.Holds(*place.worker->state());
    if (const View* view = place.worker->mesh_view()) {
      epochs.insert(view->epoch);
      checker.Connecting(*view);
    }
    for (const auto& [directive, term] : place.down) {
      if (const auto* activate = std::get_if<Activate>(&directive)) {
        for (const Member& member : activate->view.members) met.insert(member.incarnation);
        epochs.insert(activate->view.epoch);
      }
    }
  }
  plane.Keep(epochs, met);
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
    digest.Add(static_cast<uint64_t>(place.attached | place.ending << 1));
    if (scope_.orphans > 0) {
      for (worker::TimerId timer : place.timers) digest.Add(static_cast<uint64_t>(timer));
    }
    digest.Add(place.down.size());
    for (const auto& [directive, term] : place.down) {
      digest.Add(directive);
      digest.Add(term);
    }
  }
  plane.AppendTo(&digest);
  checker.AppendTo(&digest);
  digest.Add(static_cast<uint64_t>(crashes_ | restarts_ << 4 | rejoins_ << 8 | orphans_ << 12 |
                                   switches_ << 16));
  return digest;
}

}  // namespace muster::sim
