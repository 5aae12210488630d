#include "collectives/schedule/push_pull.h"

#include <algorithm>
#include <tuple>
#include <utility>
#include <vector>

#include "collectives/schedule/builder.h"

namespace muster::schedule_internal {
namespace {

// One message between a worker and an owner, whichever way it goes.
struct Meeting {
  int round = 0;
  Rank worker = 0;
  Rank owner = 0;
};

// All ranks go through their meetings in one order, so the first of those that are left can always
// take place, even where sends wait for their receives. Within a round workers at an odd multiple
// of the distance come last: where every rank is an owner, those before send to those behind
// (ScheduleBuilder::AddShift).
bool IsBefore(const Meeting& a, const Meeting& b) {
  const auto key = [](const Meeting& meeting) {
    const int distance = std::max(1, meeting.round);
    return std::tuple(meeting.round, (meeting.worker / distance) % 2, meeting.worker);
  };
  return key(a) < key(b);
}

// Those that the rank takes part in, in order.
std::vector<Meeting> MeetingsOf(const ScheduleBuilder& builder) {
  const int workers = builder.request().contributors;
  std::vector<Rank> owners;
  for (Rank rank = 0; rank < builder.size(); ++rank) {
    if (builder.ChunkCount(rank) > 0) owners.push_back(rank);
  }
  const int count = static_cast<int>(owners.size());
  std::vector<Meeting> meetings;
  for (int number = 0; number < count; ++number) {
    const Rank owner = owners[number];
    const bool is_owner = owner == builder.rank();
    for (Rank worker = 0; worker < workers; ++worker) {
      if (worker == owner || !(is_owner || worker == builder.rank())) continue;
      meetings.push_back({Wrap(number - worker % count, count), worker, owner});
    }
  }
  std::sort(meetings.begin(), meetings.end(), IsBefore);
  return meetings;
}

// The own chunk as the sum of the workers' contributions to it, each piece in the order that
// order_counts give it.
void AddSums(ScheduleBuilder& builder, const std::vector<Slice>& contributions) {
  const std::vector<int64_t>& order_counts = builder.request().order_counts;
  const int workers = static_cast<int>(contributions.size());
  const Slice result = builder.Output(builder.rank());
  const int64_t begin = builder.ChunkOffset(builder.rank());
  int64_t order_begin = 0;
  for (int chunk = 0; chunk < workers; ++chunk) {
    const int64_t order_end = order_begin + order_counts[chunk];
    const int64_t first = std::max(begin, order_begin);
    const int64_t count = std::min(begin + result.count, order_end) - first;
    order_begin = order_end;
    if (count <= 0) continue;
    ScheduleStep sum = {.kind = StepKind::kReduce,
                        .target = Part(result, first - begin, count),
                        .completes_sum = true};
    for (int ahead = 1; ahead <= workers; ++ahead) {
      sum.sources.push_back(
          Part(contributions[Wrap(chunk + ahead, workers)], first - begin, count));
    }
    builder.Add(std::move(sum));
  }
}

}  // namespace

Schedule DirectPush(const ScheduleRequest& request) {
  ScheduleBuilder builder(request);
  const Rank rank = request.rank;
  std::vector<Slice> contributions(request.contributors);  // to the own chunk
  const bool is_worker = rank < request.contributors;
  if (is_worker) contributions[rank] = builder.Input(rank);
  bool output_is_free = !is_worker;
  for (const Meeting& meeting : MeetingsOf(builder)) {
    if (meeting.worker == rank) {
      builder.Add(Send(meeting.owner, builder.Input(meeting.owner)));
      continue;
    }
    contributions[meeting.worker] =
        output_is_free ? builder.Output(rank) : builder.TakeScratch(builder.ChunkCount(rank));
    output_is_free = false;
    builder.Add(Recv(meeting.worker, contributions[meeting.worker]));
  }
  if (builder.ChunkCount(rank) == 0) return builder.Take();
  if (request.contributors == 1) {
    builder.AddCopy(contributions[0], builder.Output(rank));
  } else {
    AddSums(builder, contributions);
  }
  return builder.Take();
}

Schedule DirectPull(const ScheduleRequest& request) {
  ScheduleBuilder builder(request);
  const Rank rank = request.rank;
  const Slice own = builder.Input(rank);
  if (rank < request.contributors) builder.AddCopy(own, builder.Output(rank));
  for (const Meeting& meeting : MeetingsOf(builder)) {
    if (meeting.worker == rank) {
      builder.Add(Recv(meeting.owner, builder.Output(meeting.owner)));
    } else {
      builder.Add(Send(meeting.worker, own));
    }
  }
  return builder.Take();
}

}  // namespace muster::schedule_internal
