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
  bool small = false;  // small mode, but for an all-reduce of buffers that are all registered;
                       // otherwise direct or staged, as the buffers allow
  bool past_caches = false;  // results are too long to stay in the caches
  // By parity (direct schedules have none), then by interval.
  std::array<std::vector<std::vector<WindowStep>>, 2> small_steps;
  std::vector<std::vector<WindowStep>> direct_steps;
  // A direct all-reduce, instead: by owner, cut into pieces of so many elements, which any rank may
  // do.
  std::vector<WindowStep> shared_steps;
  std::vector<int64_t> shared_pieces;
  int64_t piece_elements = 1;
  int64_t touch_pieces = 1;  // so many may be done at a time
};

// Bytes of each half of a stage's parts, for pieces of about `segment_bytes`.
int64_t WindowHalfBytes(int64_t stage_bytes, int64_t segment_bytes, int size);

// Of one mesh.
struct WindowSizes {
  int64_t stage_bytes = 0;
  int64_t small_limit_bytes = 0;  // vectors up to this go the small way, where they fit the stage
  // Of vectors from this on results bypass the caches, which would evict them before anybody reads
  // them. Ranks may differ in this alone.
  int64_t past_caches_bytes = 0;
};

// Pieces staged hold about `segment_bytes`, the same on all ranks.
std::shared_ptr<const WindowPlan> MakeWindowPlan(const ScheduleRequest& request, DType dtype,
                                                 const WindowSizes& sizes, int64_t segment_bytes);

}  // namespace muster

#endif  // MUSTER_COLLECTIVES_ENGINE_WINDOW_PLAN_H_
