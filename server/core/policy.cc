// The strategy of the next view: as asked for, or chosen here of what members have told.
//
// What is chosen stands in the view alone. So it is persisted with the decision before anybody is
// told (rule 13), in force on all members or on none (rule 16), and a restarted coordinator goes on
// from it: what was not decided is chosen again.
#include <algorithm>

#include "absl/strings/str_format.h"
#include "base/check.h"
#include "server/core/coordinator_core.h"

namespace muster {

namespace {

// 2 to this power times the least number of steps is more than any job has.
constexpr int kMostDoublings = 32;

void Add(const StateSize& size, Digest* digest) {
  digest->Add(static_cast<uint64_t>(size.elements));
  digest->Add(static_cast<uint64_t>(size.largest_block));
  digest->Add(static_cast<uint64_t>(size.gathered_blocks) << 32 |
              static_cast<uint64_t>(size.carried_bytes));
  digest->Add(static_cast<uint64_t>(size.bucket));
  digest->Add(static_cast<uint64_t>(size.slots) << 32 | static_cast<uint64_t>(size.micro_batches));
  digest->Add(static_cast<uint64_t>(size.parameter_bytes) << 32 |
              static_cast<uint64_t>(size.gradient_bytes));
}

}  // namespace

// All ranks of a mesh go by the same numbers, whoever tells them.
void CoordinatorCore::NoteResources(const WorkerStatus& status) {
  if (run_.job.empty() || status.job != run_.job) return;
  if (status.state_size.has_value()) run_.state_size = status.state_size;
  const View* view = CurrentView();
  if (view != nullptr && status.active_epoch == view->epoch && status.links.has_value()) {
    run_.links = status.links;
  }
}

CoordinatorCore::Crew CoordinatorCore::CrewToCome() const {
  Crew crew;
  for (const Member& member : CurrentView()->members) {
    const bool stays = !IsDraining(member.incarnation) && !IsGone(member.incarnation);
    if (stays) crew.push_back(member.incarnation);
  }
  Strategy every;
  every.servers = kMaxServers;
  const std::vector<Incarnation> ready = FindJoiners(every).ready;
  crew.insert(crew.end(), ready.begin(), ready.end());
  return crew;
}

CoordinatorCore::Crew CoordinatorCore::EverybodyHere() const {
  Crew crew;
  const View* view = CurrentView();
  for (const auto& [incarnation, worker] : workers_) {
    const bool member = view != nullptr && view->RankOf(incarnation) >= 0;
    const bool may_join = IsServer(incarnation) || view == nullptr;
    if (member ? !IsDraining(incarnation) && !IsGone(incarnation)
               : may_join && IsRecruitable(incarnation, worker)) {
      crew.push_back(incarnation);
    }
  }
  return crew;
}

Step CoordinatorCore::NewestStep() const {
  const View& view = *CurrentView();
  Step newest = view.resume.step;
  for (const Member& member : view.members) {
    const Worker* worker = Find(member.incarnation);
    if (worker == nullptr || !worker->status_known) continue;
    if (worker->status.active_epoch == view.epoch) {
      newest = std::max(newest, worker->status.applied.step);
    }
  }
  return newest;
}

// Numbers measured in one view may say the opposite of those of the next. With a wait that doubles,
// a job changes no more often than the logarithm of its steps.
bool CoordinatorCore::Settled(Step step) const {
  const PersistentJob& job = *Job();
  const int doublings = std::min(job.strategy_changes, kMostDoublings);
  return CurrentView() == nullptr ||
         std::max(step, NewestStep()) - job.strategy_since >= options_.strategy_steps << doublings;
}

ChoiceInputs CoordinatorCore::InputsOf(const AskedStrategy& asked, Step step,
                                       const Crew& crew) const {
  ChoiceInputs inputs;
  inputs.size = *run_.state_size;
  int workers = 0;
  for (const Incarnation incarnation : crew) {
    const Worker& worker = *Find(incarnation);
    const bool serves = worker.self.role == MemberRole::kParameterServer;
    if (!serves && ++workers > Job()->plan.max_workers) continue;
    inputs.crew.push_back({.name = worker.self.name,
                           .role = worker.self.role,
                           .host = worker.self.host,
                           .memory = worker.memory});
  }
  inputs.links = run_.links;
  inputs.base = asked.strategy;
  if (const View* view = CurrentView()) inputs.in_force = view->strategy;
  inputs.settled = Settled(step);
  inputs.least_gain = options_.strategy_gain;
  return inputs;
}

const StrategyChoice* CoordinatorCore::Choose(Step step, const Crew& crew) const {
  const AskedStrategy asked = AskedAfter(step);
  const bool has_worker = std::any_of(
      crew.begin(), crew.end(), [this](Incarnation incarnation) { return !IsServer(incarnation); });
  if (!asked.automatic || !run_.state_size.has_value() || !has_worker) return nullptr;
  // Of an incarnation name, host and memory do not change.
  Digest digest;
  Add(*run_.state_size, &digest);
  digest.Add(crew.size());
  for (const Incarnation incarnation : crew) digest.Add(incarnation);
  digest.Add(run_.links);
  digest.Add(asked.strategy);
  const View* view = CurrentView();
  digest.Add(view != nullptr ? std::optional(view->strategy) : std::nullopt);
  digest.Add(static_cast<uint64_t>(Settled(step)));
  if (!choice_made_.has_value() || choice_made_->low != digest.low() ||
      choice_made_->high != digest.high()) {
    choice_made_ = {digest.low(), digest.high(), ChooseStrategy(InputsOf(asked, step, crew))};
  }
  return &choice_made_->choice;
}

Strategy CoordinatorCore::StrategyFor(Step step, const Crew& crew) const {
  const AskedStrategy asked = AskedAfter(step);
  if (!asked.automatic) return asked.strategy;
  if (const StrategyChoice* choice = Choose(step, crew)) return choice->strategy;
  const View* view = CurrentView();
  return view != nullptr ? view->strategy : asked.strategy;
}

std::string CoordinatorCore::Oversize(Step step, const Crew& crew) const {
  const StrategyChoice* choice = Choose(step, crew);
  return choice != nullptr && choice->cause == ChoiceCause::kNothingFits ? choice->reason : "";
}

void CoordinatorCore::NoteChoice(Step step, const Crew& crew) {
  const StrategyChoice* choice = Choose(step, crew);
  if (choice == nullptr) return;
  const View* view = CurrentView();
  const bool changes = view == nullptr || view->strategy != choice->strategy;
  if (!changes && !run_.strategy_reason.empty()) return;
  run_.strategy_reason = choice->reason;
  Note(coordinator::Severity::kInfo,
       absl::StrFormat("strategy (%s): %s", Name(choice->cause), choice->reason));
}

absl::StatusOr<StrategyChoice> CoordinatorCore::ExplainStrategy(const JobId& id) const {
  if (id != run_.job) {
    return absl::FailedPreconditionError(absl::StrCat(
        "job ", id, " does not run now, and strategies are explained for the one that does",
        run_.job.empty() ? "" : absl::StrCat(": ", run_.job)));
  }
  const Crew crew = EverybodyHere();
  if (std::all_of(crew.begin(), crew.end(), [this](Incarnation i) { return IsServer(i); })) {
    return absl::FailedPreconditionError(
        "none of the job's workers is here, and what a strategy takes depends on who is; ask again "
        "when workers have joined");
  }
  if (!run_.state_size.has_value()) {
    return absl::FailedPreconditionError(
        "no worker has said yet how large the job's state is; ask again when it has begun");
  }
  const Step step = CurrentView() != nullptr ? NewestStep() : 0;
  return ChooseStrategy(InputsOf(AskedAfter(step), step, crew));
}

absl::Status CoordinatorCore::CheckStrategyFits(const JobId& id, const Strategy& strategy) const {
  if (id != run_.job || CurrentView() == nullptr) return absl::OkStatus();
  const bool needs_one_host = strategy.transport == SyncTransport::kSharedMemory ||
                              strategy.algorithm == SyncAlgorithm::kWindow;
  const std::vector<Member>& members = CurrentView()->members;
  for (const Member& member : members) {
    if (!needs_one_host || member.host == members.front().host) continue;
    return absl::FailedPreconditionError(absl::StrCat(
        "shared memory (transport SHARED_MEMORY, algorithm WINDOW) is for members of one host; ",
        members.front().name, " is on ", members.front().host, " and ", member.name, " on ",
        member.host, ". Without a transport members of each host share memory all the same"));
  }
  if (!run_.state_size.has_value()) return absl::OkStatus();
  const ChoiceInputs inputs = InputsOf({strategy, false}, 0, EverybodyHere());
  if (SizeOf(inputs.crew).workers == 0) return absl::OkStatus();
  return CheckFits(inputs, strategy);
}

void CoordinatorCore::AddPolicyTo(Digest* digest) const {
  digest->Add(static_cast<uint64_t>(run_.state_size.has_value()));
  if (run_.state_size.has_value()) Add(*run_.state_size, digest);
  digest->Add(run_.links);
  const PersistentJob* job = Job();
  if (job == nullptr) return;
  const bool automatic = job->asked.automatic ||
                         std::any_of(job->plan.switches.begin(), job->plan.switches.end(),
                                     [](const StrategySwitch& change) { return change.automatic; });
  if (!automatic) return;
  digest->Add(static_cast<uint64_t>(job->strategy_since));
  digest->Add(static_cast<uint64_t>(job->strategy_changes));
  digest->Add(static_cast<uint64_t>(Settled(job->strategy_since)));
}

}  // namespace muster
