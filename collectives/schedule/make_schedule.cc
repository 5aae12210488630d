#include "collectives/schedule/make_schedule.h"

#include <algorithm>

#include "base/check.h"
#include "base/status_macros.h"
#include "collectives/schedule/all_to_all.h"
#include "collectives/schedule/barrier.h"
#include "collectives/schedule/broadcast.h"
#include "collectives/schedule/circulant.h"
#include "collectives/schedule/direct.h"
#include "collectives/schedule/double_tree.h"
#include "collectives/schedule/hierarchical.h"
#include "collectives/schedule/hierarchical_push_pull.h"
#include "collectives/schedule/one_shot.h"
#include "collectives/schedule/push_pull.h"
#include "collectives/schedule/recursive_doubling.h"
#include "collectives/schedule/ring.h"
#include "collectives/schedule/rooted.h"
#include "collectives/schedule/star.h"

namespace muster {
namespace {

using Generator = Schedule (*)(const ScheduleRequest&);

struct Row {
  Collective collective;
  Algorithm algorithm;
  Generator generator;
};

// One row for each entry of AlgorithmsOf.
constexpr Row kGenerators[] = {
    {Collective::kAllReduce, Algorithm::kRing, schedule_internal::RingAllReduce},
    {Collective::kAllReduce, Algorithm::kDirect, schedule_internal::DirectAllReduce},
    {Collective::kAllReduce, Algorithm::kRecursiveDoubling,
     schedule_internal::RecursiveDoublingAllReduce},
    {Collective::kAllReduce, Algorithm::kHalvingDoubling,
     schedule_internal::HalvingDoublingAllReduce},
    {Collective::kAllReduce, Algorithm::kDoubleTree, schedule_internal::DoubleTreeAllReduce},
    {Collective::kAllReduce, Algorithm::kHierarchical, schedule_internal::HierarchicalAllReduce},
    {Collective::kAllReduce, Algorithm::kStar, schedule_internal::StarAllReduce},
    {Collective::kAllReduce, Algorithm::kOneShot, schedule_internal::OneShotAllReduce},
    {Collective::kReduceScatter, Algorithm::kRing, schedule_internal::RingReduceScatter},
    {Collective::kReduceScatter, Algorithm::kDirect, schedule_internal::DirectReduceScatter},
    {Collective::kReduceScatter, Algorithm::kHalvingDoubling,
     schedule_internal::HalvingDoublingReduceScatter},
    {Collective::kAllGather, Algorithm::kRing, schedule_internal::RingAllGather},
    {Collective::kAllGather, Algorithm::kDirect, schedule_internal::DirectAllGather},
    {Collective::kAllGather, Algorithm::kHalvingDoubling,
     schedule_internal::HalvingDoublingAllGather},
    {Collective::kAllGather, Algorithm::kBruck, schedule_internal::BruckAllGather},
    {Collective::kBroadcast, Algorithm::kRing, schedule_internal::ChainBroadcast},
    {Collective::kBroadcast, Algorithm::kDirect, schedule_internal::DirectBroadcast},
    {Collective::kBroadcast, Algorithm::kBinomialTree, schedule_internal::BinomialBroadcast},
    {Collective::kBroadcast, Algorithm::kScatterAllGather,
     schedule_internal::ScatterAllGatherBroadcast},
    {Collective::kBarrier, Algorithm::kRing, schedule_internal::DisseminationBarrier},
    {Collective::kBarrier, Algorithm::kDirect, schedule_internal::DisseminationBarrier},
    {Collective::kReduce, Algorithm::kRing, schedule_internal::RingReduce},
    {Collective::kReduce, Algorithm::kDirect, schedule_internal::DirectReduce},
    {Collective::kReduce, Algorithm::kBinomialTree, schedule_internal::BinomialReduce},
    {Collective::kGather, Algorithm::kDirect, schedule_internal::DirectGather},
    {Collective::kGather, Algorithm::kBinomialTree, schedule_internal::BinomialGather},
    {Collective::kScatter, Algorithm::kDirect, schedule_internal::DirectScatter},
    {Collective::kScatter, Algorithm::kBinomialTree, schedule_internal::BinomialScatter},
    {Collective::kAllToAll, Algorithm::kDirect, schedule_internal::DirectAllToAll},
    {Collective::kAllToAll, Algorithm::kBruck, schedule_internal::BruckAllToAll},
    {Collective::kSendReceive, Algorithm::kDirect, schedule_internal::DirectSendReceive},
    {Collective::kPush, Algorithm::kDirect, schedule_internal::DirectPush},
    {Collective::kPush, Algorithm::kHierarchical, schedule_internal::HierarchicalPush},
    {Collective::kPull, Algorithm::kDirect, schedule_internal::DirectPull},
    {Collective::kPull, Algorithm::kHierarchical, schedule_internal::HierarchicalPull},
};

// That a rank may send in one shot: as long as this takes no longer than a hop. On loopback an
// all-reduce is faster directly from there on.
constexpr int64_t kOneShotBytes = 48 << 10;

}  // namespace

absl::StatusOr<Schedule> MakeSchedule(const ScheduleRequest& request) {
  MUSTER_RETURN_IF_ERROR(ValidateRequest(request));
  for (const Row& row : kGenerators) {
    if (row.collective == request.collective && row.algorithm == request.algorithm) {
      return row.generator(request);
    }
  }
  MUSTER_CHECK(false) << "no generator for " << Name(request.collective) << " by "
                      << Name(request.algorithm);
  return Schedule();
}

Algorithm ChooseAlgorithm(Collective collective, bool half_precision, int64_t bytes, int size,
                          int64_t direct_limit_bytes) {
  MUSTER_CHECK(bytes >= 0 && size >= 1) << bytes << " bytes, " << size << " ranks";
  const bool small = bytes <= direct_limit_bytes;
  switch (collective) {
    case Collective::kBarrier:
    case Collective::kGather:
    case Collective::kScatter:
    case Collective::kAllToAll:
    case Collective::kSendReceive:
    case Collective::kPush:
    case Collective::kPull:
      return Algorithm::kDirect;
    case Collective::kBroadcast:
      return small ? Algorithm::kBinomialTree : Algorithm::kRing;
    case Collective::kReduceScatter:
      // The ring would run the direct exchange anyway (ring.h).
      return small || half_precision ? Algorithm::kDirect : Algorithm::kRing;
    case Collective::kAllReduce:
      if (small && bytes <= kOneShotBytes / std::max(1, size - 1)) return Algorithm::kOneShot;
      break;
    case Collective::kAllGather:
    case Collective::kReduce:
      break;
  }
  return small ? Algorithm::kDirect : Algorithm::kRing;
}

}  // namespace muster
