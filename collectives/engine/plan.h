// A schedule made ready to run: cut into segments, with what each step waits for. Built once per
// kind of call and reused. Immutable, thread-safe.
//
// Segments. All steps are cut at the same number of elements. A segment of a step waits for those
// segments of earlier steps that touch its elements (read after write, write after write, write
// after read), and for the ones in front of them.
//
// Lanes. Steps that send to one peer form a lane, and those that receive from one: they are started
// in schedule order, whole steps one after the other, so that a transport that holds messages back
// always has the next one wanted at its head.
//
// In step. Where all ranks send parts to all others and wait for each other (a direct all-reduce or
// one of its halves), connections share its wire unevenly, and what comes back waits for the part
// that is last: no peer gets far ahead of the one that has got the least, in proportion to what
// each is to get.
#ifndef MUSTER_COLLECTIVES_ENGINE_PLAN_H_
#define MUSTER_COLLECTIVES_ENGINE_PLAN_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/dtype.h"
#include "collectives/schedule/schedule.h"
#include "collectives/schedule/schedule_request.h"

namespace muster {

// Element 0 of the waiting step is element `shift` of the one it waits for.
struct PlanWait {
  int32_t step = 0;
  int64_t shift = 0;
  bool operator==(const PlanWait&) const = default;
};

struct PlanStep {
  ScheduleStep step;
  int64_t count = 0;  // elements
  int32_t segments = 0;
  int32_t lane = -1;    // into Plan::lanes; -1: a local step
  int32_t ordinal = 0;  // within its lane: the message's name, the same on both ends
  std::vector<PlanWait> waits_for;
  std::vector<int32_t> waited_for_by;
};

struct PlanLane {
  Rank peer = -1;
  bool send = false;
  std::vector<int32_t> steps;
  int64_t segments = 0;  // of all steps
};

struct Plan {
  DType dtype = DType::kU8;
  int size = 1;  // how many ranks contribute
  int64_t segment_elements = 1;
  int32_t lane_window = 1;  // segments of one lane under way at a time
  // Segments of a lane of sends begun beyond the part that every such lane has done; 0: any number.
  int32_t send_lead = 0;
  int64_t scratch_count = 0;
  int64_t total_segments = 0;  // over all steps
  std::vector<PlanStep> steps;
  std::vector<PlanLane> lanes;
  std::vector<int32_t> local_steps;
  // Whom the rank tells its fingerprint, and whose it must hear: those it exchanges data with and
  // its neighbours in the ring of ranks, so that calls which move no data are compared as well.
  std::vector<Rank> tells;
  std::vector<Rank> hears;

  // Elements [first, first + size) of a step's slices that segment s covers.
  int64_t SegmentBegin(int32_t segment) const { return segment * segment_elements; }
  int64_t SegmentSize(const PlanStep& step, int32_t segment) const {
    const int64_t left = step.count - SegmentBegin(segment);
    return left < segment_elements ? left : segment_elements;
  }
  // Segments of the step waited for that must be done before a segment of the waiting one.
  int32_t SegmentsAwaited(const PlanWait& wait, const PlanStep& waiting, int32_t segment) const;
};

inline constexpr int kSegmentBits = 20;  // of a step
inline constexpr int kOrdinalBits = 16;  // of a lane

// Segments hold about segment_bytes: more where a step would have too many, fewer (from 64 KiB up)
// where parts of one result come from several peers at the same time. `members` says which
// ranks of the transport the ranks of the request are; empty: the same. All ranks in a plan are the
// transport's.
absl::StatusOr<std::shared_ptr<const Plan>> MakePlan(const ScheduleRequest& request,
                                                     absl::Span<const Rank> members, DType dtype,
                                                     int64_t segment_bytes);

}  // namespace muster

#endif  // MUSTER_COLLECTIVES_ENGINE_PLAN_H_
