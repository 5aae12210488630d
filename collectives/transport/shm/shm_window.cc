#include "collectives/transport/shm/shm_window.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

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

namespace muster {
namespace {

// How long a rank that runs may need to notice that another has closed.
constexpr absl::Duration kLetGo = absl::Milliseconds(100);

template <typename T>
struct alignas(64) Line {
  std::atomic<T> value{0};
};
static_assert(std::atomic<uint64_t>::is_always_lock_free);
static_assert(sizeof(std::atomic<uint32_t>) == sizeof(uint32_t));

void FutexWait(std::atomic<uint32_t>& word, uint32_t seen, absl::Duration timeout) {
  const timespec relative = absl::ToTimespec(timeout);
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAIT, seen, &relative, nullptr, 0);
}

void FutexWake(std::atomic<uint32_t>& word) {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAKE, 1, nullptr, nullptr, 0);
}

}  // namespace

struct ShmWindow::Area {
  explicit Area(uint64_t number) : nonce(number) {}

  alignas(64) const uint64_t nonce;
  Line<uint64_t> count;     // arrivals of all ranks at all meets; rank 0's is used
  Line<uint64_t> arrived;   // meets this rank has arrived at
  Line<uint32_t> bell;      // the futex this rank sleeps on
  Line<uint32_t> sleeping;  // it is about to, or does
  Line<uint32_t> touching;  // it writes to others' registered memory
  Line<uint32_t> closed;    // its registered memory is not to be touched any more
  // By rank: it will not touch this area any more.
  alignas(64) std::atomic<uint8_t> left[kMaxRanks] = {};
  alignas(64) WindowCall calls[2];
  alignas(4096) std::byte stage[kStageBytes];

  void Ring() {
    bell.value.fetch_add(1);
    FutexWake(bell.value);
  }
};

absl::StatusOr<std::unique_ptr<ShmWindow>> ShmWindow::Create(std::shared_ptr<SharedArena> arena,
                                                             Rank rank, int world_size,
                                                             uint64_t nonce) {
  MUSTER_ASSIGN_OR_RETURN(SharedBuffer area, arena->Allocate(sizeof(Area)));
  return absl::WrapUnique(
      new ShmWindow(std::move(arena), std::move(area), rank, world_size, nonce));
}

ShmWindow::ShmWindow(std::shared_ptr<SharedArena> arena, SharedBuffer area, Rank rank,
                     int world_size, uint64_t nonce)
    : arena_(std::move(arena)),
      buffer_(std::move(area)),
      rank_(rank),
      nonce_(nonce),
      peers_(static_cast<size_t>(world_size)),
      own_(new (buffer_.data()) Area(nonce)) {
  const std::optional<int64_t> place = arena_->OffsetOf(buffer_.data(), buffer_.size());
  MUSTER_CHECK(place.has_value());
  Peer& own = peers_[rank_];
  own.base = buffer_.data() - *place;
  own.area = own_;
}

ShmWindow::~ShmWindow() {
  Shut();
  Unmap();
}

ShmWindow::Location ShmWindow::location() const {
  Location location;
  location.nonce = nonce_;
  location.pid = getpid();
  location.fd = arena_->fd();
  location.capacity = arena_->capacity();
  location.area = *arena_->OffsetOf(buffer_.data(), buffer_.size());
  return location;
}

absl::Status ShmWindow::Map(Rank rank, const Location& location) {
  const auto refuse = [rank, &location](const auto&... why) {
    return absl::UnavailableError(absl::StrCat("cannot map the memory of rank ", rank, " (process ",
                                               location.pid, "): ", why...));
  };
  const int64_t area_bytes = sizeof(Area);
  Peer& peer = peers_[rank];
  peer.process =
      std::make_shared<UniqueFd>(static_cast<int>(syscall(SYS_pidfd_open, location.pid, 0)));
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
  const auto bytes = static_cast<size_t>(location.capacity);
  const off_t there = lseek(file.get(), 0, SEEK_END);
  if (there < location.capacity) return refuse(path, " has ", there, " bytes: another process");
  void* const base =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file.get(), 0);
  if (base == MAP_FAILED) return refuse("mapping it: ", std::strerror(errno));
  peer.base = static_cast<std::byte*>(base);
  peer.mapped = location.capacity;
  peer.area = reinterpret_cast<Area*>(peer.base + location.area);
  if (peer.area->nonce != location.nonce) {
    peer.area = nullptr;
    return refuse(path, " is another process's");
  }
  return absl::OkStatus();
}

