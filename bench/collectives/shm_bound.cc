#include "bench/collectives/shm_bound.h"

#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "bench/collectives/rank_group.h"
#include "collectives/reduce/reduce.h"

namespace muster::bench {
namespace {

constexpr size_t kHugePageBytes = size_t{2} << 20;
constexpr size_t kPastCachesBytes = size_t{4} << 20;
// Room for two buffers of 64 MiB and more per rank; only what is touched is taken.
constexpr size_t kArenaBytes = size_t{1} << 30;

struct Control {
  alignas(64) std::atomic<uint32_t> arrived;
  alignas(64) std::atomic<uint32_t> generation;
  alignas(64) std::atomic<uint32_t> sleepers;
};

class BoundRank : public BenchRank {
 public:
  BoundRank(int rank, int ranks, Control* control, char* arenas)
      : rank_(rank),
        ranks_(ranks),
        spins_(ranks <= static_cast<int>(std::thread::hardware_concurrency())),
        control_(control),
        arenas_(arenas) {}

  // All ranks allocate alike: equal places in their arenas.
  void* Allocate(size_t bytes) override {
    void* const at = arenas_ + rank_ * kArenaBytes + used_;
    used_ += (bytes + 4095) / 4096 * 4096;
    if (used_ > kArenaBytes) std::exit(1);
    return at;
  }

  bool Supports(const Trial& trial) const override { return trial.kind == Kind::kAllReduce; }

  void Run(const Trial& trial, const void* input, void* output) override {
    const DType dtype = DTypeFromName(Name(trial.type)).value();
    const ReduceOp op = ReduceOpFromName(Name(trial.redop)).value();
    const size_t element = SizeOf(dtype);
    const size_t count = trial.count;
    Barrier();
    const size_t begin = count * static_cast<size_t>(rank_) / static_cast<size_t>(ranks_);
    const size_t end = count * static_cast<size_t>(rank_ + 1) / static_cast<size_t>(ranks_);
    const void* sources[64];
    void* targets[64];
    for (int r = 0; r < ranks_; ++r) {
      const ptrdiff_t shift = (r - rank_) * static_cast<ptrdiff_t>(kArenaBytes) +
                              static_cast<ptrdiff_t>(begin * element);
      sources[r] = static_cast<const char*>(input) + shift;
      targets[r] = static_cast<char*>(output) + shift;
    }
    const size_t n = static_cast<size_t>(ranks_);
    ReduceManyInto(dtype, op, {targets, n}, {sources, n}, static_cast<int64_t>(end - begin),
                   op == ReduceOp::kAverage ? ranks_ : 1, count * element >= kPastCachesBytes);
    Barrier();
  }

 private:
  void Barrier() {
    const uint32_t generation = control_->generation.load();
    if (control_->arrived.fetch_add(1) + 1 == static_cast<uint32_t>(ranks_)) {
      control_->arrived.store(0);
      control_->generation.store(generation + 1);
      if (!spins_ && control_->sleepers.load() > 0) {
        syscall(SYS_futex, &control_->generation, FUTEX_WAKE, 1 << 30, nullptr, nullptr, 0);
      }
      return;
    }
    while (control_->generation.load() == generation) {
      if (spins_) {
        __builtin_ia32_pause();
      } else {
        control_->sleepers.fetch_add(1);
        syscall(SYS_futex, &control_->generation, FUTEX_WAIT, generation, nullptr, nullptr, 0);
        control_->sleepers.fetch_sub(1);
      }
    }
  }

  const int rank_;
  const int ranks_;
  const bool spins_;
  Control* const control_;
  char* const arenas_;
  size_t used_ = 0;
};

int NoMemory() {
  std::fprintf(stderr, "bench: no shared memory for the bound\n");
  return 1;
}

}  // namespace

int ServeShmBound(int ranks) {
  const size_t bytes = kHugePageBytes + kArenaBytes * static_cast<size_t>(ranks);
  // Huge pages need the mapping itself to begin at one.
  void* const reserved = mmap(nullptr, bytes + kHugePageBytes, PROT_NONE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (reserved == MAP_FAILED) return NoMemory();
  const uintptr_t start = reinterpret_cast<uintptr_t>(reserved);
  const uintptr_t aligned = (start + kHugePageBytes - 1) / kHugePageBytes * kHugePageBytes;
  void* const memory = mmap(reinterpret_cast<void*>(aligned), bytes, PROT_READ | PROT_WRITE,
                            MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  if (memory == MAP_FAILED) return NoMemory();
  madvise(memory, bytes, MADV_HUGEPAGE);
  auto* const control = static_cast<Control*>(memory);
  auto* const arenas = static_cast<char*>(memory) + kHugePageBytes;
  return ServeRanks(ranks, /*processes=*/true, [&](int rank, Exchange&) {
    return std::make_unique<BoundRank>(rank, ranks, control, arenas);
  });
}

}  // namespace muster::bench
