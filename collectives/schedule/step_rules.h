// What the checker demands of steps before it runs any: rules for one step alone, and the pairing
// of sends with receives. Pure functions.
#ifndef MUSTER_COLLECTIVES_SCHEDULE_STEP_RULES_H_
#define MUSTER_COLLECTIVES_SCHEDULE_STEP_RULES_H_

#include <cstddef>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "collectives/schedule/schedule.h"
#include "collectives/schedule/schedule_request.h"

namespace muster::schedule_internal {

// FAILED_PRECONDITION: "rank 3 step 7 (send output[4, 6) to 2): <problem>".
absl::Status StepError(Rank rank, size_t index, const ScheduleStep& step,
                       absl::string_view problem);
std::string Describe(const ScheduleStep& step);

// Elements of a buffer by its name for this request; 0 where the schedule may not name it.
int64_t BufferCount(const ScheduleRequest& request, const Schedule& schedule, BufferName buffer);

bool IsSend(const ScheduleStep& step);
bool IsReceive(const ScheduleStep& step);

absl::Status CheckEachStep(const ScheduleRequest& request, const Schedule& schedule);
absl::Status CheckPairing(absl::Span<const Schedule> schedules);

}  // namespace muster::schedule_internal

#endif  // MUSTER_COLLECTIVES_SCHEDULE_STEP_RULES_H_
