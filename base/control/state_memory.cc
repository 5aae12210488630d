#include "base/control/state_memory.h"

#include <algorithm>

#include "base/check.h"
#include "base/control/placement.h"

namespace muster {
namespace {

constexpr int64_t kF32Bytes = 4;
constexpr int64_t kHalfBytes = 2;

}  // namespace

int64_t HeldElements(int64_t elements, const Strategy& strategy, const CrewSize& crew,
                     MemberRole role) {
  const bool serves = role == MemberRole::kParameterServer;
  if (!strategy.sharded()) return serves ? 0 : elements;
  if (crew.groups > 1) {
    const int64_t members = crew.workers / crew.groups;
    return serves ? 0 : (elements + members - 1) / members;
  }
  const ShareWeights weights = WeightsOf(strategy, crew.workers, crew.servers);
  const int64_t own = serves ? weights.server : weights.worker;
  if (own == 0) return 0;
  const int64_t owners =
      (weights.worker > 0 ? crew.workers : 0) + (weights.server > 0 ? crew.servers : 0);
  const int64_t total = weights.worker * crew.workers + weights.server * crew.servers;
  const int64_t copies = std::min<int64_t>(strategy.replicas, owners - 1);
  // Whose replicas a member holds depends on hosts: those of the largest shards at most.
  const int64_t held = std::min(total, own + copies * std::max(weights.worker, weights.server));
  return (elements * held + total - 1) / total;
}

// Mirrors StepBuffers::Equip of worker/runtime, which a test compares it with.
int64_t StateBytes(const StateSize& size, const Strategy& strategy, const CrewSize& crew,
                   MemberRole role) {
  MUSTER_CHECK_GE(crew.workers, 1);
  const bool computes = role == MemberRole::kWorker;
  const int stage = strategy.sharded_stage();
  const bool half_parameters = size.parameter_bytes == kHalfBytes;
  const bool half_gradients = size.gradient_bytes == kHalfBytes;
  const bool accumulates = computes && size.micro_batches > crew.workers;
  const int64_t all = size.elements;
  const int64_t buffers = kStepBlockBuffers * size.largest_block;
  const bool few_blocks = buffers >= all;
  const int64_t held = HeldElements(all, strategy, crew, role);

  int64_t bytes = kF32Bytes * (1 + size.slots) * held;
  const bool gathers = computes && stage == 3 && !few_blocks;
  const bool caches = computes && !gathers && (half_parameters || stage > 0);
  if (caches) bytes += size.parameter_bytes * all;
  if (gathers) bytes += size.parameter_bytes * size.gathered_blocks * size.largest_block;
  if (half_parameters && !caches) bytes += kHalfBytes * held;
  const bool flat = stage < 2 || (accumulates && !half_gradients) || few_blocks;
  bytes += size.gradient_bytes * (flat ? all : buffers + held);
  if (half_gradients && computes) bytes += kF32Bytes * (accumulates ? all : size.largest_block);
  if (half_parameters && computes) bytes += kF32Bytes * size.largest_block;
  if (computes) bytes += size.carried_bytes * all;
  return bytes;
}

}  // namespace muster
