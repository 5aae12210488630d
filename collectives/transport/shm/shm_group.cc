#include "collectives/transport/shm/shm_group.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <new>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "collectives/transport/shm/shm_blocks.h"

namespace muster {
namespace {

// How long a rank that runs may need to notice that another has closed.
constexpr absl::Duration kLetGo = absl::Milliseconds(100);
constexpr absl::Duration kLongestSleep = absl::Hours(1);

void FutexWait(std::atomic<uint32_t>& word, uint32_t seen, absl::Duration timeout) {
  const timespec relative = absl::ToTimespec(timeout);
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAIT, seen, &relative, nullptr, 0);
}

void RingBell(ShmArea& area) {
  area.bell.value.fetch_add(1);
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&area.bell.value), FUTEX_WAKE, 1, nullptr, nullptr,
          0);
}

int64_t RingsBytes(int world_size) { return world_size * static_cast<int64_t>(sizeof(ShmRing)); }
int64_t AreaBytes(int world_size) {
  return static_cast<int64_t>(sizeof(ShmArea)) + RingsBytes(world_size) + ShmBlocks::kBytes;
}

}  // namespace

absl::StatusOr<std::unique_ptr<ShmGroup>> ShmGroup::Create(std::shared_ptr<SharedArena> arena,
                                                           Rank rank, int world_size,
                                                           uint64_t nonce) {
  MUSTER_ASSIGN_OR_RETURN(SharedBuffer area,
                          arena->Allocate(AreaBytes(world_size), /*there=*/sizeof(ShmArea)));
  return absl::WrapUnique(new ShmGroup(std::move(arena), std::move(area), rank, world_size, nonce));
}

ShmGroup::ShmGroup(std::shared_ptr<SharedArena> arena, SharedBuffer area, Rank rank, int world_size,
                   uint64_t nonce)
    : arena_(std::move(arena)),
      buffer_(std::move(area)),
      rank_(rank),
      nonce_(nonce),
      peers_(static_cast<size_t>(world_size)),
      own_(new (buffer_.data()) ShmArea(nonce)) {
  const std::optional<int64_t> place = arena_->OffsetOf(buffer_.data(), buffer_.size());
  MUSTER_CHECK(place.has_value());
  Peer& own = peers_[rank_];
  own.base = buffer_.data() - *place;
  own.area = own_;
}

ShmGroup::~ShmGroup() { Shut(); }

ShmGroup::Location ShmGroup::location() const {
  Location location;
  location.nonce = nonce_;
  location.pid = getpid();
  location.fd = arena_->fd();
  location.capacity = arena_->capacity();
  location.area = reinterpret_cast<std::byte*>(own_) - peers_[rank_].base;
  location.address = reinterpret_cast<uintptr_t>(own_);
  return location;
}

absl::Status ShmGroup::Map(Rank rank, const Location& location) {
  const auto refuse = [&location](const auto&... why) {
    return absl::UnavailableError(
        absl::StrCat("cannot map the memory of process ", location.pid, ": ", why...));
  };
  const int64_t area_bytes = AreaBytes(size());
  Peer& peer = peers_[rank];
  UniqueFd process(static_cast<int>(syscall(SYS_pidfd_open, location.pid, 0)));
  peer.was_gone = location.pid > 0 && !process.valid() && errno == ESRCH;
  peer.process = std::make_shared<UniqueFd>(std::move(process));
  if (location.pid <= 0 || location.fd < 0 || location.area < 0 ||
      location.area % SharedArena::kAlignment != 0 || location.capacity < area_bytes ||
      location.area > location.capacity - area_bytes) {
    return refuse("it describes it wrongly");
  }
  const std::string path = absl::StrCat("/proc/", location.pid, "/fd/", location.fd);
  const UniqueFd file(open(path.c_str(), O_RDWR | O_CLOEXEC));
  if (!file.valid()) {
    return refuse("opening ", path, ": ", std::strerror(errno),
                  " (both processes must share host, process namespace and user)");
  }
  auto mapping = arena_->others().Map(file, location.capacity);
  if (!mapping.ok()) return refuse(path, ": ", std::string(mapping.status().message()));
  peer.mapping = *std::move(mapping);
  peer.base = peer.mapping->base();
  peer.pid = location.pid;
  peer.address = location.address;
  peer.area = reinterpret_cast<ShmArea*>(peer.base + location.area);
  if (peer.area->nonce != location.nonce) {
    peer.area = nullptr;
    return refuse(path, " is another process's");
  }
  return absl::OkStatus();
}

std::optional<int64_t> ShmGroup::PlaceOf(const void* data, int64_t bytes) {
  const uint64_t changes = arena_->changes();
  for (const KnownPlace& known : known_places_) {
    if (known.data == data && known.bytes == bytes && known.changes == changes) return known.place;
  }
  const std::optional<int64_t> place = arena_->OffsetOf(data, bytes);
  if (place.has_value()) {
    known_places_[next_known_place_++ % known_places_.size()] = {data, bytes, changes, *place};
  }
  return place;
}

