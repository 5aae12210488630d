#include "worker/runtime/job_memory.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/control/state_memory.h"
#include "base/text.h"
#include "worker/compression/gradient_codec.h"
#include "worker/compression/residuals.h"
#include "worker/runtime/step_buffers.h"

namespace muster {
namespace {

int32_t BytesOf(DType dtype) { return IsHalfPrecision(dtype) ? 2 : 4; }

}  // namespace

StateSize StateSizeOf(const JobContext& job) {
  const Layout& layout = job.layout();
  StateSize size;
  size.elements = layout.padded_count();
  for (int block = 0; block < layout.block_count(); ++block) {
    size.largest_block = std::max(size.largest_block, layout.RangeOfBlock(block).count);
  }
  size.gathered_blocks = StepBuffers::GatheredBlocks(layout);
  const auto buckets = static_cast<int64_t>(layout.buckets().size());
  size.bucket = (size.elements + buckets - 1) / buckets;
  size.slots = job.rule().state_slots();
  size.parameter_bytes = BytesOf(job.spec().training.precision);
  size.gradient_bytes = BytesOf(job.spec().communication.gradients);
  size.micro_batches = job.plan().micro_batches_per_step;
  if (Carries(job.spec().communication.compression))
    size.carried_bytes = Residuals::kBytesAnElement;
  return size;
}

absl::Status CheckMemory(const JobContext& job, MemberRole role, std::optional<int64_t> available) {
  if (!available.has_value()) return absl::OkStatus();
  const JobSpec& spec = job.spec();
  const StateSize size = StateSizeOf(job);
  const auto check = [&](const Strategy& strategy, const std::string& when) {
    if (role == MemberRole::kParameterServer && strategy.servers == 0) return absl::OkStatus();
    CrewSize crew{.workers = std::max(1, spec.workers.start), .servers = strategy.servers};
    Strategy least = strategy;
    if (strategy.host_groups) {
      // How many hosts there will be a worker can't know: at best one.
      least.replicas = 0;
    } else if (strategy.grouped() && crew.workers % strategy.group_size == 0) {
      crew.groups = crew.workers / strategy.group_size;
    }
    const int64_t needed = StateBytes(size, least, crew, role);
    if (needed <= *available) return absl::OkStatus();
    return absl::ResourceExhaustedError(absl::StrFormat(
        "this worker's memory is too small for the job: its %d parameters, gradients and optimizer "
        "state take %s (%s%s), %s are available; use a smaller model, fewer workers on this "
        "machine, a larger one, or another strategy",
        job.layout().parameter_count(), ByteText(needed), ToString(strategy), when,
        ByteText(*available)));
  };
  if (!spec.automatic) {
    if (absl::Status fits = check(spec.strategy, ""); !fits.ok()) return fits;
  }
  for (const StrategySwitch& change : spec.switches) {
    if (change.automatic) continue;
    absl::Status fits = check(change.strategy, absl::StrCat(", after step ", change.after));
    if (!fits.ok()) return fits;
  }
  return absl::OkStatus();
}

}  // namespace muster
