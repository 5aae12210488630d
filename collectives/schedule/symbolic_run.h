// Runs the schedules of all ranks over symbols, in strict step order and under rendezvous. Used by
// the checker only. Not thread-safe.
#ifndef MUSTER_COLLECTIVES_SCHEDULE_SYMBOLIC_RUN_H_
#define MUSTER_COLLECTIVES_SCHEDULE_SYMBOLIC_RUN_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "collectives/schedule/expression.h"
#include "collectives/schedule/schedule.h"
#include "collectives/schedule/schedule_request.h"

namespace muster::schedule_internal {

// What one element of a buffer holds.
struct SymbolicValue {
  ExpressionId expression = kUndefined;
  int32_t hops = 0;      // messages in the longest chain that led to it
  int64_t position = 0;  // index within the whole vector
};

class SymbolicRun {
 public:
  // Requires: requests are valid and fit together; the schedules passed CheckEachStep and
  // CheckPairing. Both outlive the run.
  SymbolicRun(absl::Span<const ScheduleRequest> requests, absl::Span<const Schedule> schedules);

  // Runs to the end. Errors: a read of an undefined value, a sum of unlike positions, a wrong
  // completes_sum, a deadlock.
  absl::Status Run();
  // After Run: is every result the canonical one?
  absl::Status CheckResults();
  // After Run: the longest chain of messages, and the rank and step where it ends.
  int64_t hops() const { return hops_; }
  Rank longest_chain_rank() const { return longest_chain_rank_; }
  size_t longest_chain_step() const { return longest_chain_step_; }

 private:
  struct RankState {
    size_t next_step = 0;
    std::array<std::vector<SymbolicValue>, 3> buffers;  // by BufferName
  };

  void FillInputs(Rank rank);
  // Steps of `rank` until it is done or waits for a peer; adds peers it set free to `runnable`.
  absl::Status Advance(Rank rank, std::vector<Rank>& runnable);
  absl::Status RunLocal(Rank rank, const ScheduleStep& step);
  absl::Status Transfer(Rank sender, Rank receiver);
  absl::Status Store(Rank rank, const ScheduleStep& step,
                     const std::vector<std::vector<SymbolicValue>>& operands);
  absl::Status Load(Rank rank, const Slice& slice, std::vector<SymbolicValue>& values) const;
  absl::Status DeadlockError() const;
  const ScheduleStep* NextStep(Rank rank) const;
  absl::Status ErrorAt(Rank rank, const std::string& problem) const;
  // What a sum, or its step, does wrong.
  absl::Status CheckSum(Rank rank, const ScheduleStep& step, const SymbolicValue& result);
  // The output a rank must end with; expressions of sums that may have any order are kUndefined.
  std::vector<SymbolicValue> ExpectedOutput(Rank rank) const;
  absl::Status CheckOutput(Rank rank);
  absl::Status CheckBarrier(Rank rank) const;

  const absl::Span<const ScheduleRequest> requests_;
  const absl::Span<const Schedule> schedules_;
  const int size_;
  const Collective collective_;
  const bool canonical_order_;  // the order of sums is prescribed
  // Of each position, where chunks have owners: whose it is, or in whose order it is summed.
  std::vector<Rank> owners_;
  ExpressionPool pool_;
  std::vector<ExpressionId> canonical_;  // per owner, for reducing collectives
  std::vector<ExpressionId> agreed_;     // per position, where sums may have any order
  std::vector<RankState> ranks_;
  int64_t hops_ = 0;
  Rank longest_chain_rank_ = 0;
  size_t longest_chain_step_ = 0;
};

}  // namespace muster::schedule_internal

#endif  // MUSTER_COLLECTIVES_SCHEDULE_SYMBOLIC_RUN_H_
