#include "collectives/engine/window_plan.h"

#include <algorithm>

namespace muster {
namespace {

// Pieces of a chunk, where that makes them neither so small that taking them costs, nor so large
// that the last one is waited for.
constexpr int64_t kPiecesOfChunk = 4;
constexpr int64_t kLeastPieceBytes = 16 << 10;
// What all ranks' memory is written of at a time; then one that closes takes its own back.
constexpr int64_t kMostTouchBytes = 2 << 20;

std::vector<std::vector<WindowStep>> AllSteps(const WindowSchedule& schedule) {
  std::vector<std::vector<WindowStep>> steps;
  for (int64_t i = 0; i < schedule.intervals(); ++i) steps.push_back(schedule.Steps(i));
  return steps;
}

void ShareSteps(const WindowSchedule& schedule, WindowPlan& plan) {
  const int size = plan.request.size;
  const auto element_bytes = static_cast<int64_t>(SizeOf(plan.dtype));
  int64_t longest = 0;
  for (Rank owner = 0; owner < size; ++owner) {
    plan.shared_steps.push_back(schedule.SharedStep(owner));
    longest = std::max(longest, plan.shared_steps.back().count);
  }
  const int64_t most = std::max(kMostTouchBytes / size, kLeastPieceBytes);
  const int64_t bytes =
      std::clamp(longest * element_bytes / kPiecesOfChunk, kLeastPieceBytes, most);
  // Vectors stay aligned.
  plan.piece_elements = bytes / 64 * 64 / element_bytes;
  plan.touch_pieces = std::max<int64_t>(1, most / bytes);
  for (const WindowStep& step : plan.shared_steps) {
    plan.shared_pieces.push_back((step.count + plan.piece_elements - 1) / plan.piece_elements);
  }
}

}  // namespace

int64_t WindowHalfBytes(int64_t stage_bytes, int64_t segment_bytes, int size) {
  return std::min(stage_bytes / 4, std::max<int64_t>(segment_bytes, 1024) * size);
}

std::shared_ptr<const WindowPlan> MakeWindowPlan(const ScheduleRequest& request, DType dtype,
                                                 const WindowSizes& sizes, int64_t segment_bytes) {
  auto plan = std::make_shared<WindowPlan>();
  plan->request = request;
  plan->dtype = dtype;
  const auto element_bytes = static_cast<int64_t>(SizeOf(dtype));
  plan->half_elements =
      WindowHalfBytes(sizes.stage_bytes, segment_bytes, request.size) / element_bytes;
  const int64_t bytes = std::max(InputCount(request), OutputCount(request)) * element_bytes;
  plan->past_caches = bytes >= sizes.past_caches_bytes;
  int64_t whole = request.count;
  for (int64_t count : request.counts) whole += count;
  plan->small = whole * element_bytes <= sizes.small_limit_bytes &&
                WindowSchedule::FitsSmall(request, plan->half_elements);
  if (plan->small) {
    for (int parity = 0; parity < 2; ++parity) {
      plan->small_steps[parity] =
          AllSteps(WindowSchedule(request, WindowMode::kSmall, plan->half_elements, parity));
    }
  }
  const WindowSchedule direct(request, WindowMode::kDirect, plan->half_elements, 0);
  if (request.collective == Collective::kAllReduce) {
    ShareSteps(direct, *plan);
  } else if (!plan->small) {
    plan->direct_steps = AllSteps(direct);
  }
  return plan;
}

}  // namespace muster
