#include "worker/runtime/core_host.h"

#include <algorithm>
#include <utility>

#include "absl/time/clock.h"

namespace muster {

CoreHost::CoreHost(const WorkerOptions& options)
    : options_(options), core_(std::make_unique<WorkerCore>(options)) {}

CorePort::Doors CoreHost::Dispatch(const worker::Event& event) {
  MutexLock lock(&mutex_);
  // A core that has left takes no more requests, and this one is for its successor as well.
  if (std::holds_alternative<worker::DrainRequested>(event)) drain_requested_ = true;
  Doors doors;
  for (worker::Action& action : core_->Handle(event, absl::Now())) {
    if (const auto* contribute = std::get_if<worker::ContributeCommit>(&action)) {
      doors.contribute = *contribute;
    } else if (const auto* apply = std::get_if<worker::ApplyStep>(&action)) {
      doors.apply = *apply;
    } else if (const auto* seal = std::get_if<worker::SealMove>(&action)) {
      doors.seal_move = *seal;
    } else if (const auto* adopt = std::get_if<worker::AdoptPart>(&action)) {
      doors.adopt_part = *adopt;
    } else if (const auto* set = std::get_if<worker::SetTimer>(&action)) {
      timers_[set->id] = set->at;
    } else if (const auto* cancel = std::get_if<worker::CancelTimer>(&action)) {
      timers_.erase(cancel->id);
    } else {
      actions_.push_back(std::move(action));
    }
  }
  return doors;
}

void CoreHost::Run(const std::function<void(const worker::Action&)>& obey) {
  const auto earliest = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return std::min_element(timers_.begin(), timers_.end(),
                            [](const auto& a, const auto& b) { return a.second < b.second; });
  };
  while (true) {
    std::optional<worker::Action> action;
    std::optional<worker::TimerId> due;
    {
      MutexLock lock(&mutex_);
      const auto first = earliest();
      absl::Time wake = first == timers_.end() ? absl::InfiniteFuture() : first->second;
      const auto ready = [this, wake]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
        if (stop_ || !actions_.empty()) return true;
        // A timer set since that is due earlier.
        return std::any_of(timers_.begin(), timers_.end(),
                           [wake](const auto& timer) { return timer.second < wake; });
      };
      mutex_.AwaitWithDeadline(Condition(&ready), wake);
      if (stop_) return;
      if (!actions_.empty()) {
        action = std::move(actions_.front());
        actions_.pop_front();
      } else if (const auto next = earliest();
                 next != timers_.end() && next->second <= absl::Now()) {
        due = next->first;
        timers_.erase(next);
      }
    }
    if (action.has_value()) obey(*action);
    if (due.has_value()) Dispatch(worker::TimerFired{*due});
  }
}

void CoreHost::Stop() {
  MutexLock lock(&mutex_);
  stop_ = true;
}

void CoreHost::Replace(Incarnation incarnation) {
  MutexLock lock(&mutex_);
  options_.self.incarnation = incarnation;
  options_.fleet_id = core_->fleet_id();
  options_.highest_epoch = core_->highest_epoch();
  options_.highest_term = core_->highest_term();
  core_ = std::make_unique<WorkerCore>(options_);
  actions_.clear();
  timers_.clear();
  if (drain_requested_) {
    for (worker::Action& action : core_->Handle(worker::DrainRequested{}, absl::Now())) {
      actions_.push_back(std::move(action));
    }
  }
}

Hello CoreHost::MakeHello() const {
  MutexLock lock(&mutex_);
  return core_->MakeHello();
}

Incarnation CoreHost::self() const {
  MutexLock lock(&mutex_);
  return options_.self.incarnation;
}

}  // namespace muster
