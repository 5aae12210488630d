#include "collectives/schedule/make_schedule.h"

#include "base/check.h"
#include "base/status_macros.h"
#include "collectives/schedule/barrier.h"
#include "collectives/schedule/broadcast.h"
#include "collectives/schedule/direct.h"
#include "collectives/schedule/ring.h"

namespace muster {

absl::StatusOr<Schedule> MakeSchedule(const ScheduleRequest& request) {
  MUSTER_RETURN_IF_ERROR(ValidateRequest(request));
  const bool ring = request.algorithm == Algorithm::kRing;
  using namespace schedule_internal;
  switch (request.collective) {
    case Collective::kAllReduce:
      return ring ? RingAllReduce(request) : DirectAllReduce(request);
    case Collective::kReduceScatter:
      return ring ? RingReduceScatter(request) : DirectReduceScatter(request);
    case Collective::kAllGather:
      return ring ? RingAllGather(request) : DirectAllGather(request);
    case Collective::kBroadcast:
      return ring ? ChainBroadcast(request) : BinomialBroadcast(request);
    case Collective::kBarrier:
      return DisseminationBarrier(request);
  }
  return absl::InternalError("unreachable: the request was validated");
}

Algorithm ChooseAlgorithm(Collective collective, bool half_precision, int64_t bytes, int size,
                          int64_t direct_limit_bytes) {
  MUSTER_CHECK(bytes >= 0 && size >= 1) << bytes << " bytes, " << size << " ranks";
  switch (collective) {
    case Collective::kBarrier:
      return Algorithm::kDirect;
    case Collective::kReduceScatter:
      // The ring would run the direct exchange anyway (ring.h).
      if (half_precision) return Algorithm::kDirect;
      break;
    case Collective::kAllReduce:
    case Collective::kAllGather:
    case Collective::kBroadcast:
      break;
  }
  return bytes <= direct_limit_bytes ? Algorithm::kDirect : Algorithm::kRing;
}

}  // namespace muster
