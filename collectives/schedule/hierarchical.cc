#include "collectives/schedule/hierarchical.h"

#include <algorithm>
#include <functional>
#include <map>
#include <set>

#include "collectives/schedule/builder.h"
#include "collectives/schedule/circulant.h"

namespace muster::schedule_internal {
namespace {

Slice BlocksOf(const Slice& lane, int hosts, const Run& run) {
  const int64_t begin = ChunkOf(lane.count, hosts, run.first).offset;
  const Chunk end = ChunkOf(lane.count, hosts, run.last - 1);
  return Part(lane, begin, end.offset + end.count - begin);
}

// The parts of `whole` that a local rank owns, in the order in which they travel inside the host.
// Requires: local > -m.
using OwnedParts = std::function<std::vector<Slice>(const Slice& whole, int local)>;

// What the lanes of a local rank cover, cut into blocks as the phases between hosts cut it, each
// lane from `first_block` on. `lanes` and `host` must outlive it.
OwnedParts PartsFrom(int first_block, const std::vector<HostLane>& lanes, const Team& host,
                     size_t number) {
  return [=, &lanes, &host](const Slice& whole, int local) {
    std::vector<Slice> parts;
    for (const HostLane& lane : lanes) {
      if (lane.owners[number] != Wrap(local, host.size())) continue;
      const auto hosts = static_cast<int>(lane.owners.size());
      for (const Run& run : RunsOf(first_block % hosts, hosts, hosts)) {
        parts.push_back(BlocksOf(Part(whole, lane.offset, lane.count), hosts, run));
      }
    }
    return parts;
  };
}

// Each local rank gets the host's sum of what it owns. Contributions are added as they come.
void AddHostReduceScatter(ScheduleBuilder& builder, const Team& host, const OwnedParts& parts_of,
                          bool only_host) {
  const Slice input = builder.WholeInput();
  const std::vector<Slice> raw = parts_of(input, host.index);
  const std::vector<Slice> sums = parts_of(builder.WholeOutput(), host.index);
  const int size = host.size();
  if (size == 1) {
    for (size_t i = 0; i < raw.size(); ++i) builder.AddCopy(raw[i], sums[i]);
  }
  for (int distance = 1; distance < size; ++distance) {
    const Rank from = host.At(host.index - distance);
    const Rank to = host.At(host.index + distance);
    const bool last = only_host && distance == size - 1;
    std::vector<ScheduleStep> sends, receives;
    for (const Slice& part : parts_of(input, host.index + distance)) {
      sends.push_back(Send(to, part));
    }
    for (size_t i = 0; i < raw.size(); ++i) {
      receives.push_back(RecvReduce(from, distance == 1 ? raw[i] : sums[i], sums[i], last));
    }
    builder.AddShift(host.index, distance, std::move(sends), std::move(receives));
  }
}

void AddHostAllGather(ScheduleBuilder& builder, const Team& host, const OwnedParts& parts_of) {
  const Slice output = builder.WholeOutput();
  for (int distance = 1; distance < host.size(); ++distance) {
    std::vector<ScheduleStep> sends, receives;
    for (const Slice& part : parts_of(output, host.index)) {
      sends.push_back(Send(host.At(host.index + distance), part));
    }
    for (const Slice& part : parts_of(output, host.index - distance)) {
      receives.push_back(Recv(host.At(host.index - distance), part));
    }
    builder.AddShift(host.index, distance, std::move(sends), std::move(receives));
  }
}

// Once around for the sums and once for the results, from each host to the one before it, so that
// blocks are handed over from the next one on up to the own one, as by halving-doubling.
void AddLaneRing(ScheduleBuilder& builder, const Team& owners, const Place& blocks) {
  const int size = owners.size();
  const int own = owners.index;
  const auto block = [&](int number) {
    const int first = number % size;
    return blocks({first, first + 1});
  };
  for (int ahead = 1; ahead < size; ++ahead) {
    const Slice sum = block(own + ahead + 1);
    builder.AddShift(own, size - 1, {Send(owners.At(own - 1), block(own + ahead))},
                     {RecvReduce(owners.At(own + 1), sum, sum, ahead == size - 1)});
  }
  for (int ahead = 0; ahead < size - 1; ++ahead) {
    builder.AddShift(own, size - 1, {Send(owners.At(own - 1), block(own + ahead))},
                     {Recv(owners.At(own + 1), block(own + ahead + 1))});
  }
}

void AddLaneAllReduce(ScheduleBuilder& builder, const HostLane& lane, const Team& owners) {
  const Slice whole = Part(builder.WholeOutput(), lane.offset, lane.count);
  const Place blocks = [&](const Run& run) { return BlocksOf(whole, owners.size(), run); };
  if (owners.size() <= kMostHostsInRing) return AddLaneRing(builder, owners, blocks);
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
  // Inside a host travels first what the rounds between hosts hand over first, and what they bring
  // first: so all phases run at once, segment by segment.
  const std::vector<HostLane> lanes = HostLanes(VectorCount(request), hosts);
  const int own_block = static_cast<int>(my_host);
  AddHostReduceScatter(builder, mine, PartsFrom(own_block + 1, lanes, mine, my_host),
                       hosts.size() == 1);
  if (hosts.size() > 1) {
    // Every rank takes its lanes in the same order, so they can't wait for each other in a circle.
    for (const HostLane& lane : lanes) {
      if (lane.owners[my_host] != mine.index) continue;
      Team owners = {.members = {}, .index = static_cast<int>(my_host)};
      for (size_t host = 0; host < hosts.size(); ++host) {
        owners.members.push_back(hosts[host][lane.owners[host]]);
      }
      AddLaneAllReduce(builder, lane, owners);
    }
  }
  AddHostAllGather(builder, mine, PartsFrom(own_block, lanes, mine, my_host));
  return builder.Take();
}

}  // namespace muster::schedule_internal
