#include "bench/strategies/allocations.h"

#include <malloc.h>

#include <atomic>
#include <cstdlib>
#include <new>

namespace muster::bench {
namespace {

std::atomic<int64_t> in_use{0};
std::atomic<int64_t> peak{0};

void* Take(size_t size) {
  void* const memory = std::malloc(size == 0 ? 1 : size);
  if (memory == nullptr) throw std::bad_alloc();
  const int64_t now = in_use.fetch_add(static_cast<int64_t>(malloc_usable_size(memory))) +
                      static_cast<int64_t>(malloc_usable_size(memory));
  int64_t most = peak.load();
  while (most < now && !peak.compare_exchange_weak(most, now)) {
  }
  return memory;
}

void Give(void* memory) {
  if (memory == nullptr) return;
  in_use.fetch_sub(static_cast<int64_t>(malloc_usable_size(memory)));
  std::free(memory);
}

}  // namespace

int64_t AllocatedBytes() { return in_use.load(); }
int64_t PeakBytes() { return peak.load(); }
void ResetPeak() { peak.store(in_use.load()); }

}  // namespace muster::bench

void* operator new(size_t size) { return muster::bench::Take(size); }
void* operator new[](size_t size) { return muster::bench::Take(size); }
void operator delete(void* memory) noexcept { muster::bench::Give(memory); }
void operator delete[](void* memory) noexcept { muster::bench::Give(memory); }
void operator delete(void* memory, size_t) noexcept { muster::bench::Give(memory); }
void operator delete[](void* memory, size_t) noexcept { muster::bench::Give(memory); }
