// Scratch memory of operations, kept for the next one: fresh pages are expensive. Not thread-safe.
#ifndef MUSTER_COLLECTIVES_ENGINE_SCRATCH_POOL_H_
#define MUSTER_COLLECTIVES_ENGINE_SCRATCH_POOL_H_

#include <cstddef>
#include <memory>
#include <new>
#include <utility>
#include <vector>

namespace muster {

struct ScratchBuffer {
  static constexpr std::align_val_t kAlignment{64};
  struct Free {
    void operator()(std::byte* pointer) const { ::operator delete[](pointer, kAlignment); }
  };
  std::unique_ptr<std::byte[], Free> bytes;
  size_t size = 0;
};

class ScratchPool {
 public:
  // At least `size` bytes, of any contents.
  ScratchBuffer Take(size_t size) {
    if (size == 0) return {};
    for (ScratchBuffer& kept : kept_) {
      if (kept.size < size) continue;
      std::swap(kept, kept_.back());
      ScratchBuffer taken = std::move(kept_.back());
      kept_.pop_back();
      return taken;
    }
    ScratchBuffer fresh;
    fresh.bytes.reset(static_cast<std::byte*>(::operator new[](size, ScratchBuffer::kAlignment)));
    fresh.size = size;
    return fresh;
  }

  void Give(ScratchBuffer buffer) {
    if (buffer.size == 0) return;
    if (kept_.size() == kMost) {
      // Too many: the smallest goes.
      size_t smallest = 0;
      for (size_t i = 1; i < kept_.size(); ++i) {
        if (kept_[i].size < kept_[smallest].size) smallest = i;
      }
      if (kept_[smallest].size >= buffer.size) return;
      std::swap(kept_[smallest], buffer);
      return;
    }
    kept_.push_back(std::move(buffer));
  }

 private:
  static constexpr size_t kMost = 2;  // as many as operations run at once
  std::vector<ScratchBuffer> kept_;
};

}  // namespace muster

#endif  // MUSTER_COLLECTIVES_ENGINE_SCRATCH_POOL_H_
