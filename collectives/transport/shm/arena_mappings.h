// Other processes' arenas, mapped here. A mapping outlives the mesh that made it: the next one
// mostly has the same members, and a mapping whose pages all have been touched is worth keeping,
// since the kernel takes a fraction of a second to enter those of a large model's state anew.
//
// Thread-safe; a mapping itself is used by one thread at a time.
#ifndef MUSTER_COLLECTIVES_TRANSPORT_SHM_ARENA_MAPPINGS_H_
#define MUSTER_COLLECTIVES_TRANSPORT_SHM_ARENA_MAPPINGS_H_

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "collectives/transport/shm/range_set.h"
#include "collectives/transport/socket.h"

namespace muster {

// The first bytes() of a file. Unmapped when the last owner goes.
class ArenaMapping {
 public:
  ArenaMapping(std::byte* base, int64_t bytes) : base_(base), bytes_(bytes) {}
  ~ArenaMapping();
  ArenaMapping(const ArenaMapping&) = delete;
  ArenaMapping& operator=(const ArenaMapping&) = delete;

  std::byte* base() const { return base_; }
  int64_t bytes() const { return bytes_; }

  // Has the kernel enter the pages of [begin, end) as far as it was never asked for them, `most`
  // bytes at most. Returns how many it took. A wish: not every kernel grants it.
  int64_t EnterPages(int64_t begin, int64_t end, int64_t most);

 private:
  std::byte* const base_;
  const int64_t bytes_;
  RangeSet entered_;
};

class ArenaMappings {
 public:
  // The first `bytes` of the file: as mapped before, if that is still there. UNAVAILABLE: the
  // kernel's refusal, or the file is smaller.
  absl::StatusOr<std::shared_ptr<ArenaMapping>> Map(const UniqueFd& file, int64_t bytes)
      ABSL_LOCKS_EXCLUDED(mu_);
  // Lets go of those that nobody has now: they keep the memory of processes that have ended.
  void DropUnused() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  // A file's device and number, which no other has while it is mapped.
  using FileId = std::pair<dev_t, ino_t>;
  Mutex mu_;
  std::map<FileId, std::shared_ptr<ArenaMapping>> mappings_ ABSL_GUARDED_BY(mu_);
};

}  // namespace muster

#endif  // MUSTER_COLLECTIVES_TRANSPORT_SHM_ARENA_MAPPINGS_H_
