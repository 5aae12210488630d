#include "collectives/engine/plan.h"

#include <algorithm>
#include <map>
#include <utility>

#include "base/check.h"
#include "base/status_macros.h"
#include "collectives/schedule/make_schedule.h"

namespace muster {
namespace {

// Who has used the slices that start at one place, as far as later steps must wait for it.
struct SliceUse {
  struct Step {
    int32_t index = 0;
    int64_t count = 0;
  };
  int64_t longest = 0;
  std::vector<Step> writers;
  std::vector<Step> readers;
};

using SliceUses = std::map<std::pair<BufferName, int64_t>, SliceUse>;

SliceUse& UseOf(SliceUses& uses, const Slice& slice) {
  SliceUse& use = uses[{slice.buffer, slice.offset}];
  use.longest = std::max(use.longest, slice.count);
  return use;
}

void WaitFor(PlanStep& step, const std::vector<SliceUse::Step>& before) {
  for (const SliceUse::Step& use : before) step.waits_for.push_back(use.index);
}

// What a write of that length leaves for nobody to wait for any more.
void DropCovered(std::vector<SliceUse::Step>& uses, int64_t count) {
  std::erase_if(uses, [count](const SliceUse::Step& use) { return use.count <= count; });
}

int64_t CountOf(const ScheduleStep& step) {
  return step.kind == StepKind::kSend ? step.source.count : step.target.count;
}

void LinkSteps(Plan& plan) {
  SliceUses uses;
  for (int32_t i = 0; i < static_cast<int32_t>(plan.steps.size()); ++i) {
    PlanStep& step = plan.steps[i];
    const bool writes = step.step.kind != StepKind::kSend;
    for (const Slice& slice : SlicesReadBy(step.step)) WaitFor(step, UseOf(uses, slice).writers);
    if (writes) {
      WaitFor(step, UseOf(uses, step.step.target).writers);
      WaitFor(step, UseOf(uses, step.step.target).readers);
    }
    for (const Slice& slice : SlicesReadBy(step.step)) {
      UseOf(uses, slice).readers.push_back({i, slice.count});
    }
    if (writes) {
      SliceUse& use = UseOf(uses, step.step.target);
      DropCovered(use.writers, step.count);
      DropCovered(use.readers, step.count);
      use.writers.push_back({i, step.count});
    }
    std::sort(step.waits_for.begin(), step.waits_for.end());
    step.waits_for.erase(std::unique(step.waits_for.begin(), step.waits_for.end()),
                         step.waits_for.end());
    for (int32_t before : step.waits_for) plan.steps[before].waited_for_by.push_back(i);
  }
  const SliceUses::value_type* last = nullptr;
  for (const auto& entry : uses) {
    MUSTER_CHECK(last == nullptr || last->first.first != entry.first.first ||
                 last->first.second + last->second.longest <= entry.first.second)
        << "a schedule with slices that overlap but start apart";
    last = &entry;
  }
}

void AddRank(std::vector<Rank>& ranks, Rank rank) {
  if (std::find(ranks.begin(), ranks.end(), rank) == ranks.end()) ranks.push_back(rank);
}

}  // namespace

absl::StatusOr<std::shared_ptr<const Plan>> MakePlan(const ScheduleRequest& request, DType dtype,
                                                     int64_t segment_bytes) {
  MUSTER_ASSIGN_OR_RETURN(Schedule schedule, MakeSchedule(request));
  auto plan = std::make_shared<Plan>();
  plan->dtype = dtype;
  plan->scratch_count = schedule.scratch_count;
  int64_t longest = 0;
  for (const ScheduleStep& step : schedule.steps) longest = std::max(longest, CountOf(step));
  const int64_t most = (int64_t{1} << kSegmentBits) - 1;
  plan->segment_elements =
      std::max({int64_t{1}, segment_bytes / static_cast<int64_t>(SizeOf(dtype)),
                (longest + most - 1) / most});
  std::map<std::pair<Rank, bool>, int32_t> lane_of;
  for (ScheduleStep& source : schedule.steps) {
    PlanStep step;
    step.step = std::move(source);
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
      AddRank(send ? plan->tells : plan->hears, step.step.peer);
    }
    plan->steps.push_back(std::move(step));
  }
  if (request.size > 1) {
    AddRank(plan->tells, (request.rank + 1) % request.size);
    AddRank(plan->hears, (request.rank + request.size - 1) % request.size);
  }
  LinkSteps(*plan);
  return std::shared_ptr<const Plan>(std::move(plan));
}

}  // namespace muster
