#include "collectives/engine/plan.h"

#include <algorithm>
#include <bit>
#include <map>
#include <utility>

#include "base/check.h"
#include "base/status_macros.h"
#include "collectives/schedule/make_schedule.h"

namespace muster {
namespace {

// The steps so far that have used one buffer, as far as later ones must wait for them.
class BufferUses {
 public:
  // Adds to `waits` what a step that uses `slice` must wait for: earlier writers, and readers if it
  // writes.
  void Await(const Slice& slice, bool writes, std::vector<PlanWait>& waits) const {
    const int64_t end = slice.offset + slice.count;
    for (auto use = uses_.upper_bound(slice.offset - longest_);
         use != uses_.end() && use->first < end; ++use) {
      const auto& [offset, step] = *use;
      if (offset + step.count <= slice.offset || !(writes || step.writes)) continue;
      waits.push_back({.step = step.index, .shift = slice.offset - offset});
    }
  }

  void Add(const Slice& slice, bool writes, int32_t index) {
    if (writes) {
      // Whoever would wait for what is overwritten waits for the writer, which has waited.
      const int64_t end = slice.offset + slice.count;
      for (auto use = uses_.lower_bound(slice.offset); use != uses_.end() && use->first < end;) {
        const bool covered = use->first + use->second.count <= end;
        use = covered ? uses_.erase(use) : std::next(use);
      }
    }
    uses_.emplace(slice.offset, Use{index, slice.count, writes});
    longest_ = std::max(longest_, slice.count);
  }

