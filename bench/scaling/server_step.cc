#include "bench/scaling/server_step.h"

#include <algorithm>

#include "base/status_macros.h"
#include "collectives/schedule/schedule_request.h"

namespace muster::bench {
namespace {

// The first push and the last pull have nothing beside them: 1 / kBuckets of the time.
constexpr int kBuckets = 32;

// What a server owns of the vector.
double ServerShare(const ServerLayout& layout) {
  const double w = layout.workers;
  const double k = layout.servers;
  return layout.workers_own ? 2 * (w - 1) / (w * w + k * w - 2 * k) : 1 / k;
}

}  // namespace

double WireLoad(const ServerLayout& layout) {
  return std::max(1.0, layout.workers / layout.workers_per_host * ServerShare(layout));
}

std::vector<int64_t> OwnedCounts(const ServerLayout& layout, int64_t count) {
  int64_t of_servers = count;
  if (layout.workers_own) {
    of_servers = static_cast<int64_t>(static_cast<double>(count) * ServerShare(layout) *
                                      static_cast<double>(layout.servers));
  }
  std::vector<int64_t> counts = EvenCounts(count - of_servers, layout.workers);
  const std::vector<int64_t> servers = EvenCounts(of_servers, layout.servers);
  counts.insert(counts.end(), servers.begin(), servers.end());
  return counts;
}

ServerStep::ServerStep(Communicator& communicator, const ServerLayout& layout, int64_t count)
    : communicator_(communicator), layout_(layout), buckets_(kBuckets) {
  call_options_.algorithm = layout.hierarchical ? Algorithm::kHierarchical : Algorithm::kDirect;
  for (int b = 0; b < kBuckets; ++b) {
    const Chunk chunk = ChunkOf(count, kBuckets, b);
    Bucket& bucket = buckets_[static_cast<size_t>(b)];
    bucket.offset = chunk.offset;
    bucket.counts = OwnedCounts(layout, chunk.count);
    bucket.order_counts = EvenCounts(chunk.count, layout.workers);
    bucket.owned.resize(
        static_cast<size_t>(bucket.counts[static_cast<size_t>(communicator.rank())]));
  }
}

Work ServerStep::Push(Bucket& bucket, const float* input) {
  return communicator_.Push(input == nullptr ? nullptr : input + bucket.offset, bucket.owned.data(),
                            bucket.counts, bucket.order_counts, DType::kF32, ReduceOp::kSum,
                            call_options_);
}

Work ServerStep::Pull(Bucket& bucket, float* output) {
  return communicator_.Pull(bucket.owned.data(),
                            output == nullptr ? nullptr : output + bucket.offset, bucket.counts,
                            layout_.workers, DType::kF32, call_options_);
}

absl::Status ServerStep::Run(const float* input, float* output) {
  Work push = Push(buckets_[0], input);
  Work pull;
  for (size_t b = 0; b < buckets_.size(); ++b) {
    Work next;
    if (b + 1 < buckets_.size()) next = Push(buckets_[b + 1], input);
    MUSTER_RETURN_IF_ERROR(push.Wait());
    pull = Pull(buckets_[b], output);
    push = next;
  }
  return pull.Wait();
}

}  // namespace muster::bench
