#include "state/reshard_plan.h"

#include <algorithm>
#include <map>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/check.h"
#include "base/random.h"
#include "base/status_macros.h"
#include "state/source_balance.h"

namespace muster {
namespace {

std::string Describe(const StateTag& tag) {
  return absl::StrFormat("step %d of branch %d (epoch %d)", tag.step, tag.branch, tag.epoch);
}

absl::Status CheckArguments(absl::Span<const Holding> holdings, const ShardMap& target,
                            absl::Span<const Rank> participant_of, int participants) {
  for (const Holding& holding : holdings) {
    const Range range = holding.range;
    if (range.offset < 0 || range.count < 0 ||
        range.count > target.element_count() - range.offset) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "reshard: participant %d says it holds %d elements from %d on; expected them within the "
          "%d of the space",
          holding.participant, range.count, range.offset, target.element_count()));
    }
    if (holding.participant < 0 || holding.participant >= participants) {
      return absl::InvalidArgumentError(
          absl::StrFormat("reshard: a holding is of participant %d; expected 0 to %d",
                          holding.participant, participants - 1));
    }
  }
  if (participant_of.size() != static_cast<size_t>(target.world_size())) {
    return absl::InvalidArgumentError(
        absl::StrFormat("reshard: %d participants are to be ranks of the target map, which has %d",
                        participant_of.size(), target.world_size()));
  }
  std::vector<bool> taken(static_cast<size_t>(std::max(0, participants)));
  for (size_t rank = 0; rank < participant_of.size(); ++rank) {
    const Rank participant = participant_of[rank];
    if (participant < 0 || participant >= participants || taken[participant]) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "reshard: rank %d is to be participant %d; expected one of 0 to %d that is no other rank",
          rank, participant, participants - 1));
    }
    taken[participant] = true;
  }
  return absl::OkStatus();
}

// A part of the space, and the number of the set of participants that hold all of it.
struct HeldRange {
  Range range;
  size_t holders = 0;
};

// Who holds what, as sets of participants: set 0 is the empty one.
class HolderIndex {
 public:
  HolderIndex(const StateTag& tag, absl::Span<const Holding> holdings, int64_t element_count) {
    // Where a participant's holding begins (+1) or ends (-1).
    std::vector<std::tuple<int64_t, Rank, int>> events;
    for (const Holding& holding : holdings) {
      if (holding.tag != tag || holding.range.count == 0) continue;
      events.emplace_back(holding.range.offset, holding.participant, 1);
      events.emplace_back(holding.range.end(), holding.participant, -1);
    }
    std::sort(events.begin(), events.end());
    NumberOf({});
    std::map<Rank, int> active;  // holdings of each that are open
    int64_t next = 0;
    for (size_t i = 0; i < events.size();) {
      const int64_t at = std::get<0>(events[i]);
      Append({next, at - next}, active);
      next = at;
      for (; i < events.size() && std::get<0>(events[i]) == at; ++i) {
        const Rank participant = std::get<1>(events[i]);
        if ((active[participant] += std::get<2>(events[i])) == 0) active.erase(participant);
      }
    }
    Append({next, element_count - next}, active);
  }

  // In order of offset, covering the space.
  const std::vector<HeldRange>& ranges() const { return ranges_; }
  // Sorted.
  const std::vector<Rank>& Set(size_t number) const { return sets_[number]; }
  size_t set_count() const { return sets_.size(); }

 private:
  size_t NumberOf(std::vector<Rank> set) {
    const auto [it, is_new] = numbers_.try_emplace(set, sets_.size());
    if (is_new) sets_.push_back(std::move(set));
    return it->second;
  }

  void Append(Range range, const std::map<Rank, int>& active) {
    if (range.count == 0) return;
    std::vector<Rank> set;
    for (const auto& [participant, open] : active) set.push_back(participant);
    ranges_.push_back({range, NumberOf(std::move(set))});
  }

  std::vector<HeldRange> ranges_;
  std::vector<std::vector<Rank>> sets_;
  absl::flat_hash_map<std::vector<Rank>, size_t> numbers_;
};

absl::Status NobodyHolds(Range range, const StateTag& tag, Rank needed_by,
                         absl::Span<const Holding> holdings) {
  std::string elsewhere;
  for (const Holding& holding : holdings) {
    if (holding.range.end() <= range.offset || range.end() <= holding.range.offset) continue;
    elsewhere = absl::StrFormat("; participant %d holds some of it at %s", holding.participant,
                                Describe(holding.tag));
    break;
  }
  return absl::FailedPreconditionError(absl::StrFormat(
      "reshard: nobody holds elements %d to %d at %s, which participant %d needs%s; load them from "
      "a checkpoint",
      range.offset, range.end(), Describe(tag), needed_by, elsewhere));
}

// What a participant lacks, all of which the same others hold.
struct Need {
  Rank to = 0;
  Range range;
};

