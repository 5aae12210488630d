#include "collectives/transport/shm/shm_window.h"

#include "base/check.h"

namespace muster {

bool ShmWindow::Met() const {
  if (size_ == 1) return true;
  if (size_ == 2) {
    return group_.area(1 - group_.rank()).arrived.value.load(std::memory_order_acquire) >= meets_;
  }
  return group_.area(0).count.value.load(std::memory_order_acquire) >= meets_ * size_;
}

void ShmWindow::Arrive(uint64_t token) {
  MUSTER_CHECK(!waiting_);
  ++meets_;
  waiting_ = true;
  token_ = token;
  // Sequentially consistent: either the sleeper sees this arrival or it is seen sleeping.
  group_.own().arrived.value.store(meets_);
  if (size_ > 2 && group_.area(0).count.value.fetch_add(1) + 1 != meets_ * size_) return;
  for (size_t r = 0; r < size_; ++r) {
    if (static_cast<Rank>(r) != group_.rank()) group_.Wake(static_cast<Rank>(r));
  }
}

std::vector<Rank> ShmWindow::Missing() const {
  std::vector<Rank> missing;
  for (size_t r = 0; waiting_ && r < size_; ++r) {
    const Rank rank = static_cast<Rank>(r);
    if (group_.area(rank).arrived.value.load() < meets_) missing.push_back(rank);
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
