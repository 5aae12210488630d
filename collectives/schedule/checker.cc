#include "collectives/schedule/checker.h"

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "collectives/schedule/cost.h"
#include "collectives/schedule/step_rules.h"
#include "collectives/schedule/symbolic_run.h"

namespace muster {
namespace {

absl::Status CheckRequests(absl::Span<const ScheduleRequest> requests, size_t schedule_count) {
  if (requests.empty() || requests.size() != schedule_count ||
      requests.size() != static_cast<size_t>(requests[0].size)) {
    return absl::InvalidArgumentError(absl::StrCat(
        requests.size(), " requests and ", schedule_count, " schedules; expected one of each for ",
        requests.empty() ? 0 : requests[0].size, " ranks"));
  }
  for (size_t rank = 0; rank < requests.size(); ++rank) {
    const ScheduleRequest& mine = requests[rank];
    const ScheduleRequest& first = requests[0];
    MUSTER_RETURN_IF_ERROR(Annotate(ValidateRequest(mine), absl::StrCat("request ", rank)));
    if (mine.rank != static_cast<Rank>(rank) || mine.size != first.size ||
        mine.collective != first.collective || mine.algorithm != first.algorithm ||
        mine.count != first.count || mine.counts != first.counts || mine.root != first.root ||
        mine.destination != first.destination || mine.contributors != first.contributors ||
        mine.order_counts != first.order_counts || mine.hosts != first.hosts ||
        mine.half_precision != first.half_precision) {
      return absl::InvalidArgumentError(absl::StrCat("request ", rank, " is for rank ", mine.rank,
                                                     " or differs from request 0 in more than ",
                                                     "rank and in_place"));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckOwnCost(const ScheduleRequest& request, const Schedule& schedule) {
  const ScheduleCost expected = CostOf(request);
  ScheduleCost actual = MeasuredCost(schedule);
  actual.hops = expected.hops;
  if (actual == expected) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("rank ", request.rank, " sends ", actual.messages_sent, " messages with ",
                   actual.elements_sent, " elements, needs ", actual.scratch_count,
                   " elements of scratch and reduces ", actual.elements_reduced,
                   "; the cost table says ", expected.messages_sent, ", ", expected.elements_sent,
                   ", ", expected.scratch_count, " and ", expected.elements_reduced));
}

absl::Status CheckHops(const ScheduleRequest& request, const schedule_internal::SymbolicRun& run) {
  const int64_t expected = CostOf(request).hops;
  if (run.hops() == expected || (!HopsAreExact(request) && run.hops() < expected)) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(
      absl::StrCat("rank ", run.longest_chain_rank(), " step ", run.longest_chain_step(),
                   " ends the longest chain of messages, of ", run.hops(),
                   " hops; the cost table says ", expected));
}

}  // namespace

absl::Status CheckSchedules(absl::Span<const ScheduleRequest> requests,
                            absl::Span<const Schedule> schedules) {
  MUSTER_RETURN_IF_ERROR(CheckRequests(requests, schedules.size()));
  for (size_t rank = 0; rank < requests.size(); ++rank) {
    MUSTER_RETURN_IF_ERROR(schedule_internal::CheckEachStep(requests[rank], schedules[rank]));
  }
  MUSTER_RETURN_IF_ERROR(schedule_internal::CheckPairing(schedules));
  schedule_internal::SymbolicRun run(requests, schedules);
  MUSTER_RETURN_IF_ERROR(run.Run());
  MUSTER_RETURN_IF_ERROR(run.CheckResults());
  for (size_t rank = 0; rank < requests.size(); ++rank) {
    MUSTER_RETURN_IF_ERROR(CheckOwnCost(requests[rank], schedules[rank]));
  }
  return CheckHops(requests[0], run);
}

}  // namespace muster