int64_t ShmGroup::MapPages(Rank rank, int64_t place, int64_t bytes, int64_t most) {
  const Peer& peer = peers_[rank];
  if (peer.area == own_ || !Holds(rank, place, bytes)) return 0;
  return peer.mapping->EnterPages(place, place + bytes, most);
}

absl::Status ShmGroup::Read(Rank rank, uint64_t address, absl::Span<std::byte> to) const {
  while (!to.empty()) {
    const iovec local = {to.data(), to.size()};
    const iovec remote = {reinterpret_cast<void*>(address), to.size()};
    const ssize_t got =
        process_vm_readv(static_cast<pid_t>(peers_[rank].pid), &local, 1, &remote, 1, 0);
    if (got <= 0) {
      return ErrnoStatus(
          got == 0 ? EFAULT : errno,
          absl::StrCat("reading memory of process ", peers_[rank].pid, " (process_vm_readv)"));
    }
    to.remove_prefix(static_cast<size_t>(got));
    address += static_cast<uint64_t>(got);
  }
  return absl::OkStatus();
}

absl::Status ShmGroup::TryToRead(Rank rank) const {
  uint64_t nonce = 0;
  MUSTER_RETURN_IF_ERROR(Read(rank, peers_[rank].address,
                              absl::MakeSpan(reinterpret_cast<std::byte*>(&nonce), sizeof(nonce))));
  if (nonce == peers_[rank].area->nonce) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat("process ", peers_[rank].pid, " is another one than the peer"));
}

ShmRing& ShmGroup::Ring(Rank from, Rank to) const {
  return reinterpret_cast<ShmRing*>(reinterpret_cast<std::byte*>(peers_[to].area) +
                                    sizeof(ShmArea))[from];
}

std::byte* ShmGroup::blocks() const {
  return reinterpret_cast<std::byte*>(own_) + sizeof(ShmArea) + RingsBytes(size());
}

int64_t ShmGroup::blocks_place() const { return blocks() - peers_[rank_].base; }

void ShmGroup::Wake(Rank rank) {
  Peer& peer = peers_[rank];
  const uint64_t sleep = peer.area->sleeping.value.load();
  // Rung once, a sleep is over: the bell it has seen has changed.
  if (sleep == 0 || sleep == peer.rung) return;
  peer.rung = sleep;
  RingBell(*peer.area);
}

void ShmGroup::WaitForBell(uint32_t seen, absl::Duration timeout) {
  FutexWait(own_->bell.value, seen, std::min(timeout, kLongestSleep));
}

void ShmGroup::RingSelf() {
  MutexLock lock(&ring_mu_);
  if (!shut_) RingBell(*own_);
}

std::optional<Rank> ShmGroup::AnyClosed() const {
  for (size_t r = 0; r < peers_.size(); ++r) {
    if (peers_[r].area != own_ && peers_[r].area->closed.value.load() != 0) {
      return static_cast<Rank>(r);
    }
  }
  return std::nullopt;
}

bool ShmGroup::BeginTouch() {
  own_->touching.value.store(1);  // Sequentially consistent, as is the closing rank's store.
  if (!AnyClosed().has_value()) return true;
  EndTouch();
  return false;
}

void ShmGroup::EndTouch() { own_->touching.value.store(0, std::memory_order_release); }

bool ShmGroup::HasEnded(const UniqueFd* process) {
  if (process == nullptr || !process->valid()) return false;
  pollfd ended = {process->get(), POLLIN, 0};
  return poll(&ended, 1, 0) == 1;
}

void ShmGroup::Shut() {
  {
    MutexLock lock(&ring_mu_);
    if (std::exchange(shut_, true)) return;
  }
  own_->closed.value.store(1);
  const absl::Time limit = absl::Now() + kLetGo;
  std::vector<std::pair<size_t, std::shared_ptr<UniqueFd>>> others;
  for (size_t r = 0; r < peers_.size(); ++r) {
    Peer& peer = peers_[r];
    if (peer.area == own_) continue;
    others.emplace_back(r, peer.process);  // It may have mapped this area, whatever this rank did.
    if (peer.area == nullptr) continue;
    peer.area->others_closed.value.store(1);
    RingBell(*peer.area);  // It may sleep, waiting for this rank.
    while (peer.area->touching.value.load() != 0 && !HasEnded(peer.process.get())) {
      if (absl::Now() >= limit) {
        tainted_ = true;
        break;
      }
      absl::SleepFor(absl::Microseconds(20));
    }
    peer.area->left[rank_].store(1);
  }
  // Ranks that have not left yet write to this area still.
  arena_->Abandon(std::move(buffer_), [own = own_, others = std::move(others)] {
    for (const auto& [rank, process] : others) {
      if (own->left[rank].load() == 0 && !HasEnded(process.get())) return false;
    }
    return true;
  });
}

}  // namespace muster