 private:
  struct Use {
    int32_t index = 0;
    int64_t count = 0;
    bool writes = false;
  };
  std::multimap<int64_t, Use> uses_;  // by first element
  int64_t longest_ = 0;
};

int64_t CountOf(const ScheduleStep& step) {
  return step.kind == StepKind::kSend ? step.source.count : step.target.count;
}

void LinkSteps(Plan& plan) {
  std::map<BufferName, BufferUses> uses;
  for (int32_t i = 0; i < static_cast<int32_t>(plan.steps.size()); ++i) {
    PlanStep& step = plan.steps[i];
    const bool writes = step.step.kind != StepKind::kSend;
    const std::vector<Slice> reads = SlicesReadBy(step.step);
    const Slice& target = step.step.target;
    for (const Slice& slice : reads) uses[slice.buffer].Await(slice, false, step.waits_for);
    if (writes) uses[target.buffer].Await(target, true, step.waits_for);
    for (const Slice& slice : reads) uses[slice.buffer].Add(slice, false, i);
    if (writes) uses[target.buffer].Add(target, true, i);
    // Of several waits for one step the farthest counts.
    std::vector<PlanWait>& waits = step.waits_for;
    std::sort(waits.begin(), waits.end(), [](const PlanWait& a, const PlanWait& b) {
      return a.step != b.step ? a.step < b.step : a.shift > b.shift;
    });
    const auto same_step = [](const PlanWait& a, const PlanWait& b) { return a.step == b.step; };
    waits.erase(std::unique(waits.begin(), waits.end(), same_step), waits.end());
    for (const PlanWait& wait : waits) plan.steps[wait.step].waited_for_by.push_back(i);
  }
}

// From how many peers at most a rank receives large parts of one result at the same time.
int64_t PeersAtOnce(const ScheduleRequest& request) {
  if (request.algorithm == Algorithm::kDirect) return request.size - 1;
  if (request.algorithm != Algorithm::kHierarchical) return 1;
  std::map<int32_t, int64_t> ranks_on;
  int64_t most = 0;
  for (const int32_t host : request.hosts) most = std::max(most, ++ranks_on[host]);
  const bool around = request.collective == Collective::kAllReduce;
  const size_t between = around ? std::bit_width(ranks_on.size() - 1) : ranks_on.size() - 1;
  return most - 1 + static_cast<int64_t>(between);
}

// Connections that share a wire bring their first segments in the time of one that has it alone to
// bring as many: with smaller ones what depends on all of them begins as soon. Depends on nothing
// that differs between ranks.
int64_t SegmentBytes(const ScheduleRequest& request, int64_t segment_bytes) {
  constexpr int64_t kShared = 64 << 10;  // Below it, messages cost more than waiting for them.
  const int64_t shared = 2 * segment_bytes / std::max<int64_t>(1, PeersAtOnce(request));
  return std::min(segment_bytes, std::max(kShared, shared));
}

// Segments of one lane under way at a time: as many bytes as this many of the size asked for,
// enough to keep a connection busy, but few enough to stay within a transport's limits.
constexpr int64_t kLaneWindow = 8;
constexpr int64_t kMostInFlight = 256;
constexpr int32_t kSendLead = 2;

// Every rank sends to all others, and has its result when the last has sent.
bool KeepsStep(const ScheduleRequest& request) {
  return request.algorithm == Algorithm::kDirect && request.size > 2 &&
         (request.collective == Collective::kAllReduce ||
          request.collective == Collective::kReduceScatter ||
          request.collective == Collective::kAllGather);
}

void AddRank(std::vector<Rank>& ranks, Rank rank) {
  if (std::find(ranks.begin(), ranks.end(), rank) == ranks.end()) ranks.push_back(rank);
}

}  // namespace

int32_t Plan::SegmentsAwaited(const PlanWait& wait, const PlanStep& waiting,
                              int32_t segment) const {
  const PlanStep& before = steps[wait.step];
  if (wait.shift == 0) return std::min(segment + 1, before.segments);
  const int64_t end =
      wait.shift + std::min(waiting.count, SegmentBegin(segment) + segment_elements);
  if (end <= 0) return 0;
  return static_cast<int32_t>(
      std::min<int64_t>((end + segment_elements - 1) / segment_elements, before.segments));
}

absl::StatusOr<std::shared_ptr<const Plan>> MakePlan(const ScheduleRequest& request,
                                                     absl::Span<const Rank> members, DType dtype,
                                                     int64_t segment_bytes) {
  const auto member = [&](Rank rank) { return members.empty() ? rank : members[rank]; };
  MUSTER_ASSIGN_OR_RETURN(Schedule schedule, MakeSchedule(request));
  auto plan = std::make_shared<Plan>();
  plan->dtype = dtype;
  plan->size = ContributorCount(request);
  plan->scratch_count = schedule.scratch_count;
  int64_t longest = 0;
  for (const ScheduleStep& step : schedule.steps) longest = std::max(longest, CountOf(step));
  const int64_t most = (int64_t{1} << kSegmentBits) - 1;
  const int64_t bytes = SegmentBytes(request, segment_bytes);
  plan->segment_elements = std::max(
      {int64_t{1}, bytes / static_cast<int64_t>(SizeOf(dtype)), (longest + most - 1) / most});
  plan->lane_window = static_cast<int32_t>(
      std::min(kMostInFlight, kLaneWindow * segment_bytes / std::max<int64_t>(bytes, 1)));
  std::map<std::pair<Rank, bool>, int32_t> lane_of;
  for (ScheduleStep& source : schedule.steps) {
    PlanStep step;
    step.step = std::move(source);
    if (step.step.peer >= 0) step.step.peer = member(step.step.peer);
    step.count = CountOf(step.step);
    step.segments =
        static_cast<int32_t>((step.count + plan->segment_elements - 1) / plan->segment_elements);
    plan->total_segments += step.segments;
    const auto index = static_cast<int32_t>(plan->steps.size());
    const bool local = step.step.kind == StepKind::kCopy || step.step.kind == StepKind::kReduce;
    if (local) {
      plan->local_steps.push_back(index);
    } else {
      const bool send = step.step.kind == StepKind::kSend;
      const auto [it, added] = lane_of.emplace(std::pair(step.step.peer, send),
                                               static_cast<int32_t>(plan->lanes.size()));
      if (added) plan->lanes.push_back({step.step.peer, send, {}});
      PlanLane& lane = plan->lanes[it->second];
      step.lane = it->second;
      step.ordinal = static_cast<int32_t>(lane.steps.size());
      MUSTER_CHECK_LT(step.ordinal, 1 << kOrdinalBits);
      lane.steps.push_back(index);
      lane.segments += step.segments;
      AddRank(send ? plan->tells : plan->hears, step.step.peer);
    }
    plan->steps.push_back(std::move(step));
  }
  if (request.collective == Collective::kSendReceive) {
    // The others know nothing of it. An empty message is compared as well.
    if (request.rank == request.root) AddRank(plan->tells, member(request.destination));
    if (request.rank == request.destination) AddRank(plan->hears, member(request.root));
  } else if (request.size > 1) {
    AddRank(plan->tells, member((request.rank + 1) % request.size));
    AddRank(plan->hears, member((request.rank + request.size - 1) % request.size));
  }
  if (KeepsStep(request)) plan->send_lead = kSendLead;
  LinkSteps(*plan);
  return std::shared_ptr<const Plan>(std::move(plan));
}

}  // namespace muster
