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

void CoordinatorCore::ManageLearners() {
  const View& view = *CurrentView();
  const bool wanted = view.resume.step < Job()->plan.total_steps;
  int places = wanted ? Job()->plan.max_workers - static_cast<int>(view.members.size()) : 0;
  for (auto& [incarnation, worker] : workers_) {
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

std::vector<Incarnation> CoordinatorCore::ReadyLearners() const {
  std::vector<std::pair<WorkerName, Incarnation>> ready;
  for (const auto& [incarnation, worker] : workers_) {
    if (worker.learn_source.has_value() && IsRecruitable(incarnation, worker) &&
        worker.status.phase == WorkerPhase::kLearning && worker.status.caught_up) {
      ready.push_back({worker.self.name, incarnation});
    }
  }
  std::sort(ready.begin(), ready.end());
  std::vector<Incarnation> out;
  for (const auto& [name, incarnation] : ready) out.push_back(incarnation);
  return out;
}

}  // namespace muster
