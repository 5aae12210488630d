#include "collectives/schedule/schedule_request.h"

#include <algorithm>
#include <numeric>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"

namespace muster {
namespace {

absl::Status Invalid(const ScheduleRequest& request, absl::string_view problem) {
  return absl::InvalidArgumentError(absl::StrCat(Name(request.collective), ": ", problem));
}

bool HasOneCount(const ScheduleRequest& request) {
  switch (request.collective) {
    case Collective::kBroadcast:
    case Collective::kReduce:
    case Collective::kSendReceive:
      return true;
    case Collective::kAllReduce:
    case Collective::kAllToAll:
      return request.counts.empty();
    case Collective::kReduceScatter:
    case Collective::kAllGather:
    case Collective::kBarrier:
    case Collective::kGather:
    case Collective::kScatter:
    case Collective::kPush:
    case Collective::kPull:
      return false;
  }
  return false;
}

bool HasChunkCounts(const ScheduleRequest& request) {
  switch (request.collective) {
    case Collective::kReduceScatter:
    case Collective::kAllGather:
    case Collective::kGather:
    case Collective::kScatter:
    case Collective::kPush:
    case Collective::kPull:
      return true;
    case Collective::kAllReduce:
      return !request.counts.empty();
    case Collective::kBroadcast:
    case Collective::kBarrier:
    case Collective::kReduce:
    case Collective::kAllToAll:
    case Collective::kSendReceive:
      return false;
  }
  return false;
}

bool HasRoot(const ScheduleRequest& request) {
  switch (request.collective) {
    case Collective::kBroadcast:
    case Collective::kReduce:
    case Collective::kGather:
    case Collective::kScatter:
    case Collective::kSendReceive:
      return true;
    case Collective::kAllReduce:
      return request.algorithm == Algorithm::kStar;
    case Collective::kReduceScatter:
    case Collective::kAllGather:
    case Collective::kBarrier:
    case Collective::kAllToAll:
    case Collective::kPush:
    case Collective::kPull:
      return false;
  }
  return false;
}

bool HasContributors(Collective collective) {
  return collective == Collective::kPush || collective == Collective::kPull;
}

size_t ExpectedCounts(const ScheduleRequest& request) {
  const auto size = static_cast<size_t>(request.size);
  if (HasChunkCounts(request)) return size;
  if (request.collective == Collective::kAllToAll && !request.counts.empty()) return size * size;
  return 0;
}

int64_t Sum(const std::vector<int64_t>& counts) {
  return std::accumulate(counts.begin(), counts.end(), int64_t{0});
}

absl::Status ValidateParts(const ScheduleRequest& request, absl::string_view field,
                           const std::vector<int64_t>& counts) {
  int64_t total = 0;
  for (size_t i = 0; i < counts.size(); ++i) {
    if (counts[i] < 0 || counts[i] > kMaxScheduleElements - total) {
      return Invalid(request, absl::StrCat(field, "[", i, "] is ", counts[i],
                                           "; expected no negative one and a sum of at most ",
                                           kMaxScheduleElements));
    }
    total += counts[i];
  }
  return absl::OkStatus();
}

absl::Status ValidateCounts(const ScheduleRequest& request) {
  if (!HasOneCount(request) && request.count != 0) {
    return Invalid(request, absl::StrCat("count is ", request.count, "; expected 0"));
  }
  // An all-to-all has `size` blocks of `count` on each rank, a square of them in all.
  const int64_t blocks = request.collective == Collective::kAllToAll
                             ? static_cast<int64_t>(request.size) * request.size
                             : 1;
  if (request.count < 0 || request.count > kMaxScheduleElements / blocks) {
    return Invalid(request, absl::StrCat("count is ", request.count, "; expected 0 to ",
                                         kMaxScheduleElements / blocks));
  }
  const size_t expected = ExpectedCounts(request);
  if (request.counts.size() != expected) {
    return Invalid(request, absl::StrCat("counts has ", request.counts.size(),
                                         " entries; expected ", expected));
  }
  return ValidateParts(request, "counts", request.counts);
}

absl::Status ValidateContributors(const ScheduleRequest& request) {
  const int least = HasContributors(request.collective) ? 1 : 0;
  const int most = HasContributors(request.collective) ? request.size : 0;
  if (request.contributors < least || request.contributors > most) {
    return Invalid(request, absl::StrCat("contributors is ", request.contributors, "; expected ",
                                         least, " to ", most));
  }
  const bool sums = request.collective == Collective::kPush;
  const size_t expected = sums ? static_cast<size_t>(request.contributors) : 0;
  if (request.order_counts.size() != expected) {
    return Invalid(request, absl::StrCat("order_counts has ", request.order_counts.size(),
                                         " entries; expected ", expected,
                                         sums ? ", one for each contributor" : ""));
  }
  MUSTER_RETURN_IF_ERROR(ValidateParts(request, "order_counts", request.order_counts));
  if (sums && Sum(request.order_counts) != Sum(request.counts)) {
    return Invalid(
        request, absl::StrCat("order_counts has ", Sum(request.order_counts),
                              " elements in all; expected those of counts, ", Sum(request.counts)));
  }
  return absl::OkStatus();
}

absl::Status ValidateAlgorithm(const ScheduleRequest& request) {
  const absl::Span<const Algorithm> known = AlgorithmsOf(request.collective);
  if (std::find(known.begin(), known.end(), request.algorithm) == known.end()) {
    const auto append = [](std::string* out, Algorithm algorithm) { out->append(Name(algorithm)); };
    return Invalid(request, absl::StrCat("algorithm is ", Name(request.algorithm), " (",
                                         static_cast<int>(request.algorithm), "); expected ",
                                         absl::StrJoin(known, ", ", append),
                                         " (auto must be resolved with ChooseAlgorithm, so that "
                                         "all ranks agree)"));
  }
  if (request.half_precision && !KeepsCanonicalOrder(request.collective, request.algorithm)) {
    return Invalid(request, absl::StrCat("algorithm ", Name(request.algorithm),
                                         " forwards partial sums and would round 16-bit floats at "
                                         "every hop; take ring or direct, or reduce in f32"));
  }
  return absl::OkStatus();
}

absl::Status ValidateRanks(const ScheduleRequest& request) {
  if (request.size < 1 || request.size > kMaxScheduleRanks) {
    return Invalid(request, absl::StrCat("size is ", request.size, "; expected 1 to ",
                                         kMaxScheduleRanks, " ranks"));
  }
  if (request.rank < 0 || request.rank >= request.size) {
    return Invalid(request,
                   absl::StrCat("rank is ", request.rank, "; expected 0 to ", request.size - 1));
  }
  const Rank last_root = HasRoot(request) ? request.size - 1 : 0;
  if (request.root < 0 || request.root > last_root) {
    return Invalid(request, absl::StrCat("root is ", request.root, "; expected 0 to ", last_root));
  }
  const bool pair = request.collective == Collective::kSendReceive;
  const Rank last_destination = pair ? request.size - 1 : 0;
  if (request.destination < 0 || request.destination > last_destination) {
    return Invalid(request, absl::StrCat("destination is ", request.destination, "; expected 0 to ",
                                         last_destination));
  }
  if (pair && request.destination == request.root) {
    return Invalid(request, absl::StrCat("sender and destination are both rank ", request.root,
                                         "; expected two different ranks"));
  }
  const size_t hosts =
      request.algorithm == Algorithm::kHierarchical ? static_cast<size_t>(request.size) : 0;
  if (request.hosts.size() != hosts) {
    return Invalid(request, absl::StrCat("hosts has ", request.hosts.size(), " entries; expected ",
                                         hosts, " (one per rank for hierarchical)"));
  }
  return absl::OkStatus();
}

}  // namespace

std::vector<int64_t> EvenCounts(int64_t total, int parts) {
  std::vector<int64_t> counts(parts);
  for (int i = 0; i < parts; ++i) counts[i] = ChunkOf(total, parts, i).count;
  return counts;
}

absl::Span<const Algorithm> AlgorithmsOf(Collective collective) {
  using enum Algorithm;
  static constexpr Algorithm kForAllReduce[] = {
      kRing, kDirect, kRecursiveDoubling, kHalvingDoubling, kDoubleTree, kHierarchical,
      kStar, kOneShot};
  static constexpr Algorithm kForReduceScatter[] = {kRing, kDirect, kHalvingDoubling};
  static constexpr Algorithm kForAllGather[] = {kRing, kDirect, kHalvingDoubling, kBruck};
  static constexpr Algorithm kForBroadcast[] = {kRing, kDirect, kBinomialTree, kScatterAllGather};
  static constexpr Algorithm kForBarrier[] = {kRing, kDirect};
  static constexpr Algorithm kForReduce[] = {kRing, kDirect, kBinomialTree};
  static constexpr Algorithm kForGatherAndScatter[] = {kDirect, kBinomialTree};
  static constexpr Algorithm kForAllToAll[] = {kDirect, kBruck};
  static constexpr Algorithm kForPushAndPull[] = {kDirect, kHierarchical};
  static constexpr Algorithm kDirectAlone[] = {kDirect};
  switch (collective) {
    case Collective::kAllReduce:
      return kForAllReduce;
    case Collective::kReduceScatter:
      return kForReduceScatter;
    case Collective::kAllGather:
      return kForAllGather;
    case Collective::kBroadcast:
      return kForBroadcast;
    case Collective::kBarrier:
      return kForBarrier;
    case Collective::kReduce:
      return kForReduce;
    case Collective::kGather:
    case Collective::kScatter:
      return kForGatherAndScatter;
    case Collective::kAllToAll:
      return kForAllToAll;
    case Collective::kPush:
    case Collective::kPull:
      return kForPushAndPull;
    case Collective::kSendReceive:
      return kDirectAlone;
  }
  return {};
}

bool KeepsCanonicalOrder(Collective collective, Algorithm algorithm) {
  return !Reduces(collective) || algorithm == Algorithm::kRing || algorithm == Algorithm::kDirect ||
         algorithm == Algorithm::kStar || algorithm == Algorithm::kOneShot;
}

int64_t BlockCount(const ScheduleRequest& request, Rank from, Rank to) {
  return request.counts.empty()
             ? request.count
             : request.counts[static_cast<size_t>(from) * static_cast<size_t>(request.size) +
                              static_cast<size_t>(to)];
}

int64_t OwnOffset(const ScheduleRequest& request) {
  return std::accumulate(request.counts.begin(), request.counts.begin() + request.rank, int64_t{0});
}

bool SharesMemory(const ScheduleRequest& request) {
  switch (request.collective) {
    case Collective::kReduce:
    case Collective::kGather:
    case Collective::kScatter:
      return request.in_place && request.rank == request.root;
    case Collective::kPush:
    case Collective::kPull:
      return request.in_place && request.rank < request.contributors;
    case Collective::kAllReduce:
    case Collective::kReduceScatter:
    case Collective::kAllGather:
    case Collective::kBroadcast:
    case Collective::kBarrier:
    case Collective::kAllToAll:
    case Collective::kSendReceive:
      return request.in_place;
  }
  return false;
}

int64_t VectorCount(const ScheduleRequest& request) {
  switch (request.collective) {
    case Collective::kAllToAll:
    case Collective::kBarrier:
      return 0;
    case Collective::kAllReduce:
    case Collective::kReduceScatter:
    case Collective::kAllGather:
    case Collective::kBroadcast:
    case Collective::kReduce:
    case Collective::kGather:
    case Collective::kScatter:
    case Collective::kSendReceive:
    case Collective::kPush:
    case Collective::kPull:
      break;
  }
  return request.count + Sum(request.counts);  // One of the two is given.
}

std::vector<int64_t> ChunkCounts(const ScheduleRequest& request) {
  if (HasChunkCounts(request)) return request.counts;
  return EvenCounts(VectorCount(request), request.size);
}

int ContributorCount(const ScheduleRequest& request) {
  return request.collective == Collective::kPush ? request.contributors : request.size;
}

std::vector<int64_t> OrderCounts(const ScheduleRequest& request) {
  return request.collective == Collective::kPush ? request.order_counts : ChunkCounts(request);
}

int64_t InputCount(const ScheduleRequest& request) {
  const bool is_root = request.rank == request.root;
  switch (request.collective) {
    case Collective::kAllReduce:
    case Collective::kReduce:
    case Collective::kReduceScatter:
      return VectorCount(request);
    case Collective::kPush:
      return request.rank < request.contributors ? VectorCount(request) : 0;
    case Collective::kAllGather:
    case Collective::kGather:
    case Collective::kPull:
      return request.counts[request.rank];
    case Collective::kBroadcast:
    case Collective::kSendReceive:
      return is_root ? request.count : 0;
    case Collective::kScatter:
      return is_root ? Sum(request.counts) : 0;
    case Collective::kAllToAll: {
      int64_t total = 0;
      for (Rank to = 0; to < request.size; ++to) total += BlockCount(request, request.rank, to);
      return total;
    }
    case Collective::kBarrier:
      return 0;
  }
  return 0;
}

int64_t OutputCount(const ScheduleRequest& request) {
  const bool is_root = request.rank == request.root;
  switch (request.collective) {
    case Collective::kAllReduce:
    case Collective::kBroadcast:
    case Collective::kAllGather:
      return VectorCount(request);
    case Collective::kPull:
      return request.rank < request.contributors ? VectorCount(request) : 0;
    case Collective::kReduceScatter:
    case Collective::kScatter:
    case Collective::kPush:
      return request.counts[request.rank];
    case Collective::kReduce:
      return is_root ? request.count : 0;
    case Collective::kGather:
      return is_root ? Sum(request.counts) : 0;
    case Collective::kAllToAll: {
      int64_t total = 0;
      for (Rank from = 0; from < request.size; ++from) {
        total += BlockCount(request, from, request.rank);
      }
      return total;
    }
    case Collective::kSendReceive:
      return request.rank == request.destination ? request.count : 0;
    case Collective::kBarrier:
      return 0;
  }
  return 0;
}

absl::Status ValidateRequest(const ScheduleRequest& request) {
  if (request.collective < Collective::kAllReduce || request.collective > Collective::kPull) {
    return absl::InvalidArgumentError(
        absl::StrCat("collective number ", static_cast<int>(request.collective), " is unknown"));
  }
  MUSTER_RETURN_IF_ERROR(ValidateAlgorithm(request));
  MUSTER_RETURN_IF_ERROR(ValidateRanks(request));
  if (request.in_place && (request.collective == Collective::kAllToAll ||
                           request.collective == Collective::kSendReceive)) {
    return Invalid(request, "cannot work in place; expected separate input and output");
  }
  MUSTER_RETURN_IF_ERROR(ValidateCounts(request));
  return ValidateContributors(request);
}

}  // namespace muster
