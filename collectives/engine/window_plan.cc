#include "collectives/engine/window_plan.h"

#include <algorithm>

namespace muster {
namespace {

// Results beyond this are evicted before anybody reads them: they bypass the caches.
constexpr int64_t kPastCachesBytes = int64_t{4} << 20;

std::vector<std::vector<WindowStep>> AllSteps(const WindowSchedule& schedule) {
  std::vector<std::vector<WindowStep>> steps;
  for (int64_t i = 0; i < schedule.intervals(); ++i) steps.push_back(schedule.Steps(i));
  return steps;
}

}  // namespace

int64_t WindowHalfBytes(int64_t stage_bytes, int64_t segment_bytes, int size) {
  return std::min(stage_bytes / 4, std::max<int64_t>(segment_bytes, 1024) * size);
}

std::shared_ptr<const WindowPlan> MakeWindowPlan(const ScheduleRequest& request, DType dtype,
                                                 int64_t stage_bytes, int64_t segment_bytes,
                                                 int64_t small_limit_bytes) {
  auto plan = std::make_shared<WindowPlan>();
  plan->request = request;
  plan->dtype = dtype;
  const auto element_bytes = static_cast<int64_t>(SizeOf(dtype));
  plan->half_elements = WindowHalfBytes(stage_bytes, segment_bytes, request.size) / element_bytes;
  const int64_t bytes = std::max(InputCount(request), OutputCount(request)) * element_bytes;
  plan->past_caches = bytes >= kPastCachesBytes;
  int64_t whole = request.count;
  for (int64_t count : request.counts) whole += count;
  plan->small = whole * element_bytes <= small_limit_bytes &&
                WindowSchedule::FitsSmall(request, plan->half_elements);
  if (plan->small) {
    for (int parity = 0; parity < 2; ++parity) {
      plan->small_steps[parity] =
          AllSteps(WindowSchedule(request, WindowMode::kSmall, plan->half_elements, parity));
    }
  } else {
    plan->direct_steps =
        AllSteps(WindowSchedule(request, WindowMode::kDirect, plan->half_elements, 0));
  }
  return plan;
}

}  // namespace muster
