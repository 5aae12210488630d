#include "server/core/choose_strategy.h"

#include <algorithm>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/check.h"
#include "base/control/strategy_algorithm.h"
#include "base/text.h"

namespace muster {
namespace {

// Of candidates that differ by no more than this the simplest is taken.
constexpr double kTie = 0.02;

constexpr char kRemedy[] =
    "add workers or parameter servers, give members more memory (muster-worker --memory), or take "
    "a smaller model";

std::string Milliseconds(double seconds) { return absl::StrFormat("%.3g ms", seconds * 1e3); }

// The first member, or host, that has too little; empty: none.
std::string FindObstacle(const std::vector<CrewMember>& takers, int64_t worker_bytes,
                         int64_t server_bytes) {
  struct Host {
    int members = 0;
    int64_t needed = 0;
    int64_t available = 0;  // the most that a member saw: those that came first
  };
  std::map<std::string, Host> hosts;
  for (const CrewMember& member : takers) {
    const bool serves = member.role == MemberRole::kParameterServer;
    const int64_t needed = serves ? server_bytes : worker_bytes;
    if (member.memory.process_bytes > 0 && needed > member.memory.process_bytes) {
      return absl::StrFormat("%s %s would take %s and may take %s",
                             serves ? "parameter server" : "worker", member.name, ByteText(needed),
                             ByteText(member.memory.process_bytes));
    }
    Host& host = hosts[member.host.empty() ? absl::StrCat("of ", member.name) : member.host];
    ++host.members;
    host.needed += needed;
    host.available = std::max(host.available, member.memory.host_bytes);
  }
  for (const auto& [name, host] : hosts) {
    if (host.available == 0 || host.needed <= host.available) continue;
    return absl::StrFormat("%d members on host %s would take %s of memory, it has %s", host.members,
                           name, ByteText(host.needed), ByteText(host.available));
  }
  return "";
}

// The strategy, with what the choice is to keep.
Strategy WithBase(const Strategy& strategy, const Strategy& base) {
  Strategy result = strategy;
  result.replicas = base.replicas;
  result.transport = base.transport;
  result.algorithm = Takes(result, base.algorithm) ? base.algorithm : SyncAlgorithm::kAutomatic;
  return result;
}

// In order of simplicity.
std::vector<Strategy> Candidates(const ChoiceInputs& inputs) {
  std::vector<Strategy> strategies;
  for (int32_t stage = 0; stage <= kMaxStage; ++stage) {
    strategies.push_back(WithBase({.stage = stage}, inputs.base));
  }
  const CrewSize crew = SizeOf(inputs.crew);
  if (crew.servers == 0) return strategies;
  Strategy served{.sync = SyncPath::kParameterServer,
                  .servers = std::min(crew.servers, kMaxServers)};
  strategies.push_back(WithBase(served, inputs.base));
  served.mixed = true;
  if (crew.workers > crew.servers) strategies.push_back(WithBase(served, inputs.base));
  return strategies;
}

// "stage 2, 1 replica: 12.0 MiB a worker, 4.5 ms".
std::string Describe(const StrategyCandidate& candidate) {
  std::string text = absl::StrCat(ToString(candidate.strategy), " takes ",
                                  ByteText(candidate.worker_bytes), " a worker");
  if (candidate.server_bytes > 0) {
    absl::StrAppend(&text, ", ", ByteText(candidate.server_bytes), " a parameter server");
  }
  if (candidate.seconds.has_value()) {
    absl::StrAppend(&text, ", ", Milliseconds(*candidate.seconds), " of communication a step");
  }
  return text;
}

// The fastest of those that fit; of equals, and where nothing was measured, the first.
const StrategyCandidate* FindBest(const std::vector<StrategyCandidate>& candidates) {
  const StrategyCandidate* best = nullptr;
  for (const StrategyCandidate& each : candidates) {
    if (!each.fits()) continue;
    if (best == nullptr ||
        (each.seconds.has_value() &&
         (!best->seconds.has_value() || *each.seconds < *best->seconds * (1 - kTie)))) {
      best = &each;
    }
  }
  return best;
}

const StrategyCandidate& LeastDemanding(const std::vector<StrategyCandidate>& candidates) {
  return *std::min_element(candidates.begin(), candidates.end(),
                           [](const StrategyCandidate& a, const StrategyCandidate& b) {
                             return std::max(a.worker_bytes, a.server_bytes) <
                                    std::max(b.worker_bytes, b.server_bytes);
                           });
}

void PutInOrder(const Strategy& chosen, std::vector<StrategyCandidate>* candidates) {
  const auto rank = [&](const StrategyCandidate& each) {
    return each.strategy == chosen ? 0 : each.fits() ? (each.seconds.has_value() ? 1 : 2) : 3;
  };
  std::stable_sort(candidates->begin(), candidates->end(),
                   [&](const StrategyCandidate& a, const StrategyCandidate& b) {
                     if (rank(a) != rank(b)) return rank(a) < rank(b);
                     return rank(a) == 1 && *a.seconds < *b.seconds;
                   });
}

}  // namespace

const char* Name(ChoiceCause cause) {
  switch (cause) {
    case ChoiceCause::kSimplest:
      return "simplest";
    case ChoiceCause::kFastest:
      return "fastest";
    case ChoiceCause::kMemory:
      return "memory";
    case ChoiceCause::kKept:
      return "kept";
    case ChoiceCause::kUnsettled:
      return "unsettled";
    case ChoiceCause::kNothingFits:
      return "nothing fits";
  }
  return "unknown";
}

StrategyCandidate Assess(const ChoiceInputs& inputs, const Strategy& strategy) {
  const std::vector<CrewMember> takers = TakersOf(strategy, inputs.crew);
  const CrewSize crew = SizeOf(strategy, takers);
  StrategyCandidate candidate{.strategy = strategy};
  candidate.worker_bytes = StateBytes(inputs.size, strategy, crew, MemberRole::kWorker);
  if (crew.servers > 0) {
    candidate.server_bytes = StateBytes(inputs.size, strategy, crew, MemberRole::kParameterServer);
  }
  candidate.obstacle = FindObstacle(takers, candidate.worker_bytes, candidate.server_bytes);
  if (inputs.links.has_value()) {
    candidate.seconds = CommunicationSeconds(inputs.size, strategy, takers, *inputs.links);
  }
  return candidate;
}

absl::Status CheckFits(const ChoiceInputs& inputs, const Strategy& strategy) {
  const StrategyCandidate candidate = Assess(inputs, strategy);
  if (candidate.fits()) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrFormat(
      "%s does not fit: %s; %s, or another strategy (muster explain shows which fit)",
      ToString(strategy), candidate.obstacle, kRemedy));
}

