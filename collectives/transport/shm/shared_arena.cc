#include "collectives/transport/shm/shared_arena.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status_macros.h"

namespace muster {
namespace {

constexpr int64_t kHugePageBytes = int64_t{2} << 20;
constexpr int64_t kMostByDefault = int64_t{1} << 40;

int64_t RoundUp(int64_t value, int64_t unit) { return (value + unit - 1) / unit * unit; }

int64_t MachineMemory() {
  return static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE);
}

}  // namespace

SharedBuffer::SharedBuffer(SharedBuffer&& other) noexcept
    : arena_(std::move(other.arena_)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)) {}

SharedBuffer& SharedBuffer::operator=(SharedBuffer&& other) noexcept {
  if (this != &other) {
    if (arena_ != nullptr) arena_->Free(data_);
    arena_ = std::move(other.arena_);
    data_ = std::exchange(other.data_, nullptr);
    size_ = std::exchange(other.size_, 0);
  }
  return *this;
}

SharedBuffer::~SharedBuffer() {
  if (arena_ != nullptr) arena_->Free(data_);
}

absl::Status SharedBuffer::Renew() {
  return arena_ == nullptr ? absl::OkStatus() : arena_->Renew(data_);
}

absl::StatusOr<std::shared_ptr<SharedArena>> SharedArena::Create(Options options) {
  const int64_t capacity =
      RoundUp(options.capacity_bytes > 0 ? options.capacity_bytes
                                         : std::min(kMostByDefault, 2 * MachineMemory()),
              kHugePageBytes);
  UniqueFd file(memfd_create("muster", MFD_CLOEXEC));
  if (!file.valid()) return ErrnoStatus(errno, "creating shared memory (memfd_create)");
  if (ftruncate(file.get(), capacity) != 0) {
    return ErrnoStatus(errno, absl::StrCat("giving shared memory a size of ", capacity, " bytes"));
  }
  // Aligned for huge pages: a little more is reserved, then the file mapped within.
  const auto span = static_cast<size_t>(capacity + kHugePageBytes);
  void* const reserved =
      mmap(nullptr, span, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (reserved == MAP_FAILED) {
    return ErrnoStatus(
        errno,
        absl::StrCat("reserving ", span, " bytes of address space (is there a limit, ulimit -v?)"));
  }
  const auto start = reinterpret_cast<uintptr_t>(reserved);
  const uintptr_t aligned =
      (start + kHugePageBytes - 1) / kHugePageBytes * static_cast<uintptr_t>(kHugePageBytes);
  if (aligned > start) munmap(reserved, aligned - start);
  const uintptr_t end = aligned + static_cast<uintptr_t>(capacity);
  if (start + span > end) munmap(reinterpret_cast<void*>(end), start + span - end);
  auto* const base = reinterpret_cast<std::byte*>(aligned);
  if (mmap(base, static_cast<size_t>(capacity), PROT_READ | PROT_WRITE,
           MAP_SHARED | MAP_NORESERVE | MAP_FIXED, file.get(), 0) == MAP_FAILED) {
    const int error = errno;
    munmap(base, static_cast<size_t>(capacity));
    return ErrnoStatus(error, absl::StrCat("mapping ", capacity, " bytes of shared memory"));
  }
  // A wish. For all of it: buffers of less than a huge page lie side by side, too, and whoever
  // reads many of them in turn gains as much.
  if (options.huge_pages) madvise(base, static_cast<size_t>(capacity), MADV_HUGEPAGE);
  return std::shared_ptr<SharedArena>(new SharedArena(std::move(file), base, capacity));
}

SharedArena::SharedArena(UniqueFd file, std::byte* base, int64_t capacity)
    : file_(std::move(file)), base_(base), capacity_(capacity) {
  free_.emplace(0, capacity);
}

SharedArena::~SharedArena() { munmap(base_, static_cast<size_t>(capacity_)); }

absl::StatusOr<int64_t> SharedArena::Take(int64_t size) {
  // The tightest fit, so that big ranges stay whole.
  auto best = free_.end();
  for (auto it = free_.begin(); it != free_.end(); ++it) {
    if (it->second >= size && (best == free_.end() || it->second < best->second)) best = it;
  }
  if (best == free_.end()) {
    int64_t left = 0;
    for (const auto& [offset, bytes] : free_) left = std::max(left, bytes);
    return absl::ResourceExhaustedError(
        absl::StrCat("shared memory: ", size, " bytes asked for, but the largest free range has ",
                     left, " of ", capacity_, "; allow a larger arena"));
  }
  // Huge buffers begin at huge pages.
  const auto [offset, bytes] = *best;
  int64_t begin = offset;
  if (size >= kHugePageBytes && bytes >= size + kHugePageBytes)
    begin = RoundUp(offset, kHugePageBytes);
  free_.erase(best);
  if (begin > offset) free_.emplace(offset, begin - offset);
  if (offset + bytes > begin + size) free_.emplace(begin + size, offset + bytes - begin - size);
  return begin;
}

void SharedArena::Give(int64_t offset, int64_t size) {
  auto next = free_.lower_bound(offset);
  if (next != free_.end() && next->first == offset + size) {
    size += next->second;
    next = free_.erase(next);
  }
  if (next != free_.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second == offset) {
      before->second += size;
      return;
    }
  }
  free_.emplace(offset, size);
}

