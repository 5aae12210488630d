#include "collectives/transport/shm/shm_window.h"

#include <algorithm>

#include "base/check.h"

namespace muster {
namespace {

constexpr int kSoonLooks = 20;  // about a microsecond

}  // namespace

bool ShmWindow::Met() const {
  if (size_ == 1) return true;
  if (for_pieces_) {
    if (size_ > 2) {
      return group_.area(0).all_finished.value.load(std::memory_order_acquire) >= all_pieces_end_;
    }
    return group_.area(0).finished.value.load(std::memory_order_acquire) +
               group_.area(1).finished.value.load(std::memory_order_acquire) >=
           all_pieces_end_;
  }
  if (size_ == 2) {
    const ShmArea& other = group_.area(1 - group_.rank());
    return (shows_ ? other.calls[published_ % 2].meet : other.arrived.value)
               .load(std::memory_order_acquire) >= meets_;
  }
  return group_.area(0).all_arrived.value.load(std::memory_order_acquire) >= meets_ * size_;
}

bool ShmWindow::TakeMet() {
  if (!waiting_ || !Met()) return false;
  waiting_ = false;
  shows_ = false;
  return true;
}

bool ShmWindow::TakeMetSoon() {
  for (int look = share_cores_ ? kSoonLooks : 1; look < kSoonLooks; ++look) {
    if (TakeMet()) return true;
    __builtin_ia32_pause();
  }
  return TakeMet();
}

void ShmWindow::Arrive(uint64_t token) {
  MUSTER_CHECK(!waiting_);
  ++meets_;
  waiting_ = true;
  for_pieces_ = false;
  token_ = token;
  // The last store is sequentially consistent: either a sleeper sees this arrival or it is seen
  // sleeping.
  if (shows_) group_.own().calls[published_ % 2].meet.store(meets_, std::memory_order_release);
  group_.own().arrived.value.store(meets_);
  if (size_ > 2 && group_.area(0).all_arrived.value.fetch_add(1) + 1 != meets_ * size_) return;
  WakeOthers();
}

void ShmWindow::WakeOthers() {
  for (size_t r = 0; r < size_; ++r) {
    if (static_cast<Rank>(r) != group_.rank()) group_.Wake(static_cast<Rank>(r));
  }
}

void ShmWindow::OfferPieces(absl::Span<const int64_t> counts) {
  MUSTER_CHECK(!waiting_ && counts.size() == size_);
  for (size_t r = 0; r < size_; ++r) {
    offered_[r] = static_cast<uint64_t>(counts[r]);
    pieces_end_[r] += offered_[r];
    all_pieces_end_ += offered_[r];
  }
  group_.own().working.value.store(1, std::memory_order_relaxed);
}

Window::Pieces ShmWindow::TakePieces(Rank owner, int64_t most) {
  const uint64_t end = pieces_end_[owner];
  std::atomic<uint64_t>& taken = group_.area(owner).taken.value;
  uint64_t next = taken.load(std::memory_order_relaxed);
  // A rank that comes late finds those of the collective taken, and perhaps later ones, too.
  while (next < end) {
    const uint64_t count = std::min(end - next, static_cast<uint64_t>(most));
    if (!taken.compare_exchange_weak(next, next + count, std::memory_order_relaxed)) continue;
    return {static_cast<int64_t>(next + offered_[owner] - end), static_cast<int64_t>(count)};
  }
  return {};
}

void ShmWindow::FinishPieces(int64_t count, uint64_t token) {
  MUSTER_CHECK(!waiting_);
  waiting_ = true;
  for_pieces_ = true;
  token_ = token;
  // Sequentially consistent, as in Arrive.
  const auto done = static_cast<uint64_t>(count);
  group_.own().finished.value.fetch_add(done);
  const bool last =
      size_ <= 2 || group_.area(0).all_finished.value.fetch_add(done) + done == all_pieces_end_;
  group_.own().working.value.store(0, std::memory_order_relaxed);
  if (last && done > 0) WakeOthers();
}

bool ShmWindow::HasPieces(Rank rank) const {
  const ShmArea& area = group_.area(rank);
  return area.working.value.load() != 0 || area.taken.value.load() < pieces_end_[rank];
}

std::vector<Rank> ShmWindow::Missing() const {
  std::vector<Rank> missing;
  for (size_t r = 0; waiting_ && r < size_; ++r) {
    const Rank rank = static_cast<Rank>(r);
    const bool is_behind =
        for_pieces_ ? HasPieces(rank) : group_.area(rank).arrived.value.load() < meets_;
    if (is_behind) missing.push_back(rank);
  }
  return missing;
}

std::optional<Rank> ShmWindow::ClosedWhileMissed() const {
  for (const Rank rank : Missing()) {
    if (group_.IsClosed(rank)) return rank;
  }
  return std::nullopt;
}

}  // namespace muster
