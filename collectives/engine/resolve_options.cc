#include "collectives/engine/resolve_options.h"

#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <thread>

#include "absl/time/time.h"
#include "collectives/transport/give_way.h"
#include "collectives/transport/window.h"

namespace muster {
namespace {

// Of a core's own cache, where the system does not say.
constexpr int64_t kUsualCacheBytes = int64_t{1} << 20;

int64_t Cores() { return std::max(1u, std::thread::hardware_concurrency()); }

int64_t CacheBytes() {
#ifdef _SC_LEVEL2_CACHE_SIZE
  if (const long bytes = sysconf(_SC_LEVEL2_CACHE_SIZE); bytes > 0) return bytes;
#endif
  return kUsualCacheBytes;
}

}  // namespace

CommunicatorOptions ResolveOptions(CommunicatorOptions options, const Transport& transport) {
  const bool have_cores = !RanksShareCores(transport.local_world_size());
  if (options.segment_bytes == 0) options.segment_bytes = transport.best_segment_bytes();
  if (options.spin < absl::ZeroDuration()) {
    options.spin = have_cores ? absl::Microseconds(50) : absl::ZeroDuration();
  }
  if (options.window_small_limit_bytes < 0) {
    options.window_small_limit_bytes = have_cores ? 4 << 10 : 64 << 10;
  }
  return options;
}

WindowSizes WindowSizesOf(Transport& transport, const CommunicatorOptions& options) {
  const Window* const window = transport.window();
  if (window == nullptr) return {};
  const int64_t ranks = transport.local_world_size();
  const int64_t cache_bytes = CacheBytes() * std::min(Cores(), ranks) / ranks;
  // Of all inputs together a rank reads as much as one has, and writes as much of the outputs.
  // Caches begin to gain by not holding the latter where both are half as much again as they hold.
  return {window->stage_bytes(), options.window_small_limit_bytes, cache_bytes * 3 / 4};
}

std::optional<ChoiceRequest::Window> WindowChoiceOf(Transport& transport,
                                                    const CommunicatorOptions& options) {
  const Window* const window = transport.window();
  if (window == nullptr) return std::nullopt;
  return ChoiceRequest::Window{
      options.window_small_limit_bytes,
      WindowHalfBytes(window->stage_bytes(), options.segment_bytes, transport.world_size())};
}

}  // namespace muster
