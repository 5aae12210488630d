#include "collectives/schedule/hierarchical_push_pull.h"

#include <algorithm>
#include <numeric>
#include <tuple>
#include <utility>

#include "collectives/schedule/builder.h"
#include "collectives/schedule/hierarchical.h"

namespace muster::schedule_internal {
namespace {

// One message between hosts, whichever way it goes.
struct Passage {
  int round = 0;
  int host = 0;
  Rank worker = 0;
  CarriedPiece piece;
};

// The hosts of a request from the view of one rank.
class Hosts {
 public:
  explicit Hosts(const ScheduleBuilder& builder)
      : builder_(builder), crews_(HostCrews(builder.request())) {
    for (size_t host = 0; host < crews_.size(); ++host) {
      const std::vector<Rank>& workers = crews_[host].workers;
      const auto found = std::find(workers.begin(), workers.end(), builder.rank());
      if (found == workers.end()) continue;
      own_ = static_cast<int>(host);
      team_ = {.members = workers, .index = static_cast<int>(found - workers.begin())};
    }
  }

  int count() const { return static_cast<int>(crews_.size()); }
  // The host this rank is a worker of; -1: it is a server.
  int own() const { return own_; }
  // The workers of that one; nobody of a server.
  const Team& team() const { return team_; }

  // What the worker carries, then what it owns, as slices of `whole`. Requires: local > -m.
  std::vector<Slice> PartsOf(const Slice& whole, int local) const {
    local = Wrap(local, team_.size());
    std::vector<Slice> parts;
    for (const CarriedPiece& piece : crews_[own_].carried[local]) {
      parts.push_back(Part(whole, piece.offset, piece.count));
    }
    const Rank worker = team_.members[local];
    parts.push_back(Part(whole, builder_.ChunkOffset(worker), builder_.ChunkCount(worker)));
    return parts;
  }

  // Those that this rank takes part in. All ranks take theirs in one common order, so the first
  // that is left can always take place, even where sends wait for their receives.
  std::vector<Passage> Passages() const {
    std::vector<Passage> passages;
    for (int host = 0; host < count(); ++host) {
      const HostCrew& crew = crews_[host];
      for (size_t local = 0; local < crew.workers.size(); ++local) {
        const Rank worker = crew.workers[local];
        int round = 0;
        for (const CarriedPiece& piece : crew.carried[local]) {
          if (piece.owner == builder_.rank() || worker == builder_.rank()) {
            passages.push_back({round, host, worker, piece});
          }
          ++round;
        }
      }
    }
    std::sort(passages.begin(), passages.end(), [](const Passage& a, const Passage& b) {
      return std::tuple(a.round, a.host, a.worker) < std::tuple(b.round, b.host, b.worker);
    });
    return passages;
  }

