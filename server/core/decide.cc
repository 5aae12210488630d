#include "server/core/decide.h"

#include "absl/strings/str_format.h"
#include "base/check.h"
#include "base/control/placement.h"

namespace muster {
namespace {

std::string Describe(const StateTag& tag) {
  return absl::StrFormat("step %d (branch %d, reduced in epoch %d)", tag.step, tag.branch,
                         tag.epoch);
}

bool Newer(const StateTag& a, const StateTag& b, bool compare_whole_tags) {
  return compare_whole_tags ? a > b : a.step > b.step;
}

// The record that made `tag`, if an answer or the last decision holds it.
std::optional<CommitRecord> FindRecord(const StateTag& tag, const std::vector<Answer>& answers,
                                       const Activate& last) {
  for (const Answer& answer : answers) {
    if (answer.has_state && answer.applied == tag && answer.record.has_value() &&
        answer.record->step == tag.step && answer.record->epoch == tag.epoch) {
      return answer.record;
    }
  }
  if (last.view.resume == tag) return last.roll_forward;
  return std::nullopt;
}

// Prepared exactly the step that made `tag`, on top of its predecessor.
bool CanRollForward(const Answer& answer, const StateTag& tag) {
  return answer.has_state && answer.applied.branch == tag.branch &&
         answer.applied.step + 1 == tag.step && answer.prepared.has_value() &&
         answer.prepared->step == tag.step && answer.prepared->epoch == tag.epoch;
}

}  // namespace

bool SameState(const StateTag& a, const StateTag& b, bool compare_whole_tags) {
  return compare_whole_tags ? a == b : a.step == b.step;
}

const char* Name(Verdict verdict) {
  switch (verdict) {
    case Verdict::kResume:
      return "resume";
    case Verdict::kRollForward:
      return "roll forward";
    case Verdict::kStartAgain:
      return "start again";
    case Verdict::kUnreachable:
      return "unreachable";
  }
  return "unknown";
}

Decision Decide(const std::vector<Answer>& answers, const Activate& last, bool compare_whole_tags) {
  MUSTER_CHECK(!answers.empty()) << "a decision needs an answer of the last view's commit group";
  Decision decision;
  decision.resume = last.view.resume;
  for (const Answer& answer : answers) {
    if (answer.has_state && Newer(answer.applied, decision.resume, compare_whole_tags)) {
      decision.resume = answer.applied;
    }
  }
  const std::optional<CommitRecord> record = FindRecord(decision.resume, answers, last);
  const bool fresh_start_open = last.fresh_start.has_value() && last.view.resume == decision.resume;

  size_t holders = 0;
  size_t rolled = 0;
  size_t discarded = 0;
  for (const Answer& answer : answers) {
    if (answer.has_state && SameState(answer.applied, decision.resume, compare_whole_tags)) {
      decision.able.push_back(answer.worker);
      decision.holding.push_back(answer.worker);
      ++holders;
      if (answer.prepared.has_value()) ++discarded;
    } else if (record.has_value() && CanRollForward(answer, decision.resume)) {
      decision.able.push_back(answer.worker);
      decision.holding.push_back(answer.worker);
      decision.roll_forward = record;
      ++rolled;
    } else if (fresh_start_open) {
      decision.able.push_back(answer.worker);
      decision.fresh_start = last.fresh_start;
    }
  }

  const size_t lost = answers.size() - decision.able.size();
  if (decision.able.empty()) {
    decision.verdict = Verdict::kUnreachable;
    decision.reason = absl::StrFormat("none of %d answers can reach %s", answers.size(),
                                      Describe(decision.resume));
    return decision;
  }
  if (decision.fresh_start.has_value()) {
    decision.verdict = Verdict::kStartAgain;
    decision.reason = absl::StrFormat("the fresh start of %s goes on", Describe(decision.resume));
  } else if (rolled > 0) {
    decision.verdict = Verdict::kRollForward;
    decision.reason =
        holders > 0 ? absl::StrFormat("%d of %d hold the record of %s, %d roll forward", holders,
                                      answers.size(), Describe(decision.resume), rolled)
                    : absl::StrFormat("the last decision rolls %d forward to %s", rolled,
                                      Describe(decision.resume));
  } else {
    decision.verdict = Verdict::kResume;
    decision.reason = absl::StrFormat("all go on from %s", Describe(decision.resume));
    if (discarded > 0) {
      absl::StrAppendFormat(&decision.reason,
                            "; nobody holds the record of the next step, which is done again");
    }
  }
  if (lost > 0) absl::StrAppendFormat(&decision.reason, "; %d cannot reach it and leave", lost);
  return decision;
}

std::optional<MoveSource> FindSource(const std::vector<Answer>& holding, const Activate& last) {
  std::vector<MoveSource> candidates;
  const auto add_map_of = [&](const View& view) {
    if (!view.strategy.sharded()) return;
    MoveSource source{view, {}};
    for (const Answer& answer : holding) {
      if (answer.holdings.Has(view.epoch) && view.RankOf(answer.worker) >= 0) {
        source.givers.push_back(answer.worker);
      }
    }
    candidates.push_back(std::move(source));
  };
  if (last.move.has_value()) add_map_of(last.move->view);
  // Whoever holds everything is in the last view, whatever it had moved to it.
  MoveSource whole{last.view, {}};
  whole.view.strategy = Strategy();
  whole.view.members.clear();
  whole.view.leaving.clear();
  for (const Answer& answer : holding) {
    const Rank rank = last.view.RankOf(answer.worker);
    if (!answer.holdings.whole || rank < 0) continue;
    whole.view.members.push_back(last.view.members[static_cast<size_t>(rank)]);
    whole.givers.push_back(answer.worker);
  }
  if (!whole.givers.empty()) candidates.push_back(std::move(whole));
  add_map_of(last.view);

  // What is not chosen is dropped, so first one that every survivor holds its part of: once
  // somebody has adopted the newer, which all hold then, he has nothing of the older. Then the one
  // with the most copies of each shard. Of equal ones the older, which was certainly complete once:
  // the death of one who only holds the newer then costs nothing.
  std::optional<MoveSource> best;
  std::pair<bool, int> best_rank = {false, 0};
  for (MoveSource& candidate : candidates) {
    const int copies = LeastHolders(candidate.view, candidate.givers);
    const std::pair<bool, int> rank = {candidate.givers.size() == holding.size(), copies};
    if (copies == 0 || rank <= best_rank) continue;
    best_rank = rank;
    best = std::move(candidate);
  }
  return best;
}

}  // namespace muster
