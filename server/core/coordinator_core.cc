#include "server/core/coordinator_core.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace muster {

using coordinator::Actions;
using coordinator::TimerId;
using coordinator::TimerKind;

namespace {
// Advance() settles in a few rounds; more would only be left to the next event.
constexpr int kMostRounds = 8;
// A learner's failures only choose among the members; this many divide by every small view's size.
constexpr uint64_t kSourcesPeriod = 12;

// What a worker holds matters to decisions only while it is at rest.
void AddWhatCounts(const WorkerStatus& status, Digest* digest) {
  WorkerStatus copy = status;
  const bool at_rest = status.phase == WorkerPhase::kQuiesced ||
                       status.phase == WorkerPhase::kPaused ||
                       status.phase == WorkerPhase::kFinished;
  if (!at_rest) {
    copy.applied = copy.stable = {};
    copy.prepared.reset();
    copy.record.reset();
  }
  copy.stable = {};  // only shown
  digest->Add(copy);
}
}  // namespace

CoordinatorCore::CoordinatorCore(CoordinatorOptions options, PersistentState state)
    : options_(std::move(options)), persistent_(std::move(state)) {
  limits_.evictions = static_cast<size_t>(options_.max_remembered_evictions);
  limits_.jobs = static_cast<size_t>(options_.max_jobs);
}

Actions CoordinatorCore::Start(absl::Time now) {
  now_ = now;
  actions_.clear();
  TermStarted started;
  started.term = persistent_.term + 1;
  started.fleet_id = persistent_.fleet_id.empty() ? options_.fleet_id : persistent_.fleet_id;
  Record(started);
  StartNextJob();
  // Members of the view in force are expected back (rule 13): nobody is declared dead before a
  // lease and the largest back-off have passed.
  if (const View* view = CurrentView()) {
    for (const Member& member : view->members) {
      if (IsEvicted(member.incarnation)) continue;
      Worker& worker = workers_[member.incarnation];
      worker.self = member;
      worker.restart_grace = true;
      RenewLease(member.incarnation, worker, options_.lease + options_.largest_backoff);
    }
  }
  Advance();
  return std::exchange(actions_, {});
}

Actions CoordinatorCore::Handle(const coordinator::Event& event, absl::Time now) {
  now_ = now;
  actions_.clear();
  std::visit([this](const auto& e) { On(e); }, event);
  Advance();
  // Persist before send (rule 13): all records of one call stand before everything else, so that a
  // store may write them in one transaction.
  std::stable_partition(actions_.begin(), actions_.end(), [](const coordinator::Action& action) {
    return std::holds_alternative<coordinator::Persist>(action);
  });
  return std::exchange(actions_, {});
}

void CoordinatorCore::Advance() {
  for (int round = 0; round < kMostRounds; ++round) {
    changed_ = false;
    AdvanceOnce();
    if (!changed_) break;
  }
  SyncDirectives();
}

void CoordinatorCore::AdvanceOnce() {
  StartNextJob();
  if (Job() == nullptr) return;
  WatchFailures();
  if (Job() == nullptr) return;
  WatchCheckpoints();
  if (run_.proposal.has_value()) {
    AdvanceProposal();
  } else if (CurrentView() != nullptr) {
    KeepView();
  } else {
    StartView();
  }
}

void CoordinatorCore::On(const coordinator::TimerFired& event) {
  switch (event.id.kind) {
    case TimerKind::kLease:
      return OnLease(event.id.worker);
    case TimerKind::kReattach:
      return OnReattachGrace(event.id.worker);
    case TimerKind::kCollect:
      if (run_.proposal.has_value()) run_.proposal->collected = true;
      return;
    case TimerKind::kLearnerAnswer:
      if (run_.proposal.has_value()) run_.proposal->recruit_deadline_over = true;
      return;
    case TimerKind::kPauseBatch:
      run_.pause_batch_armed = false;
      run_.pause_wanted = CurrentView() != nullptr && ChangeIsDue();
      return;
    case TimerKind::kStart:
      run_.start_over = true;
      return;
    case TimerKind::kOrphan:
      return OnOrphanTimeout();
    case TimerKind::kDrainCheckpoint:
      run_.drain_armed = false;
      Dissolve("the last member left before its state was durable");
      return;
    case TimerKind::kLinkWindow:
      run_.link_window_armed = false;
      run_.link_faults.clear();
      return;
  }
}

void CoordinatorCore::Emit(coordinator::Action action) { actions_.push_back(std::move(action)); }

void CoordinatorCore::Record(PersistentRecord record) {
  Apply(record, limits_, &persistent_);
  Emit(coordinator::Persist{std::move(record)});
}

void CoordinatorCore::Note(coordinator::Severity severity, std::string text) {
  Emit(coordinator::Log{severity, std::move(text)});
}

void CoordinatorCore::SetTimer(TimerKind kind, absl::Duration after, Incarnation worker) {
  Emit(coordinator::SetTimer{TimerId{kind, worker}, now_ + after});
}

