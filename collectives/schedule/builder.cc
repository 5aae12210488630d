#include "collectives/schedule/builder.h"

#include <algorithm>
#include <numeric>

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

std::vector<Run> RunsOf(int64_t first, int count, int size) {
  const int begin = static_cast<int>(first % size);
  const int end = begin + count;
  if (end <= size) return {{begin, end}};
  return {{begin, size}, {0, end - size}};
}

ScheduleBuilder::ScheduleBuilder(const ScheduleRequest& request) : request_(request), offsets_(1) {
  for (const int64_t count : ChunkCounts(request)) offsets_.push_back(offsets_.back() + count);
}

Team ScheduleBuilder::Everyone(Rank first) const {
  Team team;
  team.members.resize(size());
  std::iota(team.members.begin(), team.members.end(), 0);
  std::rotate(team.members.begin(), team.members.begin() + first, team.members.end());
  team.index = Wrap(rank() - first, size());
  return team;
}

Slice ScheduleBuilder::ChunksIn(const Slice& whole, const Run& run) const {
  return Part(whole, offsets_[run.first], offsets_[run.last] - offsets_[run.first]);
}

Slice ScheduleBuilder::WholeInput() const {
  const bool named_output = SharesMemory(request_) && !OutputIsChunk(request_.collective);
  return {named_output ? BufferName::kOutput : BufferName::kInput, 0, Total()};
}

Slice ScheduleBuilder::WholeOutput() const { return {BufferName::kOutput, 0, Total()}; }

Slice ScheduleBuilder::Input(Rank chunk) const {
  if (!InputIsChunk(request_.collective)) return ChunksIn(WholeInput(), {chunk, chunk + 1});
  MUSTER_CHECK_EQ(chunk, rank()) << "a rank contributes its own chunk only";
  if (SharesMemory(request_)) return Output(chunk);
  return {BufferName::kInput, 0, ChunkCount(chunk)};
}

Slice ScheduleBuilder::Output(Rank chunk) const {
  if (!OutputIsChunk(request_.collective)) return ChunksIn(WholeOutput(), {chunk, chunk + 1});
  MUSTER_CHECK_EQ(chunk, rank()) << "a rank keeps its own chunk only";
  if (SharesMemory(request_)) return Input(chunk);
  return {BufferName::kOutput, 0, ChunkCount(chunk)};
}

void ScheduleBuilder::Add(ScheduleStep step) {
  const bool sends = step.kind == StepKind::kSend;
  if ((sends ? step.source.count : step.target.count) == 0) return;
  schedule_.steps.push_back(std::move(step));
}

void ScheduleBuilder::AddCopy(Slice source, Slice target) {
  if (source == target) return;
  Add({.kind = StepKind::kCopy, .source = source, .target = target});
}

void ScheduleBuilder::AddWholeSum(const std::vector<Slice>& contributions) {
  for (Rank chunk = 0; chunk < size(); ++chunk) {
    ScheduleStep sum = {.kind = StepKind::kReduce, .target = Output(chunk), .completes_sum = true};
    for (int ahead = 1; ahead <= size(); ++ahead) {
      sum.sources.push_back(
          ChunksIn(contributions[Wrap(chunk + ahead, size())], {chunk, chunk + 1}));
    }
    Add(std::move(sum));
  }
}

void ScheduleBuilder::AddShift(int index, int distance, std::vector<ScheduleStep> sends,
                               std::vector<ScheduleStep> receives) {
  if ((index / distance) % 2 == 1) std::swap(sends, receives);
  for (ScheduleStep& step : sends) Add(std::move(step));
  for (ScheduleStep& step : receives) Add(std::move(step));
}

void ScheduleBuilder::AddExchange(int distance, ScheduleStep send, ScheduleStep receive) {
  AddShift(rank(), distance, {std::move(send)}, {std::move(receive)});
}

Slice ScheduleBuilder::TakeScratch(int64_t count) {
  const Slice slice = {BufferName::kScratch, schedule_.scratch_count, count};
  schedule_.scratch_count += count;
  return slice;
}

}  // namespace muster::schedule_internal
