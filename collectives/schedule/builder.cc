#include "collectives/schedule/builder.h"

#include "base/check.h"

namespace muster::schedule_internal {

ScheduleStep Send(Rank peer, Slice source) {
  return {.kind = StepKind::kSend, .peer = peer, .source = source};
}

ScheduleStep Recv(Rank peer, Slice target) {
  return {.kind = StepKind::kRecv, .peer = peer, .target = target};
}

ScheduleStep RecvReduce(Rank peer, Slice source, Slice target, bool completes_sum) {
  return {.kind = StepKind::kRecvReduce,
          .peer = peer,
          .source = source,
          .target = target,
          .completes_sum = completes_sum};
}

ScheduleBuilder::ScheduleBuilder(const ScheduleRequest& request)
    : request_(request),
      counts_(request.collective == Collective::kAllReduce ? EvenCounts(request.count, request.size)
                                                           : request.counts) {
  int64_t offset = 0;
  for (const int64_t count : counts_) {
    offsets_.push_back(offset);
    offset += count;
  }
}

Slice ScheduleBuilder::Input(Rank chunk) const {
  switch (request_.collective) {
    case Collective::kAllReduce:
      return {request_.in_place ? BufferName::kOutput : BufferName::kInput, offsets_[chunk],
              counts_[chunk]};
    case Collective::kReduceScatter:
      return {BufferName::kInput, offsets_[chunk], counts_[chunk]};
    case Collective::kAllGather:
      MUSTER_CHECK_EQ(chunk, rank()) << "a rank contributes its own chunk only";
      if (request_.in_place) return Output(chunk);
      return {BufferName::kInput, 0, counts_[chunk]};
    case Collective::kBroadcast:
    case Collective::kBarrier:
      break;
  }
  MUSTER_CHECK(false) << Name(request_.collective) << " has no chunks";
  return {};
}

Slice ScheduleBuilder::Output(Rank chunk) const {
  switch (request_.collective) {
    case Collective::kAllReduce:
    case Collective::kAllGather:
      return {BufferName::kOutput, offsets_[chunk], counts_[chunk]};
    case Collective::kReduceScatter:
      MUSTER_CHECK_EQ(chunk, rank()) << "a rank keeps its own chunk only";
      if (request_.in_place) return Input(chunk);
      return {BufferName::kOutput, 0, counts_[chunk]};
    case Collective::kBroadcast:
    case Collective::kBarrier:
      break;
  }
  MUSTER_CHECK(false) << Name(request_.collective) << " has no chunks";
  return {};
}

Slice ScheduleBuilder::WholeInput() const {
  return {request_.in_place ? BufferName::kOutput : BufferName::kInput, 0, request_.count};
}

Slice ScheduleBuilder::WholeOutput() const { return {BufferName::kOutput, 0, request_.count}; }

void ScheduleBuilder::Add(ScheduleStep step) {
  const bool sends = step.kind == StepKind::kSend;
  if ((sends ? step.source.count : step.target.count) == 0) return;
  schedule_.steps.push_back(std::move(step));
}

void ScheduleBuilder::AddCopy(Slice source, Slice target) {
  if (source == target) return;
  Add({.kind = StepKind::kCopy, .source = source, .target = target});
}

void ScheduleBuilder::AddExchange(int distance, ScheduleStep send, ScheduleStep receive) {
  const bool receive_first = (rank() / distance) % 2 == 1;
  if (receive_first) {
    Add(std::move(receive));
    Add(std::move(send));
  } else {
    Add(std::move(send));
    Add(std::move(receive));
  }
}

}  // namespace muster::schedule_internal