 private:
  const ScheduleBuilder& builder_;
  const std::vector<HostCrew> crews_;
  int own_ = -1;
  Team team_;
};

// The host's sums of what this worker carries and owns, in that order: where they are made.
// Contributions are added as they come.
std::vector<Slice> AddHostSums(ScheduleBuilder& builder, const Hosts& hosts) {
  const Team& team = hosts.team();
  const Slice input = builder.WholeInput();
  const std::vector<Slice> raw = hosts.PartsOf(input, team.index);
  if (team.size() == 1) return raw;
  std::vector<Slice> sums;
  for (size_t i = 0; i + 1 < raw.size(); ++i) sums.push_back(builder.TakeScratch(raw[i].count));
  sums.push_back(builder.Output(builder.rank()));
  for (int distance = 1; distance < team.size(); ++distance) {
    const Rank from = team.At(team.index - distance);
    const Rank to = team.At(team.index + distance);
    const bool last = hosts.count() == 1 && distance == team.size() - 1;
    std::vector<ScheduleStep> sends, receives;
    for (const Slice& part : hosts.PartsOf(input, team.index + distance)) {
      sends.push_back(Send(to, part));
    }
    for (size_t i = 0; i < raw.size(); ++i) {
      receives.push_back(RecvReduce(from, distance == 1 ? raw[i] : sums[i], sums[i], last));
    }
    builder.AddShift(team.index, distance, std::move(sends), std::move(receives));
  }
  return sums;
}

}  // namespace

std::vector<HostCrew> HostCrews(const ScheduleRequest& request) {
  const std::vector<int32_t> worker_hosts(request.hosts.begin(),
                                          request.hosts.begin() + request.contributors);
  const int64_t total = VectorCount(request);
  std::vector<HostCrew> crews;
  for (std::vector<Rank>& workers : RanksByHost(worker_hosts)) {
    const int size = static_cast<int>(workers.size());
    const int64_t at_home =
        std::accumulate(workers.begin(), workers.end(), int64_t{0},
                        [&](int64_t sum, Rank worker) { return sum + request.counts[worker]; });
    HostCrew crew = {.workers = std::move(workers), .carried = {}};
    crew.carried.resize(static_cast<size_t>(size));
    // All chunks from elsewhere, one after the other, are cut evenly.
    int64_t begin = 0;   // in the whole vector
    int64_t passed = 0;  // of what is cut
    int local = 0;
    for (Rank owner = 0; owner < request.size; ++owner) {
      const int64_t end = begin + request.counts[owner];
      if (owner < request.contributors &&
          std::binary_search(crew.workers.begin(), crew.workers.end(), owner)) {
        begin = end;
      }
      while (begin < end) {
        const Chunk share = ChunkOf(total - at_home, size, local);
        const int64_t count = std::min(end - begin, share.offset + share.count - passed);
        if (count > 0) crew.carried[local].push_back({owner, begin, count});
        begin += count;
        passed += count;
        if (begin < end) ++local;
      }
    }
    for (std::vector<CarriedPiece>& pieces : crew.carried) {
      if (pieces.empty()) continue;
      const size_t first = crews.size() % pieces.size();
      std::rotate(pieces.begin(), pieces.begin() + static_cast<int64_t>(first), pieces.end());
    }
    crews.push_back(std::move(crew));
  }
  return crews;
}

Schedule HierarchicalPush(const ScheduleRequest& request) {
  ScheduleBuilder builder(request);
  const Hosts hosts(builder);
  const Rank rank = request.rank;
  const bool is_worker = hosts.own() >= 0;
  const int64_t own_count = builder.ChunkCount(rank);
  std::vector<Slice> sums;                          // of this rank's host
  std::vector<Slice> contributions(hosts.count());  // to the own chunk, of each host
  if (is_worker) {
    sums = AddHostSums(builder, hosts);
    contributions[hosts.own()] = sums.back();
  }
  // A server has its first contribution where the result will be.
  for (int host = 0; host < hosts.count(); ++host) {
    if (host == hosts.own()) continue;
    contributions[host] =
        !is_worker && host == 0 ? builder.Output(rank) : builder.TakeScratch(own_count);
  }
  size_t sent = 0;
  for (const Passage& passage : hosts.Passages()) {
    if (passage.worker == rank) {
      builder.Add(Send(passage.piece.owner, sums[sent++]));
      continue;
    }
    builder.Add(Recv(passage.worker,
                     Part(contributions[passage.host],
                          passage.piece.offset - builder.ChunkOffset(rank), passage.piece.count)));
  }
  if (hosts.count() > 1) {
    builder.Add({.kind = StepKind::kReduce,
                 .target = builder.Output(rank),
                 .sources = contributions,
                 .completes_sum = true});
  } else if (is_worker) {
    builder.AddCopy(contributions[0], builder.Output(rank));
  }
  return builder.Take();
}

Schedule HierarchicalPull(const ScheduleRequest& request) {
  ScheduleBuilder builder(request);
  const Hosts hosts(builder);
  const Rank rank = request.rank;
  const Slice own = builder.Input(rank);
  if (hosts.own() >= 0) builder.AddCopy(own, builder.Output(rank));
  for (const Passage& passage : hosts.Passages()) {
    const CarriedPiece& piece = passage.piece;
    if (passage.worker == rank) {
      builder.Add(Recv(piece.owner, Part(builder.WholeOutput(), piece.offset, piece.count)));
    } else {
      builder.Add(
          Send(passage.worker, Part(own, piece.offset - builder.ChunkOffset(rank), piece.count)));
    }
  }
  const Team& team = hosts.team();
  for (int distance = 1; distance < team.size(); ++distance) {
    std::vector<ScheduleStep> sends, receives;
    for (const Slice& part : hosts.PartsOf(builder.WholeOutput(), team.index)) {
      sends.push_back(Send(team.At(team.index + distance), part));
    }
    for (const Slice& part : hosts.PartsOf(builder.WholeOutput(), team.index - distance)) {
      receives.push_back(Recv(team.At(team.index - distance), part));
    }
    builder.AddShift(team.index, distance, std::move(sends), std::move(receives));
  }
  return builder.Take();
}

}  // namespace muster::schedule_internal
