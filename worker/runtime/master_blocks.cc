#include "worker/runtime/master_blocks.h"

#include <algorithm>
#include <vector>

#include "worker/sync/parameter_gather.h"

namespace muster {

absl::Status VisitMasterBlocks(const View& view, const ShardMesh& mesh, const Replica& replica,
                               Step step, absl::Duration timeout, std::optional<Rank>* culprit,
                               absl::FunctionRef<void(int block, const float*)> visit) {
  const Layout& layout = replica.layout();
  if (!view.strategy.sharded()) {
    for (int block = 0; block < layout.block_count(); ++block) {
      visit(block, replica.parameters().data() + layout.RangeOfBlock(block).offset);
    }
    return absl::OkStatus();
  }
  ParameterGather gather(mesh, layout, view, timeout);
  const bool computes = mesh.all().rank() < view.workers();
  int64_t largest = 0;
  for (int block = 0; block < layout.block_count(); ++block) {
    largest = std::max(largest, layout.RangeOfBlock(block).count);
  }
  std::vector<float> buffer(static_cast<size_t>(computes ? largest : 0));
  const auto own = [&](Range range) -> const void* { return replica.part().Of(0, range).data(); };
  for (int block = 0; block < layout.block_count(); ++block) {
    gather.Start(step, block, own, computes ? buffer.data() : nullptr);
    if (absl::Status status = gather.WaitFor(block); !status.ok()) {
      *culprit = gather.culprit();
      return status;
    }
    if (computes) visit(block, buffer.data());
  }
  return absl::OkStatus();
}

}  // namespace muster
