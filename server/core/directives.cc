// Level-triggered sending: what should each worker be told, and does it show that it has followed?
#include <algorithm>
#include <set>

#include "server/core/coordinator_core.h"

namespace muster {

// The directives this worker has visibly not followed; at most one of each kind.
std::vector<Directive> CoordinatorCore::Desired(Incarnation incarnation,
                                                const Worker& worker) const {
  std::vector<Directive> desired;
  if (!worker.status_known) return desired;
  const WorkerStatus& status = worker.status;

  if (!status.job.empty() && status.job != run_.job) {
    EndJob end{status.job, JobState::kFailed, "this coordinator does not know the job",
               /*unknown=*/true};
    if (const PersistentJob* job = persistent_.FindJob(status.job)) {
      if (job->state == JobState::kQueued) return desired;  // never: one job runs at a time
      end = {status.job, job->state, job->reason};
    }
    desired.push_back(std::move(end));
    return desired;
  }

  if (IsAsked(incarnation)) {
    if (status.answered_epoch < run_.proposal->epoch) {
      Propose propose;
      propose.epoch = run_.proposal->epoch;
      propose.job = run_.job;
      propose.members = run_.proposal->group;
      propose.members.insert(propose.members.end(), run_.proposal->recruits.begin(),
                             run_.proposal->recruits.end());
      propose.sealed = run_.proposal->sealed;
      desired.push_back(std::move(propose));
    }
    return desired;
  }

  const View* view = CurrentView();
  if (view != nullptr && view->RankOf(incarnation) >= 0) {
    const PersistentJob& job = *Job();
    if (status.answered_epoch == view->epoch && status.active_epoch < view->epoch) {
      desired.push_back(*job.decision);
      return desired;
    }
    if (status.active_epoch != view->epoch) return desired;
    if (run_.pause_wanted && status.phase == WorkerPhase::kRunning) {
      desired.push_back(Pause{view->epoch});
    }
    if (status.phase == WorkerPhase::kPaused && job.sealed.has_value() &&
        status.applied == *job.sealed) {
      desired.push_back(Seal{view->epoch, *job.sealed});
    }
    if (status.durable.has_value() && job.decided_checkpoint == status.durable &&
        status.committed != status.durable) {
      desired.push_back(CommitCheckpoint{status.durable->tag});
    }
    return desired;
  }

  const bool was_member = status.phase == WorkerPhase::kQuiesced && status.has_state;
  if (status.drain_requested || (was_member && worker.self.role == MemberRole::kParameterServer)) {
    // Whoever was in the last view serves its state until the next one is in force (rule 9).
    bool needed = false;
    if (view != nullptr && was_member) {
      for (const Member& member : view->members) {
        const Worker* other = Find(member.incarnation);
        needed = needed || (other != nullptr && other->status.active_epoch < view->epoch);
      }
    }
    if (needed) return desired;
    if (status.drain_requested) {
      desired.push_back(Release{"drained"});
    } else {
      desired.push_back(Dismiss{status.job, status.seen_epoch});
    }
    return desired;
  }

  if (view != nullptr && worker.learn_source.has_value()) {
    const Rank source = view->RankOf(*worker.learn_source);
    if (source >= 0) {
      // Parameter servers are in views whose state is in shards alone.
      const bool sharded =
          view->strategy.sharded() || worker.self.role == MemberRole::kParameterServer;
      desired.push_back(Learn{run_.job, std::max(view->epoch, status.seen_epoch),
                              view->members[static_cast<size_t>(source)], sharded});
    }
  }
  return desired;
}

void CoordinatorCore::SyncDirectives() {
  const size_t learn = Directive(Learn{}).index();
  for (auto& [incarnation, worker] : workers_) {
    if (!worker.attached) continue;
    const std::vector<Directive> desired = Desired(incarnation, worker);
    std::set<size_t> kinds;
    for (const Directive& directive : desired) {
      kinds.insert(directive.index());
      Digest digest;
      digest.Add(directive);
      auto [it, is_new] = worker.sent.try_emplace(directive.index());
      Sent& sent = it->second;
      const bool same = !is_new && sent.low == digest.low() && sent.high == digest.high();
      // A learner follows as long as it learns; its status does not tell from whom.
      const bool followed =
          directive.index() == learn && worker.status.phase == WorkerPhase::kLearning;
      // Again only on a status that came later and still shows no sign of it.
      const bool again = same && !followed && worker.last_seen == now_ &&
                         now_ - sent.at >= options_.retransmit_after;
      if (same && !again) continue;
      sent = {digest.low(), digest.high(), now_};
      Emit(coordinator::SendDirective{incarnation, directive});
    }
    std::erase_if(worker.sent, [&](const auto& entry) { return !kinds.contains(entry.first); });
  }
}

}  // namespace muster
