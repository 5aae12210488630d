#include "collectives/schedule/step_rules.h"

#include <map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace muster::schedule_internal {
namespace {

std::string Describe(const Slice& slice) {
  return absl::StrCat(Name(slice.buffer), "[", slice.offset, ", ", slice.offset + slice.count, ")");
}

bool Overlap(const Slice& a, const Slice& b) {
  return a.buffer == b.buffer && a.offset < b.offset + b.count && b.offset < a.offset + a.count;
}

bool Writes(const ScheduleStep& step) { return step.kind != StepKind::kSend; }

// Empty, or what is wrong with the slice.
std::string SliceProblem(const ScheduleRequest& request, const Schedule& schedule,
                         const Slice& slice) {
  const int64_t limit = BufferCount(request, schedule, slice.buffer);
  if (slice.count <= 0) return absl::StrCat(Describe(slice), " moves nothing");
  if (slice.offset < 0 || slice.offset > limit - slice.count) {
    return absl::StrCat(Describe(slice), " is outside the buffer, which has ", limit,
                        " elements under this name");
  }
  return "";
}

std::string WriteProblem(const ScheduleRequest& request, const ScheduleStep& step) {
  const Slice& target = step.target;
  if (target.buffer == BufferName::kInput) {
    if (!SharesMemory(request)) return "writes to the input";
    const int64_t own = OwnOffset(request);
    if (target.offset < own || target.offset + target.count > own + request.counts[request.rank]) {
      return "writes to the input outside the rank's own chunk";
    }
  }
  for (const Slice& source : SlicesReadBy(step)) {
    if (source.count != target.count) {
      return absl::StrCat("reads ", source.count, " elements and writes ", target.count);
    }
    if (Overlap(source, target) && (source != target || step.kind == StepKind::kCopy)) {
      return absl::StrCat("target overlaps source ", Describe(source));
    }
  }
  return "";
}

std::string StepProblem(const ScheduleRequest& request, const Schedule& schedule,
                        const ScheduleStep& step) {
  if ((IsSend(step) || IsReceive(step)) &&
      (step.peer < 0 || step.peer >= request.size || step.peer == request.rank)) {
    return absl::StrCat("peer ", step.peer, " is not another rank of ", request.size);
  }
  if (step.kind == StepKind::kReduce && step.sources.empty()) return "has no sources";
  for (const Slice& source : SlicesReadBy(step)) {
    std::string problem = SliceProblem(request, schedule, source);
    if (!problem.empty()) return problem;
  }
  if (step.completes_sum && step.kind != StepKind::kRecvReduce && step.kind != StepKind::kReduce) {
    return "says it completes a sum, but does not reduce";
  }
  if (!Writes(step)) return "";
  const std::string problem = SliceProblem(request, schedule, step.target);
  return problem.empty() ? WriteProblem(request, step) : problem;
}

}  // namespace

bool IsSend(const ScheduleStep& step) { return step.kind == StepKind::kSend; }

bool IsReceive(const ScheduleStep& step) {
  return step.kind == StepKind::kRecv || step.kind == StepKind::kRecvReduce;
}

std::string Describe(const ScheduleStep& step) {
  std::string text = Name(step.kind);
  for (const Slice& source : SlicesReadBy(step)) absl::StrAppend(&text, " ", Describe(source));
  if (Writes(step)) absl::StrAppend(&text, " into ", Describe(step.target));
  if (IsSend(step)) absl::StrAppend(&text, " to ", step.peer);
  if (IsReceive(step)) absl::StrAppend(&text, " from ", step.peer);
  return text;
}

absl::Status StepError(Rank rank, size_t index, const ScheduleStep& step,
                       absl::string_view problem) {
  return absl::FailedPreconditionError(
      absl::StrCat("rank ", rank, " step ", index, " (", Describe(step), "): ", problem));
}

int64_t BufferCount(const ScheduleRequest& request, const Schedule& schedule, BufferName buffer) {
  const bool input_is_larger = OutputIsChunk(request.collective);
  const bool one_memory = SharesMemory(request);
  switch (buffer) {
    case BufferName::kInput:
      return one_memory && !input_is_larger ? 0 : InputCount(request);
    case BufferName::kOutput:
      return one_memory && input_is_larger ? 0 : OutputCount(request);
    case BufferName::kScratch:
      return schedule.scratch_count;
  }
  return 0;
}

absl::Status CheckEachStep(const ScheduleRequest& request, const Schedule& schedule) {
  for (size_t i = 0; i < schedule.steps.size(); ++i) {
    const std::string problem = StepProblem(request, schedule, schedule.steps[i]);
    if (!problem.empty()) return StepError(request.rank, i, schedule.steps[i], problem);
  }
  return absl::OkStatus();
}

absl::Status CheckPairing(absl::Span<const Schedule> schedules) {
  // (sender, receiver) -> indices of the steps, in order.
  using Channel = std::pair<Rank, Rank>;
  std::map<Channel, std::vector<size_t>> sends, receives;
  for (size_t rank = 0; rank < schedules.size(); ++rank) {
    const auto& steps = schedules[rank].steps;
    for (size_t i = 0; i < steps.size(); ++i) {
      const auto self = static_cast<Rank>(rank);
      if (IsSend(steps[i])) sends[{self, steps[i].peer}].push_back(i);
      if (IsReceive(steps[i])) receives[{steps[i].peer, self}].push_back(i);
    }
  }
  for (const auto& [channel, indices] : sends) {
    const auto [sender, receiver] = channel;
    const std::vector<size_t>& partners = receives[channel];
    for (size_t n = 0; n < indices.size(); ++n) {
      const ScheduleStep& send = schedules[sender].steps[indices[n]];
      if (n >= partners.size()) {
        return StepError(sender, indices[n], send,
                         absl::StrCat("is send ", n, " to rank ", receiver,
                                      ", which receives only ", partners.size(), " from it"));
      }
      const ScheduleStep& receive = schedules[receiver].steps[partners[n]];
      if (send.source.count != receive.target.count) {
        return StepError(
            sender, indices[n], send,
            absl::StrCat("sends ", send.source.count, " elements, but rank ", receiver, " step ",
                         partners[n], " (", Describe(receive), ") expects ", receive.target.count));
      }
    }
  }
  for (const auto& [channel, indices] : receives) {
    const auto [sender, receiver] = channel;
    const size_t sent = sends[channel].size();
    if (indices.size() > sent) {
      return StepError(
          receiver, indices[sent], schedules[receiver].steps[indices[sent]],
          absl::StrCat("is receive ", sent, " from rank ", sender, ", which sends it only ", sent));
    }
  }
  return absl::OkStatus();
}

}  // namespace muster::schedule_internal
