#include "collectives/schedule/symbolic_run.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "collectives/schedule/step_rules.h"

namespace muster::schedule_internal {
namespace {

bool Reduces(Collective collective) {
  return collective == Collective::kAllReduce || collective == Collective::kReduceScatter;
}

}  // namespace

SymbolicRun::SymbolicRun(absl::Span<const ScheduleRequest> requests,
                         absl::Span<const Schedule> schedules)
    : requests_(requests),
      schedules_(schedules),
      size_(requests[0].size),
      collective_(requests[0].collective),
      pool_(size_, requests[0].half_precision),
      ranks_(size_) {
  const std::vector<int64_t> counts = collective_ == Collective::kAllReduce
                                          ? EvenCounts(requests[0].count, size_)
                                          : requests[0].counts;
  for (size_t owner = 0; owner < counts.size(); ++owner) {
    owners_.insert(owners_.end(), counts[owner], static_cast<Rank>(owner));
  }
  if (Reduces(collective_)) {
    for (Rank owner = 0; owner < size_; ++owner) canonical_.push_back(pool_.Canonical(owner));
  }
  for (Rank rank = 0; rank < size_; ++rank) {
    for (const BufferName buffer :
         {BufferName::kInput, BufferName::kOutput, BufferName::kScratch}) {
      ranks_[rank].buffers[static_cast<int>(buffer)].resize(
          BufferCount(requests[rank], schedules[rank], buffer));
    }
    FillInputs(rank);
  }
}

void SymbolicRun::FillInputs(Rank rank) {
  const ScheduleRequest& request = requests_[rank];
  const bool named_input = !request.in_place || collective_ == Collective::kReduceScatter;
  BufferName buffer = named_input ? BufferName::kInput : BufferName::kOutput;
  int64_t count = InputCount(request);
  int64_t position = 0;
  if (collective_ == Collective::kAllGather) position = OwnOffset(request);
  int64_t offset = named_input ? 0 : position;
  if (collective_ == Collective::kBarrier) {
    buffer = BufferName::kScratch;
    offset = 0;
    count = std::min<int64_t>(1, schedules_[rank].scratch_count);
  }
  auto& values = ranks_[rank].buffers[static_cast<int>(buffer)];
  for (int64_t i = 0; i < count; ++i) {
    values[offset + i] = {.expression = rank, .hops = 0, .position = position + i};
  }
}

const ScheduleStep* SymbolicRun::NextStep(Rank rank) const {
  const auto& steps = schedules_[rank].steps;
  return ranks_[rank].next_step < steps.size() ? &steps[ranks_[rank].next_step] : nullptr;
}

absl::Status SymbolicRun::ErrorAt(Rank rank, const std::string& problem) const {
  return StepError(rank, ranks_[rank].next_step, *NextStep(rank), problem);
}

absl::Status SymbolicRun::Load(Rank rank, const Slice& slice,
                               std::vector<SymbolicValue>& values) const {
  const auto& buffer = ranks_[rank].buffers[static_cast<int>(slice.buffer)];
  values.assign(buffer.begin() + slice.offset, buffer.begin() + slice.offset + slice.count);
  for (int64_t i = 0; i < slice.count; ++i) {
    if (values[i].expression == kUndefined) {
      return ErrorAt(rank, absl::StrCat("reads ", Name(slice.buffer), "[", slice.offset + i,
                                        "], which was never written"));
    }
  }
  return absl::OkStatus();
}

ExpressionId SymbolicRun::ExpectedAt(int64_t position) {
  switch (collective_) {
    case Collective::kAllReduce:
    case Collective::kReduceScatter:
      return canonical_[owners_[position]];
    case Collective::kAllGather:
      return owners_[position];
    case Collective::kBroadcast:
      return requests_[0].root;
    case Collective::kBarrier:
      break;
  }
  return kUndefined;
}

// Reduces the operands (one or more) element by element into step.target.
absl::Status SymbolicRun::Store(Rank rank, const ScheduleStep& step,
                                const std::vector<std::vector<SymbolicValue>>& operands) {
  auto& buffer = ranks_[rank].buffers[static_cast<int>(step.target.buffer)];
  std::vector<ExpressionId> expressions(operands.size());
  for (int64_t i = 0; i < step.target.count; ++i) {
    SymbolicValue result = operands[0][i];
    for (size_t k = 0; k < operands.size(); ++k) {
      const SymbolicValue& operand = operands[k][i];
      if (operand.position != result.position) {
        return ErrorAt(rank, absl::StrCat("adds position ", operand.position, " to position ",
                                          result.position));
      }
      expressions[k] = operand.expression;
      result.hops = std::max(result.hops, operand.hops);
    }
    result.expression = pool_.Reduce(expressions);
    const bool reduces = step.kind == StepKind::kReduce || step.kind == StepKind::kRecvReduce;
    if (reduces && Reduces(collective_)) {
      const bool whole = result.expression == ExpectedAt(result.position);
      if (whole != step.completes_sum) {
        return ErrorAt(rank, absl::StrCat("makes position ", result.position, " ",
                                          pool_.ToString(result.expression), ", expected ",
                                          pool_.ToString(ExpectedAt(result.position)),
                                          " in the end, and completes_sum is ",
                                          step.completes_sum ? "set" : "not set"));
      }
    } else if (step.completes_sum) {
      return ErrorAt(rank, "says it completes a sum in a collective that has none");
    }
    buffer[step.target.offset + i] = result;
  }
  return absl::OkStatus();
}

absl::Status SymbolicRun::RunLocal(Rank rank, const ScheduleStep& step) {
  std::vector<std::vector<SymbolicValue>> operands(
      step.kind == StepKind::kReduce ? step.sources.size() : 1);
  for (size_t k = 0; k < operands.size(); ++k) {
    const Slice& slice = step.kind == StepKind::kReduce ? step.sources[k] : step.source;
    MUSTER_RETURN_IF_ERROR(Load(rank, slice, operands[k]));
  }
  return Store(rank, step, operands);
}

absl::Status SymbolicRun::Transfer(Rank sender, Rank receiver) {
  const ScheduleStep& send = *NextStep(sender);
  const ScheduleStep& receive = *NextStep(receiver);
  std::vector<std::vector<SymbolicValue>> operands(1);
  MUSTER_RETURN_IF_ERROR(Load(sender, send.source, operands[0]));
  for (SymbolicValue& value : operands[0]) {
    ++value.hops;
    if (value.hops > hops_) {
      hops_ = value.hops;
      longest_chain_rank_ = receiver;
      longest_chain_step_ = ranks_[receiver].next_step;
    }
  }
  if (receive.kind == StepKind::kRecvReduce) {
    MUSTER_RETURN_IF_ERROR(Load(receiver, receive.source, operands.emplace_back()));
  }
  return Store(receiver, receive, operands);
}

absl::Status SymbolicRun::Advance(Rank rank, std::vector<Rank>& runnable) {
  while (const ScheduleStep* step = NextStep(rank)) {
    if (!IsSend(*step) && !IsReceive(*step)) {
      MUSTER_RETURN_IF_ERROR(RunLocal(rank, *step));
      ++ranks_[rank].next_step;
      continue;
    }
    const ScheduleStep* other = NextStep(step->peer);
    const bool meets = other != nullptr && other->peer == rank &&
                       (IsSend(*step) ? IsReceive(*other) : IsSend(*other));
    if (!meets) return absl::OkStatus();
    const Rank peer = step->peer;
    MUSTER_RETURN_IF_ERROR(IsSend(*step) ? Transfer(rank, peer) : Transfer(peer, rank));
    ++ranks_[rank].next_step;
    ++ranks_[peer].next_step;
    runnable.push_back(peer);
  }
  return absl::OkStatus();
}

absl::Status SymbolicRun::Run() {
  std::vector<Rank> runnable;
  for (Rank rank = 0; rank < size_; ++rank) runnable.push_back(rank);
  while (!runnable.empty()) {
    const Rank rank = runnable.back();
    runnable.pop_back();
    MUSTER_RETURN_IF_ERROR(Advance(rank, runnable));
  }
  return DeadlockError();
}

absl::Status SymbolicRun::DeadlockError() const {
  for (Rank rank = 0; rank < size_; ++rank) {
    const ScheduleStep* step = NextStep(rank);
    if (step == nullptr) continue;
    const ScheduleStep* other = NextStep(step->peer);
    return ErrorAt(
        rank, absl::StrCat("deadlock: rank ", step->peer, " never meets it; it ",
                           other == nullptr
                               ? "has finished"
                               : absl::StrCat("waits in its step ", ranks_[step->peer].next_step,
                                              " (", Describe(*other), ")")));
  }
  return absl::OkStatus();
}

absl::Status SymbolicRun::CheckBarrier(Rank rank) const {
  std::vector<Rank> missing(size_);
  if (size_ == 1) return absl::OkStatus();
  for (const SymbolicValue& value : ranks_[rank].buffers[static_cast<int>(BufferName::kScratch)]) {
    const std::vector<Rank> unheard = pool_.MissingRanks(value.expression);
    if (unheard.size() < missing.size()) missing = unheard;
  }
  if (missing.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("rank ", rank, " leaves the barrier without a word from ranks ",
                   absl::StrJoin(missing, ", ")));
}

absl::Status SymbolicRun::CheckResults() {
  for (Rank rank = 0; rank < size_; ++rank) {
    if (collective_ == Collective::kBarrier) {
      MUSTER_RETURN_IF_ERROR(CheckBarrier(rank));
      continue;
    }
    const ScheduleRequest& request = requests_[rank];
    const bool scatters = collective_ == Collective::kReduceScatter;
    const int64_t first = scatters ? OwnOffset(request) : 0;
    const bool in_input = scatters && request.in_place;
    const auto& values =
        ranks_[rank].buffers[static_cast<int>(in_input ? BufferName::kInput : BufferName::kOutput)];
    for (int64_t i = 0; i < OutputCount(request); ++i) {
      const SymbolicValue& value = values[in_input ? first + i : i];
      const int64_t position = first + i;
      if (value.expression != ExpectedAt(position) || value.position != position) {
        return absl::FailedPreconditionError(absl::StrCat(
            "rank ", rank, " after its last step: output element ", i, " is ",
            pool_.ToString(value.expression), " of position ", value.position, "; expected ",
            pool_.ToString(ExpectedAt(position)), " of position ", position));
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace muster::schedule_internal
