// Joiners learn first (rule 10): who learns from whom, and who is ready to join.
#include <algorithm>
#include <map>

#include "server/core/coordinator_core.h"

namespace muster {

// A worker that may be asked to learn, or to take part in a first view.
bool CoordinatorCore::IsRecruitable(Incarnation incarnation, const Worker& worker) const {
  const View* view = CurrentView();
  if (view != nullptr && view->RankOf(incarnation) >= 0) return false;
  if (!worker.attached || worker.lapsed || !worker.status_known) return false;
  const WorkerStatus& status = worker.status;
  if (status.drain_requested) return false;
  if (!status.job.empty() && status.job != run_.job) return false;
  return status.phase == WorkerPhase::kIdle || status.phase == WorkerPhase::kLearning ||
         (status.phase == WorkerPhase::kQuiesced && status.active_epoch == 0);
}

int CoordinatorCore::MostServers() const {
  const PersistentJob& job = *Job();
  const auto most_of = [&](const Strategy& strategy, bool automatic) {
    return static_cast<int>(automatic ? kMaxServers : strategy.servers);
  };
  int most = most_of(job.asked.strategy, job.asked.automatic);
  for (size_t i = job.switches_done; i < job.plan.switches.size(); ++i) {
    const StrategySwitch& change = job.plan.switches[i];
    most = std::max(most, most_of(change.strategy, change.automatic));
  }
  return most;
}

int CoordinatorCore::ServerPlaces(const Strategy& strategy) const {
  int places = strategy.servers;
  if (const View* view = CurrentView()) {
    for (const Member& member : view->members) {
      places -= member.role == MemberRole::kParameterServer && !IsDraining(member.incarnation);
    }
  }
  return std::max(0, places);
}

void CoordinatorCore::ManageLearners() {
  const View& view = *CurrentView();
  const bool wanted = view.resume.step < Job()->plan.total_steps;
  int worker_places = wanted ? Job()->plan.max_workers - view.workers() : 0;
  // Servers for a switch to come are made ready before it.
  int server_places = wanted ? std::max(0, MostServers() - view.servers()) : 0;
  for (auto& [incarnation, worker] : workers_) {
    int& places = IsServer(incarnation) ? server_places : worker_places;
    if (places <= 0 || !IsRecruitable(incarnation, worker)) {
      worker.learn_source.reset();
      continue;
    }
    --places;
    const bool source_is_good = worker.learn_source.has_value() && !worker.learn_failed &&
                                view.RankOf(*worker.learn_source) >= 0 &&
                                !IsGone(*worker.learn_source);
    if (!source_is_good) ChooseSource(worker);
  }
}

// The member that serves the fewest learners; after a failure another than before, where there is
// one.
void CoordinatorCore::ChooseSource(Worker& learner) {
  const View& view = *CurrentView();
  std::map<Incarnation, int> load;
  for (const auto& [incarnation, worker] : workers_) {
    if (worker.learn_source.has_value()) ++load[*worker.learn_source];
  }
  const std::optional<Incarnation> former = learner.learn_source;
  const size_t size = view.members.size();
  std::optional<Incarnation> best;
  int best_load = 0;
  for (size_t i = 0; i < size; ++i) {
    const Incarnation member = view.members[(i + learner.sources_tried) % size].incarnation;
    const Worker* worker = Find(member);
    if (worker == nullptr || worker->lapsed || !worker->attached) continue;
    if (learner.learn_failed && former == member && size > 1) continue;
    if (!best.has_value() || load[member] < best_load) {
      best = member;
      best_load = load[member];
    }
  }
  if (!best.has_value()) return;  // a later event finds one
  if (learner.learn_failed) {
    ++learner.sources_tried;
    learner.sent.erase(Directive(Learn{}).index());
  }
  learner.learn_failed = false;
  learner.learn_source = best;
}

CoordinatorCore::Joiners CoordinatorCore::FindJoiners(const Strategy& strategy) const {
  Joiners joiners;
  int server_places = ServerPlaces(strategy);
  std::vector<std::pair<WorkerName, Incarnation>> ready;
  for (const auto& [incarnation, worker] : workers_) {
    if (!worker.learn_source.has_value()) continue;
    const bool server = IsServer(incarnation);
    if (server && --server_places < 0) continue;
    if (IsRecruitable(incarnation, worker) && worker.status.phase == WorkerPhase::kLearning &&
        worker.status.caught_up) {
      ready.push_back({worker.self.name, incarnation});
    } else {
      ++joiners.learning;
      joiners.learning_servers += server;
    }
  }
  std::sort(ready.begin(), ready.end());
  for (const auto& [name, incarnation] : ready) joiners.ready.push_back(incarnation);
  return joiners;
}

}  // namespace muster