std::byte* ShmWindow::Stage(Rank rank) const { return peers_[rank].area->stage; }

std::optional<int64_t> ShmWindow::PlaceOf(const void* data, int64_t bytes) const {
  return arena_->OffsetOf(data, bytes);
}

void ShmWindow::Publish(const WindowCall& call) { own_->calls[++published_ % 2] = call; }

const WindowCall& ShmWindow::Published(Rank rank) const {
  return peers_[rank].area->calls[published_ % 2];
}

bool ShmWindow::Met() const {
  if (peers_.size() == 1) return true;
  if (peers_.size() == 2) {
    return peers_[1 - rank_].area->arrived.value.load(std::memory_order_acquire) >= meets_;
  }
  return peers_[0].area->count.value.load(std::memory_order_acquire) >= meets_ * peers_.size();
}

void ShmWindow::Arrive(uint64_t token) {
  MUSTER_CHECK(!waiting_);
  ++meets_;
  waiting_ = true;
  token_ = token;
  // Sequentially consistent: either the sleeper sees this arrival or it is seen sleeping.
  own_->arrived.value.store(meets_);
  bool last = true;
  if (peers_.size() > 2) {
    last = peers_[0].area->count.value.fetch_add(1) + 1 == meets_ * peers_.size();
  }
  if (!last) return;
  for (Peer& peer : peers_) {
    if (peer.area != own_ && peer.area->sleeping.value.load() != 0) peer.area->Ring();
  }
}

bool ShmWindow::TakeMet() {
  if (!waiting_ || !Met()) return false;
  waiting_ = false;
  return true;
}

std::vector<Rank> ShmWindow::Missing() const {
  std::vector<Rank> missing;
  for (size_t r = 0; waiting_ && r < peers_.size(); ++r) {
    if (peers_[r].area->arrived.value.load() < meets_) missing.push_back(static_cast<Rank>(r));
  }
  return missing;
}

std::optional<Rank> ShmWindow::ClosedWhileMissed() const {
  for (const Rank rank : Missing()) {
    if (peers_[rank].area->closed.value.load() != 0) return rank;
  }
  return std::nullopt;
}

std::optional<Rank> ShmWindow::AnyClosed() const {
  for (size_t r = 0; r < peers_.size(); ++r) {
    if (peers_[r].area != own_ && peers_[r].area->closed.value.load() != 0) {
      return static_cast<Rank>(r);
    }
  }
  return std::nullopt;
}

bool ShmWindow::BeginTouch() {
  own_->touching.value.store(1);  // Sequentially consistent, as is the closing rank's store.
  if (!AnyClosed().has_value()) return true;
  EndTouch();
  return false;
}

void ShmWindow::EndTouch() { own_->touching.value.store(0, std::memory_order_release); }

void ShmWindow::Block(absl::Duration timeout) {
  const uint32_t seen = own_->bell.value.load();
  own_->sleeping.value.store(1);
  if (!Met()) FutexWait(own_->bell.value, seen, timeout);
  own_->sleeping.value.store(0);
}

void ShmWindow::RingSelf() {
  MutexLock lock(&ring_mu_);
  if (!shut_) own_->Ring();
}

bool ShmWindow::HasEnded(const UniqueFd* process) {
  if (process == nullptr || !process->valid()) return false;
  pollfd ended = {process->get(), POLLIN, 0};
  return poll(&ended, 1, 0) == 1;
}

void ShmWindow::Shut() {
  {
    MutexLock lock(&ring_mu_);
    if (std::exchange(shut_, true)) return;
  }
  own_->closed.value.store(1);
  own_->touching.value.store(0);
  const absl::Time limit = absl::Now() + kLetGo;
  std::vector<std::pair<size_t, std::shared_ptr<UniqueFd>>> others;
  for (size_t r = 0; r < peers_.size(); ++r) {
    Peer& peer = peers_[r];
    if (peer.area == own_) continue;
    others.emplace_back(r, peer.process);  // It may have mapped this area, whatever this rank did.
    if (peer.area == nullptr) continue;
    peer.area->Ring();  // It may sleep, waiting for this rank.
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

void ShmWindow::Unmap() {
  for (Peer& peer : peers_) {
    if (peer.mapped > 0) munmap(peer.base, static_cast<size_t>(peer.mapped));
  }
}

}  // namespace muster