absl::Status SharedArena::Populate(std::byte* at, int64_t size) const {
  const auto bytes = static_cast<size_t>(size);
#ifdef MADV_POPULATE_WRITE
  if (madvise(at, bytes, MADV_POPULATE_WRITE) == 0) return absl::OkStatus();
  if (errno != EINVAL) {
    return ErrnoStatus(errno, absl::StrCat("taking ", size, " bytes of shared memory"));
  }
#endif
  // An older kernel: touches each page without changing it.
  for (int64_t i = 0; i < size; i += kAlignment) {
    auto* const byte = reinterpret_cast<volatile unsigned char*>(at + i);
    *byte = *byte;
  }
  return absl::OkStatus();
}

absl::StatusOr<SharedBuffer> SharedArena::Allocate(int64_t bytes, int64_t there) {
  MUSTER_CHECK_GE(there, 0);
  MUSTER_CHECK_LE(there, bytes);
  if (bytes > capacity_) {
    return absl::ResourceExhaustedError(
        absl::StrCat("shared memory: ", bytes, " bytes asked for of an arena of ", capacity_));
  }
  FreeAbandoned();
  const int64_t size = RoundUp(std::max<int64_t>(bytes, 1), kAlignment);
  int64_t offset = 0;
  {
    MutexLock lock(&mu_);
    MUSTER_ASSIGN_OR_RETURN(offset, Take(size));
    extents_[offset] = {size, offset};
  }
  SharedBuffer buffer;
  buffer.arena_ = shared_from_this();
  buffer.data_ = base_ + offset;
  buffer.size_ = bytes;
  MUSTER_RETURN_IF_ERROR(
      Populate(buffer.data_, there == bytes ? size : RoundUp(there, kAlignment)));
  return buffer;
}

void SharedArena::Abandon(SharedBuffer buffer, std::function<bool()> gone) {
  buffer.arena_.reset();  // The arena does not keep itself alive.
  MutexLock lock(&mu_);
  abandoned_.push_back({std::move(buffer), std::move(gone)});
}

void SharedArena::FreeAbandoned() {
  std::vector<std::byte*> free;
  {
    MutexLock lock(&mu_);
    for (size_t i = abandoned_.size(); i-- > 0;) {
      if (!abandoned_[i].gone()) continue;
      free.push_back(abandoned_[i].buffer.data());
      abandoned_.erase(abandoned_.begin() + static_cast<ptrdiff_t>(i));
    }
  }
  for (std::byte* data : free) Free(data);
}

void SharedArena::Free(std::byte* data) {
  MutexLock lock(&mu_);
  changes_.fetch_add(1);
  const auto it = extents_.find(data - base_);
  MUSTER_CHECK(it != extents_.end());
  const Extent extent = it->second;
  const int64_t address = it->first;
  extents_.erase(it);
  if (extent.file_offset == address) {
    Give(address, extent.size);
  } else {
    // The pages moved (Renew); what lies at this address in the file is out of use for good, and
    // so is the address.
    Give(extent.file_offset, extent.size);
  }
}

absl::Status SharedArena::Renew(std::byte* data) {
  MutexLock lock(&mu_);
  changes_.fetch_add(1);
  const auto it = extents_.find(data - base_);
  MUSTER_CHECK(it != extents_.end());
  Extent& extent = it->second;
  const auto size = static_cast<size_t>(extent.size);
  MUSTER_ASSIGN_OR_RETURN(const int64_t fresh, Take(extent.size));
  // The fresh pages' own address shows them until they are moved; from then on it is not used.
  const absl::Status there = Populate(base_ + fresh, extent.size);
  if (there.ok()) std::memcpy(base_ + fresh, data, size);
  if (!there.ok() ||
      mmap(data, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE | MAP_FIXED, file_.get(),
           fresh) == MAP_FAILED) {
    const absl::Status status = there.ok() ? ErrnoStatus(errno, "exchanging shared pages") : there;
    Give(fresh, extent.size);
    return status;
  }
  extent.file_offset = fresh;
  return absl::OkStatus();
}

std::optional<int64_t> SharedArena::OffsetOf(const void* data, int64_t bytes) const {
  const auto address = reinterpret_cast<uintptr_t>(data);
  const auto base = reinterpret_cast<uintptr_t>(base_);
  if (address < base || address - base >= static_cast<uintptr_t>(capacity_)) return std::nullopt;
  const auto at = static_cast<int64_t>(address - base);
  MutexLock lock(&mu_);
  auto it = extents_.upper_bound(at);
  if (it == extents_.begin()) return std::nullopt;
  --it;
  const int64_t within = at - it->first;
  if (within > it->second.size || bytes > it->second.size - within) return std::nullopt;
  return it->second.file_offset + within;
}

}  // namespace muster
