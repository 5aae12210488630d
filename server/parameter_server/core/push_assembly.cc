#include "server/parameter_server/core/push_assembly.h"

#include <algorithm>

#include "base/check.h"

namespace muster {

const PushAssembly::Push* PushAssembly::Find(int32_t micro_batch) const {
  const auto it = pushes_.find(micro_batch);
  return it == pushes_.end() ? nullptr : &it->second;
}

bool PushAssembly::Received(int32_t micro_batch, Range range) const {
  const Push* const push = Find(micro_batch);
  return push != nullptr && push->have.Contains(range);
}

PushAssembly::Push& PushAssembly::Add(PushId id, int64_t samples, Range range,
                                      const GradientBytes& values) {
  const auto [it, begins] = pushes_.try_emplace(id.micro_batch);
  Push& push = it->second;
  if (begins) {
    push.step = id.step;
    push.samples = samples;
    push.values = pool_.Take(range_.count);
    held_bytes_ += push.values.bytes();
    // What does not train need not come.
    std::fill(push.values.span().begin(), push.values.span().end(), 0.0f);
  }
  MUSTER_CHECK_EQ(push.step, id.step);
  push.have.ForEachMissing(range, [&](Range part) {
    values.CopyTo(part.offset - range.offset,
                  push.values.span().subspan(part.offset - range_.offset, part.count));
  });
  push.have.Add(range);
  return push;
}

void PushAssembly::Remove(int32_t micro_batch) {
  const auto it = pushes_.find(micro_batch);
  if (it == pushes_.end()) return;
  held_bytes_ -= it->second.values.bytes();
  pushes_.erase(it);
}

}  // namespace muster