// By the number of the set that holds it.
absl::StatusOr<std::vector<std::vector<Need>>> FindNeeds(const HolderIndex& index,
                                                         const ShardMap& target,
                                                         absl::Span<const Rank> participant_of,
                                                         const StateTag& tag,
                                                         absl::Span<const Holding> holdings) {
  std::vector<std::vector<Need>> needs(index.set_count());
  auto held = index.ranges().begin();
  for (const Shard& shard : target.shards()) {
    while (held->range.end() <= shard.range.offset) ++held;
    for (auto it = held; it != index.ranges().end() && it->range.offset < shard.range.end(); ++it) {
      const int64_t begin = std::max(it->range.offset, shard.range.offset);
      const Range range = {begin, std::min(it->range.end(), shard.range.end()) - begin};
      const std::vector<Rank>& holders = index.Set(it->holders);
      if (holders.empty()) {
        return NobodyHolds(it->range, tag, participant_of[shard.holders[0]], holdings);
      }
      for (const Rank rank : shard.holders) {
        const Rank to = participant_of[rank];
        if (std::binary_search(holders.begin(), holders.end(), to)) continue;
        needs[it->holders].push_back({to, range});
      }
    }
  }
  return needs;
}

// Hands the needs of one set out to its members, `share` elements to each.
void HandOut(std::vector<Need> needs, const std::vector<Rank>& sources, std::vector<int64_t> shares,
             std::vector<Transfer>& transfers) {
  std::sort(needs.begin(), needs.end(), [](const Need& a, const Need& b) {
    return std::pair(a.to, a.range.offset) < std::pair(b.to, b.range.offset);
  });
  size_t source = 0;
  for (Need& need : needs) {
    while (need.range.count > 0) {
      while (shares[source] == 0) ++source;
      const int64_t count = std::min(shares[source], need.range.count);
      transfers.push_back({sources[source], need.to, {need.range.offset, count}});
      shares[source] -= count;
      need.range = {need.range.offset + count, need.range.count - count};
    }
  }
}

// In the order of ReshardPlan, neighbours merged.
std::vector<Transfer> Sorted(std::vector<Transfer> transfers) {
  std::sort(transfers.begin(), transfers.end(), [](const Transfer& a, const Transfer& b) {
    return std::tuple(a.from, a.to, a.range.offset) < std::tuple(b.from, b.to, b.range.offset);
  });
  std::vector<Transfer> merged;
  for (const Transfer& transfer : transfers) {
    if (!merged.empty() && merged.back().from == transfer.from && merged.back().to == transfer.to &&
        merged.back().range.end() == transfer.range.offset) {
      merged.back().range.count += transfer.range.count;
    } else {
      merged.push_back(transfer);
    }
  }
  return merged;
}

uint64_t FingerprintOf(const ReshardPlan& plan) {
  // As bytes, since large fleets have millions of transfers.
  static_assert(std::has_unique_object_representations_v<Transfer>);
  const absl::string_view transfers(reinterpret_cast<const char*>(plan.transfers.data()),
                                    plan.transfers.size() * sizeof(Transfer));
  return StableHash(absl::StrCat("muster reshard 1 ", plan.participants, " ", plan.element_count,
                                 " ", plan.tag.branch, " ", plan.tag.step, " ", plan.tag.epoch, " ",
                                 StableHash(transfers)));
}

}  // namespace

std::vector<Holding> HoldingsOf(const ShardMap& map,
                                absl::Span<const std::optional<Rank>> participant_of,
                                const StateTag& tag) {
  MUSTER_CHECK_EQ(participant_of.size(), static_cast<size_t>(map.world_size()));
  std::vector<Holding> holdings;
  for (const Shard& shard : map.shards()) {
    for (const Rank rank : shard.holders) {
      if (!participant_of[rank].has_value()) continue;
      holdings.push_back({*participant_of[rank], tag, shard.range});
    }
  }
  return holdings;
}

int64_t ReshardPlan::SentBy(Rank participant) const {
  int64_t count = 0;
  for (const Transfer& transfer : transfers) {
    if (transfer.from == participant) count += transfer.range.count;
  }
  return count;
}

int64_t ReshardPlan::ReceivedBy(Rank participant) const {
  int64_t count = 0;
  for (const Transfer& transfer : transfers) {
    if (transfer.to == participant) count += transfer.range.count;
  }
  return count;
}

absl::StatusOr<ReshardPlan> PlanReshard(const StateTag& tag, absl::Span<const Holding> holdings,
                                        const ShardMap& target,
                                        absl::Span<const Rank> participant_of, int participants) {
  MUSTER_RETURN_IF_ERROR(CheckArguments(holdings, target, participant_of, participants));
  const HolderIndex index(tag, holdings, target.element_count());
  MUSTER_ASSIGN_OR_RETURN(const std::vector<std::vector<Need>> needs,
                          FindNeeds(index, target, participant_of, tag, holdings));
  std::vector<Demand> demands;
  std::vector<const std::vector<Need>*> needs_of;
  for (size_t set = 0; set < needs.size(); ++set) {
    if (needs[set].empty()) continue;
    Demand demand = {.sources = index.Set(set)};
    for (const Need& need : needs[set]) demand.count += need.range.count;
    demands.push_back(std::move(demand));
    needs_of.push_back(&needs[set]);
  }
  const std::vector<std::vector<int64_t>> shares = BalanceSources(demands, participants);
  ReshardPlan plan = {
      .tag = tag, .participants = participants, .element_count = target.element_count()};
  for (size_t i = 0; i < demands.size(); ++i) {
    HandOut(*needs_of[i], demands[i].sources, shares[i], plan.transfers);
  }
  plan.transfers = Sorted(std::move(plan.transfers));
  plan.fingerprint = FingerprintOf(plan);
  return plan;
}

}  // namespace muster
