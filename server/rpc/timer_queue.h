// The coordinator's timers, ordered by due time. A plain value; not thread-safe.
#ifndef MUSTER_SERVER_RPC_TIMER_QUEUE_H_
#define MUSTER_SERVER_RPC_TIMER_QUEUE_H_

#include <map>
#include <optional>
#include <set>
#include <utility>

#include "absl/time/time.h"
#include "server/core/events.h"

namespace muster {

class TimerQueue {
 public:
  // Replaces the timer of the same id.
  void Set(const coordinator::TimerId& id, absl::Time at) {
    Cancel(id);
    due_.emplace(at, id);
    at_[id] = at;
  }
  void Cancel(const coordinator::TimerId& id) {
    const auto found = at_.find(id);
    if (found == at_.end()) return;
    due_.erase({found->second, id});
    at_.erase(found);
  }
  // InfiniteFuture if no timer is set.
  absl::Time NextDue() const { return due_.empty() ? absl::InfiniteFuture() : due_.begin()->first; }
  // The earliest timer that is due, which is unset by that.
  std::optional<coordinator::TimerId> PopDue(absl::Time now) {
    if (due_.empty() || NextDue() > now) return std::nullopt;
    const coordinator::TimerId id = due_.begin()->second;
    Cancel(id);
    return id;
  }
  size_t size() const { return at_.size(); }

 private:
  std::set<std::pair<absl::Time, coordinator::TimerId>> due_;
  std::map<coordinator::TimerId, absl::Time> at_;
};

}  // namespace muster

#endif  // MUSTER_SERVER_RPC_TIMER_QUEUE_H_
