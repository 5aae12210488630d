#include "server/core/straggler.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace muster {
namespace {

// Who waits for whom.
class WaitGraph {
 public:
  WaitGraph(absl::Span<const RankReport> ranks, const StragglerOptions& options, absl::Time now)
      : ranks_(ranks),
        options_(options),
        now_(now),
        waits_for_(ranks.size()),
        waited_for_(ranks.size()) {
    for (size_t r = 0; r < ranks.size(); ++r) {
      if (IsSilent(r) || !ranks[r].wait.has_value()) continue;
      for (const Rank peer : ranks[r].wait->waits_for) {
        const auto p = static_cast<size_t>(peer);
        if (peer < 0 || p >= ranks.size() || p == r) continue;
        waits_for_[r].push_back(p);
        waited_for_[p].push_back(r);
      }
    }
  }

  bool IsSilent(size_t r) const { return now_ - ranks_[r].heard_at > options_.silent_after; }
  bool IsWaiting(size_t r) const { return !waits_for_[r].empty(); }
  bool IsLate(size_t r) const { return IsWaiting(r) && ranks_[r].wait->late; }
  // How long rank r, which waits, has done so by now.
  absl::Duration Waited(size_t r) const {
    return absl::Milliseconds(ranks_[r].wait->waited_ms) + (now_ - ranks_[r].heard_at);
  }
  const std::vector<size_t>& WaitsFor(size_t r) const { return waits_for_[r]; }
  const std::vector<size_t>& WaitedForBy(size_t r) const { return waited_for_[r]; }

  // All ranks that wait for `rank`, by way of others included, ascending.
  std::vector<size_t> AllWaiting(size_t rank) const {
    std::vector<bool> seen(ranks_.size());
    std::vector<size_t> found, queue = {rank};
    while (!queue.empty()) {
      const size_t at = queue.back();
      queue.pop_back();
      for (const size_t waiter : waited_for_[at]) {
        if (seen[waiter] || waiter == rank) continue;
        seen[waiter] = true;
        found.push_back(waiter);
        queue.push_back(waiter);
      }
    }
    std::sort(found.begin(), found.end());
    return found;
  }

  // Of those, the one that has waited longest. Requires: there is one.
  size_t Longest(const std::vector<size_t>& waiters) const {
    return *std::max_element(waiters.begin(), waiters.end(),
                             [this](size_t a, size_t b) { return Waited(a) < Waited(b); });
  }

  Straggler Make(size_t rank, Straggler::Cause cause, size_t waiter) const {
    const CollectiveWait& wait = *ranks_[waiter].wait;
    Straggler straggler{.rank = static_cast<Rank>(rank),
                        .worker = ranks_[rank].worker,
                        .cause = cause,
                        .operation = wait.operation,
                        .label = wait.label,
                        .step = wait.step,
                        .waiter = static_cast<Rank>(waiter),
                        .held_up = Waited(waiter),
                        .unheard = now_ - ranks_[rank].heard_at};
    for (const size_t r : AllWaiting(rank)) straggler.waiting.push_back(static_cast<Rank>(r));
    return straggler;
  }

  // A rank that lives and has said nothing of waiting: whether it would have, by now.
  bool WouldHaveSaid(size_t rank, size_t waiter) const {
    return ranks_[rank].heard_at >= now_ - Waited(waiter) + options_.settle;
  }

 private:
  const absl::Span<const RankReport> ranks_;
  const StragglerOptions& options_;
  const absl::Time now_;
  std::vector<std::vector<size_t>> waits_for_;
  std::vector<std::vector<size_t>> waited_for_;
};

}  // namespace