void CoordinatorCore::CancelTimer(TimerKind kind, Incarnation worker) {
  Emit(coordinator::CancelTimer{TimerId{kind, worker}});
}

const View* CoordinatorCore::CurrentView() const {
  const PersistentJob* job = Job();
  return job != nullptr && job->decision.has_value() ? &job->decision->view : nullptr;
}

std::vector<MemberInfo> CoordinatorCore::Members() const {
  std::vector<MemberInfo> members;
  const View* view = CurrentView();
  for (const auto& [incarnation, worker] : workers_) {
    MemberInfo info;
    info.member = worker.self;
    info.software_version = worker.software_version;
    info.attached = worker.attached;
    info.rank = view == nullptr ? -1 : view->RankOf(incarnation);
    info.status = worker.status;
    info.last_seen = worker.last_seen;
    members.push_back(std::move(info));
  }
  std::stable_sort(members.begin(), members.end(), [](const MemberInfo& a, const MemberInfo& b) {
    return a.member.name < b.member.name;
  });
  return members;
}

std::vector<RankReport> CoordinatorCore::RankReports() const {
  std::vector<RankReport> reports;
  const View* view = CurrentView();
  if (view == nullptr) return reports;
  for (const Member& member : view->members) {
    RankReport& report = reports.emplace_back();
    report.worker = member.name;
    const Worker* worker = Find(member.incarnation);
    if (worker == nullptr) continue;
    report.heard_at = worker->last_seen;
    if (worker->status.active_epoch == view->epoch) report.wait = worker->status.wait;
  }
  return reports;
}

size_t CoordinatorCore::TableEntries() const {
  size_t entries = workers_.size() + shown_.size() + persistent_.jobs.size() +
                   persistent_.evicted.size() + run_.change.workers.size() +
                   run_.link_faults.size() + run_.broken_links.size();
  for (const auto& [incarnation, worker] : workers_) entries += worker.sent.size();
  return entries;
}

void CoordinatorCore::AppendTo(Digest* digest) const {
  digest->Add(persistent_.term);
  digest->Add(persistent_.epoch);
  digest->Add(heard_epoch_);
  // Evictions are a set: their order only matters for forgetting.
  std::vector<Incarnation> evicted(persistent_.evicted.begin(), persistent_.evicted.end());
  std::sort(evicted.begin(), evicted.end());
  digest->Add(evicted.size());
  for (Incarnation incarnation : evicted) digest->Add(incarnation);
  digest->Add(persistent_.jobs.size());
  for (const PersistentJob& job : persistent_.jobs) {
    digest->Add(job.plan.id);
    digest->Add(static_cast<uint64_t>(job.state));
    digest->Add(job.branch);
    digest->Add(job.decision.has_value());
    if (job.decision.has_value()) digest->Add(Directive(*job.decision));
    digest->Add(job.decided_checkpoint);
    digest->Add(job.newest_checkpoint);
    digest->Add(job.sealed);
    digest->Add(job.asked.strategy);
    digest->Add(job.switches_done << 1 | static_cast<uint64_t>(job.asked.automatic));
  }
  digest->Add(workers_.size());
  for (const auto& [incarnation, worker] : workers_) {
    digest->Add(incarnation);
    digest->Add(worker.attached | worker.lapsed << 1 | worker.grace_over << 2 |
                worker.grace_armed << 3 | worker.restart_grace << 4 | worker.status_known << 5 |
                worker.learn_failed << 6);
    AddWhatCounts(worker.status, digest);
    digest->Add(worker.learn_source);
    digest->Add(worker.sources_tried % kSourcesPeriod);
    for (const auto& [kind, sent] : worker.sent) {
      digest->Add(kind);
      digest->Add(sent.low);
    }
  }
  digest->Add(run_.job);
  digest->Add(static_cast<uint64_t>(run_.state));
  digest->Add(run_.start_armed | run_.start_over << 1 | run_.pause_wanted << 2 |
              run_.pause_batch_armed << 3 | run_.lost << 4 | run_.drain_armed << 5 |
              run_.link_window_armed << 6 |
              (run_.broken_somewhere || !run_.broken_links.empty()) << 7);
  digest->Add(run_.proposal.has_value());
  if (run_.proposal.has_value()) {
    const Proposal& proposal = *run_.proposal;
    digest->Add(proposal.epoch);
    digest->Add(proposal.group.size());
    for (Incarnation incarnation : proposal.group) digest->Add(incarnation);
    for (Incarnation incarnation : proposal.recruits) digest->Add(incarnation);
    digest->Add(proposal.sealed);
    digest->Add(proposal.recruit_deadline_over | proposal.collect_armed << 1 |
                proposal.collected << 2);
  }
  for (const auto& [link, faults] : run_.link_faults) {
    digest->Add(link.first);
    digest->Add(link.second);
    digest->Add(static_cast<uint64_t>(faults));
  }
  AddPolicyTo(digest);
  if (options_.link_faults_before_eviction <= 0) return;
  for (const Link& link : run_.broken_links) {
    digest->Add(link.first);
    digest->Add(link.second);
  }
}

}  // namespace muster
