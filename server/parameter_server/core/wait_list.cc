#include "server/parameter_server/core/wait_list.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace muster {

void WaitList::Park(Ticket ticket, const Wait& wait, int64_t progress) {
  const bool parked =
      parked_
          .try_emplace(ticket, Parked{.wait = wait, .progress = progress, .order = next_order_++})
          .second;
  MUSTER_CHECK(parked) << "ticket " << ticket << " waits already";
}

std::vector<Ticket> WaitList::TakeReady(int64_t progress,
                                        absl::FunctionRef<bool(const Wait& wait)> has_come,
                                        absl::FunctionRef<bool(ContributorId id)> attached) {
  std::vector<std::pair<uint64_t, Ticket>> taken;
  for (auto it = parked_.begin(); it != parked_.end();) {
    const Parked& parked = it->second;
    const Wait& wait = parked.wait;
    bool ready = wait.from.has_value() && !attached(*wait.from);
    ready |= wait.what == Wait::For::kProgress ? progress > parked.progress : has_come(parked.wait);
    if (ready) taken.emplace_back(parked.order, it->first);
    it = ready ? parked_.erase(it) : std::next(it);
  }
  return Sorted(std::move(taken));
}

std::vector<Ticket> WaitList::TakeAll() {
  std::vector<std::pair<uint64_t, Ticket>> taken;
  for (const auto& [ticket, parked] : parked_) taken.emplace_back(parked.order, ticket);
  parked_.clear();
  return Sorted(std::move(taken));
}

std::vector<Ticket> WaitList::Sorted(std::vector<std::pair<uint64_t, Ticket>> taken) {
  std::sort(taken.begin(), taken.end());
  std::vector<Ticket> tickets;
  tickets.reserve(taken.size());
  for (const auto& [order, ticket] : taken) tickets.push_back(ticket);
  return tickets;
}

}  // namespace muster