StrategyChoice ChooseStrategy(const ChoiceInputs& inputs) {
  StrategyChoice choice;
  choice.crew = SizeOf(inputs.crew);
  std::vector<StrategyCandidate>& candidates = choice.candidates;
  for (const Strategy& strategy : Candidates(inputs)) {
    candidates.push_back(Assess(inputs, strategy));
  }
  const StrategyCandidate* in_force = nullptr;
  if (inputs.in_force.has_value()) {
    const Strategy kept = WithBase(*inputs.in_force, inputs.base);
    auto found = std::find_if(candidates.begin(), candidates.end(),
                              [&](const StrategyCandidate& each) { return each.strategy == kept; });
    // Servers have come or gone since it was chosen.
    if (found == candidates.end()) {
      candidates.push_back(Assess(inputs, kept));
      found = candidates.end() - 1;
    }
    in_force = &*found;
  }

  const StrategyCandidate* const best = FindBest(candidates);
  const StrategyCandidate* chosen = best;
  if (best == nullptr) {
    choice.cause = ChoiceCause::kNothingFits;
    const StrategyCandidate& least = LeastDemanding(candidates);
    chosen = in_force != nullptr ? in_force : &least;
    choice.reason =
        absl::StrFormat("no strategy fits into memory; the one that takes the least, %s: %s; %s",
                        ToString(least.strategy), least.obstacle, kRemedy);
  } else if (in_force == nullptr) {
    choice.cause = best->seconds.has_value() ? ChoiceCause::kFastest : ChoiceCause::kSimplest;
    choice.reason = absl::StrCat(best->seconds.has_value() ? "the fastest" : "the simplest",
                                 " that fits: ", Describe(*best));
  } else if (!in_force->fits()) {
    choice.cause = ChoiceCause::kMemory;
    choice.reason = absl::StrCat(ToString(in_force->strategy), " does not fit (",
                                 in_force->obstacle, "); ", Describe(*best));
  } else if (best == in_force || !in_force->seconds.has_value() || !best->seconds.has_value() ||
             *best->seconds >= *in_force->seconds * (1 - inputs.least_gain)) {
    chosen = in_force;
    choice.cause = ChoiceCause::kKept;
    choice.reason =
        absl::StrCat(Describe(*in_force), in_force->seconds.has_value()
                                              ? ", and nothing that fits is clearly faster"
                                              : ", and no links were measured");
  } else if (!inputs.settled) {
    chosen = in_force;
    choice.cause = ChoiceCause::kUnsettled;
    choice.reason = absl::StrCat(Describe(*best), " instead of ", Milliseconds(*in_force->seconds),
                                 ", but the last change is too recent");
  } else {
    choice.cause = ChoiceCause::kFastest;
    choice.reason = absl::StrCat(Describe(*best), ", ", ToString(in_force->strategy), " ",
                                 Milliseconds(*in_force->seconds));
  }
  choice.strategy = chosen->strategy;
  PutInOrder(choice.strategy, &candidates);
  return choice;
}

}  // namespace muster