std::vector<Straggler> FindStragglers(absl::Span<const RankReport> ranks,
                                      const StragglerOptions& options, absl::Time now) {
  const WaitGraph graph(ranks, options, now);
  std::vector<Straggler> found;
  std::vector<bool> explained(ranks.size());  // leads to an end, be it known or not yet
  for (size_t r = 0; r < ranks.size(); ++r) {
    if (graph.IsWaiting(r) || graph.WaitedForBy(r).empty()) continue;
    bool late = false;
    for (const size_t waiter : graph.AllWaiting(r)) {
      explained[waiter] = true;
      late = late || graph.IsLate(waiter);
    }
    if (!late) continue;
    const size_t waiter = graph.Longest(graph.WaitedForBy(r));
    if (graph.IsSilent(r)) {
      found.push_back(graph.Make(r, Straggler::Cause::kSilent, waiter));
    } else if (graph.WouldHaveSaid(r, waiter)) {
      found.push_back(graph.Make(r, Straggler::Cause::kBusy, waiter));
    }
  }
  // The rest wait in circles. Who began to wait first has not got what it waits for.
  std::vector<size_t> circle;
  bool late = false;
  for (size_t r = 0; r < ranks.size(); ++r) {
    if (!graph.IsWaiting(r) || explained[r]) continue;
    circle.push_back(r);
    late = late || graph.IsLate(r);
  }
  if (late) {
    const size_t waiter = graph.Longest(circle);
    found.push_back(graph.Make(graph.WaitsFor(waiter).front(), Straggler::Cause::kLink, waiter));
  }
  std::stable_sort(found.begin(), found.end(),
                   [](const Straggler& a, const Straggler& b) { return a.held_up > b.held_up; });
  return found;
}

std::string Describe(const Straggler& straggler) {
  std::string what =
      straggler.label.empty() ? straggler.operation : absl::StrCat("'", straggler.label, "'");
  if (straggler.step != 0) absl::StrAppend(&what, " of step ", straggler.step);
  std::string text =
      absl::StrFormat("%s (rank %d) holds up %d rank%s: %s has waited %.1f s for it on rank %d%s; ",
                      straggler.worker, straggler.rank, straggler.waiting.size(),
                      straggler.waiting.size() == 1 ? "" : "s", what,
                      absl::ToDoubleSeconds(straggler.held_up), straggler.waiter,
                      straggler.label.empty() ? "" : absl::StrCat(" (", straggler.operation, ")"));
  switch (straggler.cause) {
    case Straggler::Cause::kBusy:
      absl::StrAppend(&text, "it lives and waits for nobody: it has not come so far yet");
      break;
    case Straggler::Cause::kSilent:
      if (straggler.unheard == absl::InfiniteDuration()) {
        absl::StrAppend(&text, "it is out of the fleet");
        break;
      }
      absl::StrAppendFormat(&text,
                            "nothing has been heard of it for %.1f s: it is stopped, or its host "
                            "or network is",
                            absl::ToDoubleSeconds(straggler.unheard));
      break;
    case Straggler::Cause::kLink:
      absl::StrAppend(&text, "it lives and waits as well, so that what it sent to rank ",
                      straggler.waiter, " does not arrive: look at the network between them");
      break;
  }
  return text;
}

std::vector<StragglerWatch::Event> StragglerWatch::Update(std::vector<Straggler> found,
                                                          absl::Time now) {
  std::vector<Event> events;
  for (auto it = open_.begin(); it != open_.end();) {
    const auto same = [&](const Straggler& straggler) { return straggler.worker == it->first; };
    if (std::any_of(found.begin(), found.end(), same)) {
      ++it;
      continue;
    }
    events.push_back({.over = true,
                      .straggler = std::move(it->second.straggler),
                      .lasted = now - it->second.since,
                      .has_line = it->second.has_line});
    it = open_.erase(it);
  }
  std::erase_if(lines_, [&](const auto& line) {
    const absl::Duration age = now - line.second.at;
    return age >= kLineInterval && (line.second.without == 0 || age >= 10 * kLineInterval);
  });
  for (const Straggler& straggler : found) {
    const auto [it, begins] = open_.try_emplace(straggler.worker);
    Open& open = it->second;
    open.straggler = straggler;
    if (!begins) continue;
    open.since = now - straggler.held_up;
    Event event{.straggler = straggler, .lasted = straggler.held_up};
    const auto [line, first] = lines_.try_emplace(straggler.worker, Line{.at = now});
    if (!first && now - line->second.at < kLineInterval) {
      event.has_line = false;
      ++line->second.without;
    } else {
      event.without_line = line->second.without;
      line->second = Line{.at = now};
    }
    open.has_line = event.has_line;
    events.push_back(std::move(event));
  }
  current_ = std::move(found);
  return events;
}

}  // namespace muster
