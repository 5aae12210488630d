#include "collectives/schedule/symbolic_run.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "collectives/schedule/step_rules.h"

namespace muster::schedule_internal {
namespace {

// Each chunk of the vector is some rank's own; elsewhere all of it is one rank's.
bool HasOwners(Collective collective) {
  return collective != Collective::kBroadcast && collective != Collective::kSendReceive;
}

// The position of the first element that a rank has in its input. The blocks of an all-to-all count
// from rank to rank.
int64_t FirstInputPosition(const ScheduleRequest& request) {
  switch (request.collective) {
    case Collective::kAllGather:
    case Collective::kGather:
    case Collective::kPull:
      return OwnOffset(request);
    case Collective::kAllToAll: {
      int64_t position = 0;
      for (Rank from = 0; from < request.rank; ++from) {
        for (Rank to = 0; to < request.size; ++to) position += BlockCount(request, from, to);
      }
      return position;
    }
    case Collective::kAllReduce:
    case Collective::kReduceScatter:
    case Collective::kBroadcast:
    case Collective::kBarrier:
    case Collective::kReduce:
    case Collective::kScatter:
    case Collective::kSendReceive:
    case Collective::kPush:
      break;
  }
  return 0;
}

}  // namespace

SymbolicRun::SymbolicRun(absl::Span<const ScheduleRequest> requests,
                         absl::Span<const Schedule> schedules)
    : requests_(requests),
      schedules_(schedules),
      size_(requests[0].size),
      collective_(requests[0].collective),
      canonical_order_(KeepsCanonicalOrder(collective_, requests[0].algorithm)),
      pool_(ContributorCount(requests[0]), requests[0].half_precision, !canonical_order_),
      ranks_(size_) {
  std::vector<int64_t> counts;
  if (HasOwners(collective_)) counts = OrderCounts(requests[0]);
  for (size_t owner = 0; owner < counts.size(); ++owner) {
    owners_.insert(owners_.end(), counts[owner], static_cast<Rank>(owner));
  }
  if (Reduces(collective_) && canonical_order_) {
    for (size_t owner = 0; owner < counts.size(); ++owner) {
      canonical_.push_back(pool_.Canonical(static_cast<Rank>(owner)));
    }
  }
  agreed_.assign(owners_.size(), kUndefined);
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
  if (collective_ == Collective::kBarrier) {
    auto& tokens = ranks_[rank].buffers[static_cast<int>(BufferName::kScratch)];
    if (!tokens.empty()) tokens[0] = {.expression = rank, .hops = 0, .position = 0};
    return;
  }
  const bool in_output = SharesMemory(request) && !OutputIsChunk(collective_);
  const int64_t position = FirstInputPosition(request);
  const int64_t offset = in_output && InputIsChunk(collective_) ? position : 0;
  auto& values =
      ranks_[rank].buffers[static_cast<int>(in_output ? BufferName::kOutput : BufferName::kInput)];
  for (int64_t i = 0; i < InputCount(request); ++i) {
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

absl::Status SymbolicRun::CheckSum(Rank rank, const ScheduleStep& step,
                                   const SymbolicValue& result) {
  const bool reduces = step.kind == StepKind::kReduce || step.kind == StepKind::kRecvReduce;
  if (!reduces || !Reduces(collective_)) {
    if (!step.completes_sum) return absl::OkStatus();
    return ErrorAt(rank, "says it completes a sum in a collective that has none");
  }
  const char* const flag = step.completes_sum ? "set" : "not set";
  if (canonical_order_) {
    const ExpressionId expected = canonical_[owners_[result.position]];
    if ((result.expression == expected) == step.completes_sum) return absl::OkStatus();
    return ErrorAt(
        rank, absl::StrCat("makes position ", result.position, " ",
                           pool_.ToString(result.expression), ", expected ",
                           pool_.ToString(expected), " in the end, and completes_sum is ", flag));
  }
  if (const Rank twice = pool_.TwiceIn(result.expression); twice >= 0) {
    return ErrorAt(rank,
                   absl::StrCat("adds the contribution of rank ", twice, " to position ",
                                result.position, " twice: ", pool_.ToString(result.expression)));
  }
  if (pool_.IsWhole(result.expression) == step.completes_sum) return absl::OkStatus();
  return ErrorAt(
      rank, absl::StrCat("makes position ", result.position, " ", pool_.ToString(result.expression),
                         ", and completes_sum is ", flag));
}

// Reduces the operands (one or more) element by element into step.target.
absl::Status SymbolicRun::Store(Rank rank, const ScheduleStep& step,
                                const std::vector<std::vector<SymbolicValue>>& operands) {
  auto& buffer = ranks_[rank].buffers[static_cast<int>(step.target.buffer)];
  std::vector<ExpressionId> expressions(operands.size());
  const auto owner_of = [this](const SymbolicValue& value) {
    return owners_.empty() ? -1 : owners_[value.position];
  };
  ExpressionId checked = kUndefined;
  Rank checked_owner = -1;
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
    // Elements in a row mostly hold the same sum.
    if (i == 0 || result.expression != checked || owner_of(result) != checked_owner) {
      MUSTER_RETURN_IF_ERROR(CheckSum(rank, step, result));
      checked = result.expression;
      checked_owner = owner_of(result);
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

std::vector<SymbolicValue> SymbolicRun::ExpectedOutput(Rank rank) const {
  const ScheduleRequest& request = requests_[rank];
  std::vector<SymbolicValue> output;
  if (collective_ == Collective::kAllToAll) {
    for (Rank from = 0; from < size_; ++from) {
      int64_t position = FirstInputPosition(requests_[from]);
      for (Rank to = 0; to < rank; ++to) position += BlockCount(request, from, to);
      for (int64_t i = 0; i < BlockCount(request, from, rank); ++i) {
        output.push_back({.expression = from, .hops = 0, .position = position + i});
      }
    }
    return output;
  }
  const int64_t first = OutputIsChunk(collective_) ? OwnOffset(request) : 0;
  for (int64_t i = 0; i < OutputCount(request); ++i) {
    SymbolicValue value = {.expression = request.root, .hops = 0, .position = first + i};
    if (Reduces(collective_)) {
      value.expression = canonical_order_ ? canonical_[owners_[value.position]] : kUndefined;
    } else if (InputIsChunk(collective_)) {
      value.expression = owners_[value.position];
    }
    output.push_back(value);
  }
  return output;
}

absl::Status SymbolicRun::CheckOutput(Rank rank) {
  const ScheduleRequest& request = requests_[rank];
  const bool in_input = SharesMemory(request) && OutputIsChunk(collective_);
  const int64_t first = in_input ? OwnOffset(request) : 0;
  const auto& values =
      ranks_[rank].buffers[static_cast<int>(in_input ? BufferName::kInput : BufferName::kOutput)];
  const std::vector<SymbolicValue> expected = ExpectedOutput(rank);
  for (size_t i = 0; i < expected.size(); ++i) {
    const SymbolicValue& value = values[first + static_cast<int64_t>(i)];
    const int64_t position = expected[i].position;
    ExpressionId wanted = expected[i].expression;
    if (wanted == kUndefined && pool_.IsWhole(value.expression)) {
      // Any whole sum will do, as long as it is the same on every rank.
      if (agreed_[position] == kUndefined) agreed_[position] = value.expression;
      wanted = agreed_[position];
    }
    if (wanted != kUndefined && value.expression == wanted && value.position == position) continue;
    return absl::FailedPreconditionError(absl::StrCat(
        "rank ", rank, " after its last step: output element ", i, " is ",
        pool_.ToString(value.expression), " of position ", value.position, "; expected ",
        wanted == kUndefined ? "every contribution once" : pool_.ToString(wanted), " of position ",
        position));
  }
  return absl::OkStatus();
}

absl::Status SymbolicRun::CheckResults() {
  for (Rank rank = 0; rank < size_; ++rank) {
    MUSTER_RETURN_IF_ERROR(collective_ == Collective::kBarrier ? CheckBarrier(rank)
                                                               : CheckOutput(rank));
  }
  return absl::OkStatus();
}

}  // namespace muster::schedule_internal
