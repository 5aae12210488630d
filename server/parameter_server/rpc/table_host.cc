#include "server/parameter_server/rpc/table_host.h"

#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "base/check.h"

namespace muster {
namespace {

// Calls of one table in a row, before others of the pool have their turn.
constexpr int kCallsInARow = 32;

}  // namespace

void TableHost::Run(Ticket ticket, Call call) {
  Post([this, ticket, call = std::move(call)]() mutable { Make(ticket, std::move(call)); });
}

void TableHost::Wake(Ticket ticket) {
  Post([this, ticket] {
    for (std::map<Ticket, Call>* calls : {&parked_, &after_any_call_}) {
      auto node = calls->extract(ticket);
      if (node.empty()) continue;
      table_.get().Unpark(ticket);
      Make(ticket, std::move(node.mapped()));
    }
  });
}

void TableHost::Close(const absl::Status& reason) {
  Post([this, reason] {
    if (!closed_.ok()) return;
    closed_ = reason;
    table_.get().TakeAllWaiting();
    std::map<Ticket, Call> calls = std::exchange(parked_, {});
    calls.merge(after_any_call_);
    after_any_call_.clear();
    for (auto& [ticket, call] : calls) Try(ticket, std::move(call));
  });
}

void TableHost::Post(Work work) {
  absl::MutexLock lock(&mutex_);
  queue_.push_back(std::move(work));
  if (std::exchange(running_, true)) return;
  pool_->Add([self = shared_from_this()] { self->RunQueue(); });
}

void TableHost::RunQueue() {
  for (int i = 0; i < kCallsInARow; ++i) {
    Work work;
    {
      absl::MutexLock lock(&mutex_);
      if (queue_.empty()) {
        running_ = false;
        return;
      }
      work = std::move(queue_.front());
      queue_.pop_front();
    }
    std::move(work)();
  }
  pool_->Add([self = shared_from_this()] { self->RunQueue(); });
}

void TableHost::Make(Ticket ticket, Call call) {
  Try(ticket, std::move(call));
  MakeReady();
}

void TableHost::MakeReady() {
  if (!closed_.ok()) return;
  std::map<Ticket, Call> again = std::exchange(after_any_call_, {});
  for (auto& [ticket, call] : again) Try(ticket, std::move(call));
  // What is ready may make others ready.
  while (true) {
    const std::vector<Ticket> ready = table_.get().TakeReady();
    if (ready.empty()) return;
    for (const Ticket ticket : ready) {
      auto node = parked_.extract(ticket);
      if (!node.empty()) Try(ticket, std::move(node.mapped()));
    }
  }
}

void TableHost::Try(Ticket ticket, Call call) {
  const std::optional<Again> again =
      call({.table = table_, .last_commit = last_commit_, .now = absl::Now(), .closed = closed_});
  if (!again.has_value()) return;
  MUSTER_CHECK(closed_.ok()) << "a call waits for a table that is closed";
  if (again->wait.has_value()) {
    table_.get().Park(ticket, *again->wait);
    parked_.emplace(ticket, std::move(call));
  } else {
    after_any_call_.emplace(ticket, std::move(call));
  }
}

}  // namespace muster
