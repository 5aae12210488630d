#include "collectives/transport/shm/arena_mappings.h"

#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace muster {
namespace {

constexpr int64_t kPageBytes = 4096;
constexpr int64_t kEnteredAtOnce = 1 << 20;

}  // namespace

ArenaMapping::~ArenaMapping() { munmap(base_, static_cast<size_t>(bytes_)); }

int64_t ArenaMapping::EnterPages(int64_t begin, int64_t end, int64_t most) {
  begin = begin / kPageBytes * kPageBytes;
  end = (end + kPageBytes - 1) / kPageBytes * kPageBytes;
  if (entered_.Covers(begin, end)) return 0;
  int64_t taken = 0;
  for (; begin < end && taken < most; begin += kEnteredAtOnce) {
    const int64_t stop = std::min(end, begin + kEnteredAtOnce);
    if (entered_.Covers(begin, stop)) continue;
    // Whatever comes of it: it is tried once.
    entered_.Add(begin, stop);
    taken += stop - begin;
#ifdef MADV_POPULATE_WRITE
    madvise(base_ + begin, static_cast<size_t>(stop - begin), MADV_POPULATE_WRITE);
#endif
  }
  return taken;
}

absl::StatusOr<std::shared_ptr<ArenaMapping>> ArenaMappings::Map(const UniqueFd& file,
                                                                 int64_t bytes) {
  struct stat status = {};
  if (fstat(file.get(), &status) != 0) {
    return absl::UnavailableError(absl::StrCat("looking at it: ", std::strerror(errno)));
  }
  if (status.st_size < bytes) {
    return absl::UnavailableError(
        absl::StrCat("it has ", status.st_size, " bytes: another process's"));
  }
  MutexLock lock(&mu_);
  std::shared_ptr<ArenaMapping>& mapping = mappings_[{status.st_dev, status.st_ino}];
  if (mapping != nullptr && mapping->bytes() == bytes) return mapping;
  void* const base = mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE,
                          MAP_SHARED | MAP_NORESERVE, file.get(), 0);
  if (base == MAP_FAILED) {
    const int error = errno;
    mappings_.erase({status.st_dev, status.st_ino});
    return absl::UnavailableError(absl::StrCat("mapping it: ", std::strerror(error)));
  }
  mapping = std::make_shared<ArenaMapping>(static_cast<std::byte*>(base), bytes);
  return mapping;
}

void ArenaMappings::DropUnused() {
  MutexLock lock(&mu_);
  std::erase_if(mappings_, [](const auto& entry) { return entry.second.use_count() == 1; });
}

}  // namespace muster
