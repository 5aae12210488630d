#include "server/core/persistent.h"

#include <algorithm>

#include "base/check.h"

namespace muster {
namespace {

void Fold(const TermStarted& record, PersistentState& state) {
  state.term = record.term;
  state.fleet_id = record.fleet_id;
}

void Fold(const EpochReserved& record, PersistentState& state) {
  state.epoch = std::max(state.epoch, record.epoch);
}

void Fold(const MemberEvicted& record, PersistentState& state) {
  state.evicted.push_back(record.incarnation);
}

void Fold(const DecisionMade& record, PersistentState& state) {
  const View& view = record.activate.view;
  state.epoch = std::max(state.epoch, view.epoch);
  if (PersistentJob* job = state.FindJob(view.job)) {
    if (job->asked.automatic &&
        (!job->decision.has_value() || job->decision->view.strategy != view.strategy)) {
      job->strategy_since = view.resume.step;
      job->strategy_changes += job->decision.has_value();
    }
    job->decision = record.activate;
    job->branch = std::max(job->branch, view.resume.branch);
    if (job->sealed.has_value() && *job->sealed != view.resume) job->sealed.reset();
  }
}

void Fold(const ViewDissolved& record, PersistentState& state) {
  if (PersistentJob* job = state.FindJob(record.job)) {
    job->decision.reset();
    job->decided_checkpoint.reset();
    job->sealed.reset();
  }
}

void Fold(const JobAdded& record, PersistentState& state) {
  PersistentJob job;
  job.plan = record.plan;
  job.request_id = record.request_id;
  job.asked = {record.plan.strategy, record.plan.automatic};
  state.jobs.push_back(std::move(job));
}

void Fold(const JobEnded& record, PersistentState& state) {
  if (PersistentJob* job = state.FindJob(record.job)) {
    job->state = record.outcome;
    job->reason = record.reason;
  }
}

void Fold(const CheckpointDecided& record, PersistentState& state) {
  if (PersistentJob* job = state.FindJob(record.job)) job->decided_checkpoint = record.report;
}

void Fold(const CheckpointNamed& record, PersistentState& state) {
  if (PersistentJob* job = state.FindJob(record.job)) job->newest_checkpoint = record.report;
}

void Fold(const SealDecided& record, PersistentState& state) {
  if (PersistentJob* job = state.FindJob(record.job)) job->sealed = record.tag;
}

void Fold(const StrategyChosen& record, PersistentState& state) {
  if (PersistentJob* job = state.FindJob(record.job)) {
    job->asked = {record.strategy, record.automatic};
    job->switches_done = record.switches_done;
  }
}

}  // namespace

PersistentJob* PersistentState::FindJob(const JobId& id) {
  for (PersistentJob& job : jobs) {
    if (job.plan.id == id) return &job;
  }
  return nullptr;
}

const PersistentJob* PersistentState::FindJob(const JobId& id) const {
  return const_cast<PersistentState*>(this)->FindJob(id);
}

void Apply(const PersistentRecord& record, const PersistentLimits& limits, PersistentState* state) {
  std::visit([state](const auto& r) { Fold(r, *state); }, record);
  while (state->evicted.size() > limits.evictions) state->evicted.pop_front();
  // Forget the oldest ended jobs; one that is queued or runs is never forgotten.
  while (state->jobs.size() > limits.jobs) {
    auto ended = std::find_if(state->jobs.begin(), state->jobs.end(), [](const PersistentJob& job) {
      return job.state != JobState::kQueued;
    });
    if (ended == state->jobs.end()) break;
    state->jobs.erase(ended);
  }
}

}  // namespace muster
