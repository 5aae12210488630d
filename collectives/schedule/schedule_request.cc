#include "collectives/schedule/schedule_request.h"

#include <numeric>

#include "absl/strings/str_cat.h"

namespace muster {
namespace {

absl::Status Invalid(const ScheduleRequest& request, absl::string_view problem) {
  return absl::InvalidArgumentError(absl::StrCat(Name(request.collective), ": ", problem));
}

bool HasOneCount(Collective collective) {
  return collective == Collective::kAllReduce || collective == Collective::kBroadcast;
}

bool HasChunkCounts(Collective collective) {
  return collective == Collective::kReduceScatter || collective == Collective::kAllGather;
}

absl::Status ValidateCounts(const ScheduleRequest& request) {
  if (!HasOneCount(request.collective) && request.count != 0) {
    return Invalid(request, absl::StrCat("count is ", request.count, "; expected 0"));
  }
  if (request.count < 0 || request.count > kMaxScheduleElements) {
    return Invalid(request, absl::StrCat("count is ", request.count, "; expected 0 to ",
                                         kMaxScheduleElements));
  }
  const size_t expected = HasChunkCounts(request.collective) ? request.size : 0;
  if (request.counts.size() != expected) {
    return Invalid(request, absl::StrCat("counts has ", request.counts.size(),
                                         " entries; expected ", expected));
  }
  int64_t total = 0;
  for (size_t i = 0; i < request.counts.size(); ++i) {
    const int64_t count = request.counts[i];
    if (count < 0 || count > kMaxScheduleElements - total) {
      return Invalid(request, absl::StrCat("counts[", i, "] is ", count,
                                           "; expected no negative one and a sum of at most ",
                                           kMaxScheduleElements));
    }
    total += count;
  }
  return absl::OkStatus();
}

}  // namespace

std::vector<int64_t> EvenCounts(int64_t total, int parts) {
  std::vector<int64_t> counts(parts);
  for (int i = 0; i < parts; ++i) counts[i] = ChunkOf(total, parts, i).count;
  return counts;
}

int64_t InputCount(const ScheduleRequest& request) {
  switch (request.collective) {
    case Collective::kAllReduce:
      return request.count;
    case Collective::kReduceScatter:
      return std::accumulate(request.counts.begin(), request.counts.end(), int64_t{0});
    case Collective::kAllGather:
      return request.counts[request.rank];
    case Collective::kBroadcast:
      return request.rank == request.root ? request.count : 0;
    case Collective::kBarrier:
      return 0;
  }
  return 0;
}

int64_t OutputCount(const ScheduleRequest& request) {
  switch (request.collective) {
    case Collective::kAllReduce:
      return request.count;
    case Collective::kReduceScatter:
      return request.counts[request.rank];
    case Collective::kAllGather:
      return std::accumulate(request.counts.begin(), request.counts.end(), int64_t{0});
    case Collective::kBroadcast:
      return request.count;
    case Collective::kBarrier:
      return 0;
  }
  return 0;
}

absl::Status ValidateRequest(const ScheduleRequest& request) {
  if (request.collective < Collective::kAllReduce || request.collective > Collective::kBarrier) {
    return absl::InvalidArgumentError(
        absl::StrCat("collective number ", static_cast<int>(request.collective), " is unknown"));
  }
  if (request.algorithm != Algorithm::kRing && request.algorithm != Algorithm::kDirect) {
    return Invalid(request, absl::StrCat("algorithm is ", Name(request.algorithm), " (",
                                         static_cast<int>(request.algorithm),
                                         "); expected ring or direct (auto must be resolved with "
                                         "ChooseAlgorithm, so that all ranks agree)"));
  }
  if (request.size < 1 || request.size > kMaxScheduleRanks) {
    return Invalid(request, absl::StrCat("size is ", request.size, "; expected 1 to ",
                                         kMaxScheduleRanks, " ranks"));
  }
  if (request.rank < 0 || request.rank >= request.size) {
    return Invalid(request,
                   absl::StrCat("rank is ", request.rank, "; expected 0 to ", request.size - 1));
  }
  const Rank last_root = request.collective == Collective::kBroadcast ? request.size - 1 : 0;
  if (request.root < 0 || request.root > last_root) {
    return Invalid(request, absl::StrCat("root is ", request.root, "; expected 0 to ", last_root));
  }
  return ValidateCounts(request);
}

}  // namespace muster
