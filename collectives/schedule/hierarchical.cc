#include "collectives/schedule/hierarchical.h"

#include <algorithm>
#include <map>
#include <set>

#include "collectives/schedule/builder.h"
#include "collectives/schedule/circulant.h"

namespace muster::schedule_internal {
namespace {

// Local rank i gets the host's sum of chunk i. Contributions are added as they come.
void AddHostReduceScatter(ScheduleBuilder& builder, const Team& host, bool only_host) {
  const Slice input = builder.WholeInput();
  const int size = host.size();
  const auto chunk_of = [&](const Slice& whole, int local) {
    const Chunk chunk = ChunkOf(whole.count, size, Wrap(local, size));
    return Part(whole, chunk.offset, chunk.count);
  };
  const Slice sum = chunk_of(builder.WholeOutput(), host.index);
  Slice current = chunk_of(input, host.index);
  if (size == 1) return builder.AddCopy(current, sum);
  for (int distance = 1; distance < size; ++distance) {
    const bool last = only_host && distance == size - 1;
    builder.AddShift(host.index, distance,
                     {Send(host.At(host.index + distance), chunk_of(input, host.index + distance))},
                     {RecvReduce(host.At(host.index - distance), current, sum, last)});
    current = sum;
  }
}

void AddHostAllGather(ScheduleBuilder& builder, const Team& host) {
  const Slice output = builder.WholeOutput();
  const int size = host.size();
  const auto chunk_of = [&](int local) {
    const Chunk chunk = ChunkOf(output.count, size, Wrap(local, size));
    return Part(output, chunk.offset, chunk.count);
  };
  for (int distance = 1; distance < size; ++distance) {
    builder.AddShift(host.index, distance,
                     {Send(host.At(host.index + distance), chunk_of(host.index))},
                     {Recv(host.At(host.index - distance), chunk_of(host.index - distance))});
  }
}

void AddLaneAllReduce(ScheduleBuilder& builder, const HostLane& lane, const Team& owners) {
  const Slice whole = Part(builder.WholeOutput(), lane.offset, lane.count);
  const Place blocks = [&whole, size = owners.size()](const Run& run) {
    const int64_t begin = ChunkOf(whole.count, size, run.first).offset;
    const Chunk end = ChunkOf(whole.count, size, run.last - 1);
    return Part(whole, begin, end.offset + end.count - begin);
  };
  AddHalvingReduceScatter(builder, owners, blocks, blocks, blocks);
  AddCirculantAllGather(builder, owners, DoublingRounds(owners.size()),
                        blocks({owners.index, owners.index + 1}), blocks);
}

}  // namespace

std::vector<std::vector<Rank>> RanksByHost(const std::vector<int32_t>& hosts) {
  std::map<int32_t, size_t> index;
  std::vector<std::vector<Rank>> ranks;
  for (size_t rank = 0; rank < hosts.size(); ++rank) {
    const auto [place, is_new] = index.try_emplace(hosts[rank], ranks.size());
    if (is_new) ranks.emplace_back();
    ranks[place->second].push_back(static_cast<Rank>(rank));
  }
  return ranks;
}

std::vector<HostLane> HostLanes(int64_t count, const std::vector<std::vector<Rank>>& hosts) {
  std::set<int64_t> begins;
  for (const auto& host : hosts) {
    const int size = static_cast<int>(host.size());
    for (int local = 0; local < size; ++local) begins.insert(ChunkOf(count, size, local).offset);
  }
  begins.erase(count);  // the beginning of empty chunks
  std::vector<HostLane> lanes;
  for (auto begin = begins.begin(); begin != begins.end(); ++begin) {
    const auto next = std::next(begin);
    HostLane lane = {.offset = *begin, .count = (next == begins.end() ? count : *next) - *begin};
    for (const auto& host : hosts) {
      const int size = static_cast<int>(host.size());
      int owner = 0;
      while (true) {
        const Chunk chunk = ChunkOf(count, size, owner);
        if (*begin < chunk.offset + chunk.count) break;
        ++owner;
      }
      lane.owners.push_back(owner);
    }
    lanes.push_back(std::move(lane));
  }
  return lanes;
}

Schedule HierarchicalAllReduce(const ScheduleRequest& request) {
  ScheduleBuilder builder(request);
  const std::vector<std::vector<Rank>> hosts = RanksByHost(request.hosts);
  Team mine;
  size_t my_host = 0;
  for (size_t host = 0; host < hosts.size(); ++host) {
    const auto found = std::find(hosts[host].begin(), hosts[host].end(), request.rank);
    if (found == hosts[host].end()) continue;
    my_host = host;
    mine = {.members = hosts[host], .index = static_cast<int>(found - hosts[host].begin())};
  }
  AddHostReduceScatter(builder, mine, hosts.size() == 1);
  if (hosts.size() > 1) {
    // Every rank takes its lanes in the same order, so they can't wait for each other in a circle.
    for (const HostLane& lane : HostLanes(VectorCount(request), hosts)) {
      if (lane.owners[my_host] != mine.index) continue;
      Team owners = {.members = {}, .index = static_cast<int>(my_host)};
      for (size_t host = 0; host < hosts.size(); ++host) {
        owners.members.push_back(hosts[host][lane.owners[host]]);
      }
      AddLaneAllReduce(builder, lane, owners);
    }
  }
  AddHostAllGather(builder, mine);
  return builder.Take();
}

}  // namespace muster::schedule_internal
