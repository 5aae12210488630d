// Rows of the cost table that are more than a line (cost.h). Private to this folder; pure.
#ifndef MUSTER_COLLECTIVES_SCHEDULE_COST_ROWS_H_
#define MUSTER_COLLECTIVES_SCHEDULE_COST_ROWS_H_

#include <cstdint>
#include <vector>

#include "collectives/schedule/cost.h"
#include "collectives/schedule/schedule_request.h"

namespace muster::schedule_internal {

int64_t CeilLog2(int64_t value);   // of value >= 1
int64_t FloorLog2(int64_t value);  // of value >= 1

ScheduleCost operator+(const ScheduleCost& a, const ScheduleCost& b);

// The chunks of a request as the formulas see them, from one of their owners.
struct Chunks {
  explicit Chunks(const ScheduleRequest& request);
  Chunks(std::vector<int64_t> counts, int64_t rank);

  int64_t At(int64_t chunk) const { return counts[chunk % size]; }
  int64_t Own() const { return counts[rank]; }
  int64_t FilledAt(int64_t chunk) const { return At(chunk) > 0 ? 1 : 0; }
  // `count` chunks from `first` on, going around.
  int64_t Sum(int64_t first, int64_t count) const;
  // Messages that carry them: one on either side of the end of the vector, if it has elements.
  int64_t Messages(int64_t first, int64_t count) const;

  std::vector<int64_t> counts;
  int64_t rank;
  int64_t size;
  int64_t total = 0;
  int64_t filled = 0;  // chunks that are not empty
};

// `keeps_sums_apart`: in scratch, not where the result of an all-reduce will lie.
ScheduleCost HalvingReduceScatterCost(const Chunks& chunks, bool keeps_sums_apart);
ScheduleCost DoublingAllGatherCost(const Chunks& chunks);
ScheduleCost BruckAllGatherCost(const Chunks& chunks);

ScheduleCost RecursiveDoublingCost(const ScheduleRequest& request);
ScheduleCost DoubleTreeCost(const ScheduleRequest& request);
ScheduleCost HierarchicalCost(const ScheduleRequest& request);
ScheduleCost HierarchicalPushCost(const ScheduleRequest& request);
ScheduleCost HierarchicalPullCost(const ScheduleRequest& request);
ScheduleCost ScatterAllGatherBroadcastCost(const ScheduleRequest& request);
ScheduleCost BinomialGatherCost(const ScheduleRequest& request);
ScheduleCost BinomialScatterCost(const ScheduleRequest& request);
ScheduleCost BruckAllToAllCost(const ScheduleRequest& request);

// Of the rank in the binomial tree from the root.
int64_t BinomialChildren(const ScheduleRequest& request);

}  // namespace muster::schedule_internal

#endif  // MUSTER_COLLECTIVES_SCHEDULE_COST_ROWS_H_
