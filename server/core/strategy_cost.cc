#include "server/core/strategy_cost.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "absl/strings/str_cat.h"
#include "base/control/placement.h"
#include "base/control/shard_groups.h"
#include "collectives/model/cost_model.h"

namespace muster {
namespace {

DType TypeOf(int32_t bytes) { return bytes == 2 ? DType::kBF16 : DType::kF32; }

LinkModel ModelOf(const LinkSpeeds& links) {
  LinkModel model;
  model.ranks = links.ranks;
  model.latency_seconds = links.latency_seconds;
  model.message_seconds = links.message_seconds;
  model.wire = {{1, links.wire_seconds}};
  model.reduce = {{1, links.reduce_seconds}};
  return model;
}

// In registered memory, which gradients and gathered parameters lie in: what each rank reads and
// writes, over the vector's bytes, between two meets.
double SharedPasses(Collective collective, int ranks) {
  return collective == Collective::kReduceScatter ? 1 + 1.0 / ranks : 2;
}

// Of one bucket, by the fastest algorithm that the strategy allows.
double CollectiveSeconds(Collective collective, const StateSize& size, int32_t element_bytes,
                         const Strategy& strategy, int ranks, const LinkSpeeds& links) {
  if (ranks == 1) return 0;
  if (links.shared_seconds > 0) {
    return 2 * links.meet_seconds + SharedPasses(collective, ranks) *
                                        static_cast<double>(size.bucket * element_bytes) *
                                        links.shared_seconds;
  }
  ChoiceRequest request;
  request.collective = collective;
  request.count = size.bucket;
  request.dtype = TypeOf(element_bytes);
  request.size = ranks;
  const AlgorithmChoice choice = Choose(ModelOf(links), request);
  for (const Prediction& each : choice.considered) {
    if (Name(each.algorithm) == absl::string_view(Name(strategy.algorithm))) return each.seconds;
  }
  return choice.considered.front().seconds;
}

std::string HostOf(const CrewMember& member, size_t index) {
  return member.host.empty() ? absl::StrCat("\n", index) : member.host;
}

// Bytes of a host's members, for each worker on it: what was measured of a link is a worker's
// share of its host's.
struct HostTraffic {
  int workers = 0;
  double in = 0;
  double out = 0;
};

double LinkSeconds(const HostTraffic& host, const LinkSpeeds& links) {
  const double one_way = links.one_way_seconds > 0 ? links.one_way_seconds : links.wire_seconds;
  const double seconds =
      std::min(host.in, host.out) * links.wire_seconds + std::abs(host.in - host.out) * one_way;
  return seconds / std::max(1, host.workers);
}

// A push of one bucket: from each worker, or inside the hosts first from each host that has some.
struct PushTraffic {
  std::map<std::string, HostTraffic> hosts;
  int contributors = 0;  // of what an owner adds up
  int most_on_a_host = 1;
};

PushTraffic TrafficOf(const std::vector<CrewMember>& takers, bool by_host, double bucket,
                      double of_worker, double of_server) {
  PushTraffic traffic;
  const auto host_of = [&](size_t i) -> HostTraffic& {
    return traffic.hosts[HostOf(takers[i], i)];
  };
  for (size_t i = 0; i < takers.size(); ++i) {
    host_of(i).workers += takers[i].role == MemberRole::kWorker ? 1 : 0;
  }
  for (const auto& [name, host] : traffic.hosts) {
    traffic.contributors += by_host ? std::min(host.workers, 1) : host.workers;
    traffic.most_on_a_host = std::max(traffic.most_on_a_host, host.workers);
  }
  for (size_t i = 0; i < takers.size(); ++i) {
    HostTraffic& host = host_of(i);
    if (takers[i].role == MemberRole::kParameterServer) {
      host.in += traffic.contributors * of_server;
    } else {
      host.in += (traffic.contributors - 1) * of_worker;
      host.out += by_host ? bucket / host.workers - of_worker : bucket - of_worker;
    }
  }
  return traffic;
}

// Of one bucket: a push, and with the directions exchanged a pull. The step commits between them,
// so neither takes what the other leaves of a link. What moves inside a host is not counted.
double PushAndPullSeconds(const StateSize& size, const Strategy& strategy,
                          const std::vector<CrewMember>& takers, const LinkSpeeds& links) {
  const CrewSize crew = SizeOf(takers);
  const ShareWeights weights = WeightsOf(strategy, crew.workers, crew.servers);
  const auto total =
      static_cast<double>(weights.worker * crew.workers + weights.server * crew.servers);
  const auto bucket = static_cast<double>(size.bucket);
  const double of_worker = bucket * static_cast<double>(weights.worker) / total;
  const double of_server = bucket * static_cast<double>(weights.server) / total;
  const bool by_host = strategy.algorithm == SyncAlgorithm::kHierarchical;
  const PushTraffic traffic = TrafficOf(takers, by_host, bucket, of_worker, of_server);
  double busiest = 0;
  for (const auto& [name, host] : traffic.hosts) {
    busiest = std::max(busiest, LinkSeconds(host, links));
  }
  const int owners =
      (weights.worker > 0 ? crew.workers : 0) + (weights.server > 0 ? crew.servers : 0);
  const int peers = std::max(traffic.contributors, owners);
  const int hops = by_host && traffic.most_on_a_host > 1 ? 2 : 1;
  const double fixed = hops * links.latency_seconds + (peers - 1) * links.message_seconds;
  double added = (traffic.contributors - 1) * std::max(of_worker, of_server);
  if (by_host) added += (traffic.most_on_a_host - 1) * bucket / traffic.most_on_a_host;
  return 2 * fixed + busiest * (size.gradient_bytes + size.parameter_bytes) +
         added * size.gradient_bytes * links.reduce_seconds;
}

// Of one bucket: each owner's sum goes to those who hold replicas, while it takes as much.
double ReplicaSeconds(const StateSize& size, const Strategy& strategy, const CrewSize& crew,
                      const LinkSpeeds& links) {
  double slowest = 0;
  for (const MemberRole role : {MemberRole::kWorker, MemberRole::kParameterServer}) {
    if (role == MemberRole::kParameterServer && crew.servers == 0) continue;
    Strategy alone = strategy;
    alone.replicas = 0;
    const int64_t copies = HeldElements(size.bucket, strategy, crew, role) -
                           HeldElements(size.bucket, alone, crew, role);
    if (copies <= 0) continue;
    const double rate = links.shared_seconds > 0 ? 2 * links.shared_seconds : links.wire_seconds;
    slowest = std::max(
        slowest, links.latency_seconds + static_cast<double>(copies * size.gradient_bytes) * rate);
  }
  return slowest;
}

}  // namespace

std::vector<CrewMember> TakersOf(const Strategy& strategy, const std::vector<CrewMember>& crew) {
  std::vector<CrewMember> takers;
  int places = strategy.serves() ? strategy.servers : 0;
  for (const CrewMember& member : crew) {
    if (member.role == MemberRole::kParameterServer && --places < 0) continue;
    takers.push_back(member);
  }
  return takers;
}

CrewSize SizeOf(const std::vector<CrewMember>& crew) {
  CrewSize size{.workers = 0};
  for (const CrewMember& member : crew) {
    ++(member.role == MemberRole::kParameterServer ? size.servers : size.workers);
  }
  return size;
}

CrewSize SizeOf(const Strategy& strategy, const std::vector<CrewMember>& takers) {
  CrewSize size = SizeOf(takers);
  if (!strategy.grouped()) return size;
  std::vector<Rank> ranks;
  std::vector<std::string> hosts;
  for (size_t i = 0; i < takers.size(); ++i) {
    ranks.push_back(static_cast<Rank>(i));
    hosts.push_back(HostOf(takers[i], i));
  }
  size.groups = FormShardGroups(strategy, ranks, hosts).count();
  return size;
}

std::optional<double> CommunicationSeconds(const StateSize& size, const Strategy& strategy,
                                           const std::vector<CrewMember>& takers,
                                           const LinkSpeeds& links) {
  const CrewSize crew = SizeOf(strategy, takers);
  if (crew.groups > 1 && links.shared_seconds > 0) return std::nullopt;
  double bucket = 0;
  if (strategy.serves()) {
    if (links.shared_seconds > 0 && crew.servers > 0) return std::nullopt;
    bucket = PushAndPullSeconds(size, strategy, takers, links);
  } else {
    const int members = crew.workers / crew.groups;
    const auto seconds = [&](Collective collective, int32_t element_bytes) {
      return CollectiveSeconds(collective, size, element_bytes, strategy, members, links);
    };
    if (strategy.stage == 0) {
      bucket = seconds(Collective::kAllReduce, size.gradient_bytes);
    } else {
      // Stage 3 gathers for forward and for backward.
      bucket =
          seconds(Collective::kReduceScatter, size.gradient_bytes) +
          (strategy.stage == 3 ? 2 : 1) * seconds(Collective::kAllGather, size.parameter_bytes);
    }
    if (crew.groups > 1) {
      StateSize shard = size;
      shard.bucket = std::max<int64_t>(1, size.bucket / members);
      bucket += CollectiveSeconds(Collective::kAllReduce, shard, size.gradient_bytes, strategy,
                                  crew.groups, links);
    }
  }
  if (strategy.sharded() && crew.groups == 1) bucket += ReplicaSeconds(size, strategy, crew, links);
  return bucket * static_cast<double>(size.elements) / static_cast<double>(size.bucket);
}

}  // namespace muster
