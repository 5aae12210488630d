// A collective in shared memory made ready to run: its schedules, as far as they are short. Built
// once per kind of call and reused. Immutable, thread-safe.
#ifndef MUSTER_COLLECTIVES_ENGINE_WINDOW_PLAN_H_
#define MUSTER_COLLECTIVES_ENGINE_WINDOW_PLAN_H_

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/dtype.h"
#include "collectives/schedule/schedule_request.h"
#include "collectives/schedule/window_schedule.h"

namespace muster {

struct WindowPlan {
  ScheduleRequest request;
  DType dtype = DType::kU8;
  int64_t half_elements = 0;  // of each half of a stage's parts
  bool small = false;         // small mode; otherwise direct or staged, as the buffers allow
  bool past_caches = false;   // results are too long to stay in the caches
  // By parity (direct schedules have none), then by interval.
  std::array<std::vector<std::vector<WindowStep>>, 2> small_steps;
  std::vector<std::vector<WindowStep>> direct_steps;
};

// Bytes of each half of a stage's parts, for pieces of about `segment_bytes`.
int64_t WindowHalfBytes(int64_t stage_bytes, int64_t segment_bytes, int size);

// Vectors up to `small_limit_bytes` go the small way, where they fit the stage. Pieces staged hold
// about `segment_bytes`. The same numbers on all ranks.
std::shared_ptr<const WindowPlan> MakeWindowPlan(const ScheduleRequest& request, DType dtype,
                                                 int64_t stage_bytes, int64_t segment_bytes,
                                                 int64_t small_limit_bytes);

}  // namespace muster

#endif  // MUSTER_COLLECTIVES_ENGINE_WINDOW_PLAN_H_
