#include "client/parameters/server_link.h"

#include "absl/strings/str_cat.h"
#include "proto/rpc/channel.h"

namespace muster {

// ---- CallRegistry ------------------------------------------------------------------------------

CallRegistry::Entry::Entry(CallRegistry& registry, Cancel cancel) : registry_(registry) {
  absl::MutexLock lock(&registry_.mutex_);
  if (registry_.shut_down_) cancel();
  at_ = registry_.calls_.insert(std::make_unique<Cancel>(std::move(cancel))).first;
}

CallRegistry::Entry::~Entry() {
  absl::MutexLock lock(&registry_.mutex_);
  registry_.calls_.erase(at_);
}

void CallRegistry::Shutdown() {
  absl::MutexLock lock(&mutex_);
  shut_down_ = true;
  for (const std::unique_ptr<Cancel>& cancel : calls_) (*cancel)();
}

bool CallRegistry::shut_down() const {
  absl::MutexLock lock(&mutex_);
  return shut_down_;
}

void CallRegistry::Sleep(absl::Duration duration) {
  absl::MutexLock lock(&mutex_);
  mutex_.AwaitWithTimeout(absl::Condition(&shut_down_), duration);
}

// ---- ServerLink --------------------------------------------------------------------------------

ServerLink::ServerLink(std::string address, Range range)
    : address_(std::move(address)),
      peer_(absl::StrCat("parameter server ", address_)),
      range_(range),
      channel_(NewBulkChannel(address_)) {}

std::shared_ptr<grpc::Channel> ServerLink::channel() {
  absl::MutexLock lock(&mutex_);
  return channel_;
}

void ServerLink::Reconnect() {
  absl::MutexLock lock(&mutex_);
  channel_ = NewBulkChannel(address_);
}

// ---- groups ------------------------------------------------------------------------------------

namespace {

// The calls of one attempt.
class Attempt {
 public:
  void Add(std::unique_ptr<TransferCall> call) ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    calls_.push_back(std::move(call));
  }
  // The first call that fails ends the others, which may wait for what it was to bring.
  void OnEnd(const absl::Status& status) ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    if (status.ok() || cancelled_) return;
    if (!MayRepeat(status)) error_ = status;
    CancelLocked();
  }
  void CancelAll() ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    CancelLocked();
  }
  // One that no repetition mends.
  absl::Status error() const ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    return error_;
  }

 private:
  void CancelLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    cancelled_ = true;
    for (const std::unique_ptr<TransferCall>& call : calls_) call->Cancel();
  }
  mutable absl::Mutex mutex_;
  std::vector<std::unique_ptr<TransferCall>> calls_ ABSL_GUARDED_BY(mutex_);
  absl::Status error_ ABSL_GUARDED_BY(mutex_);
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace

absl::Status RunTransfers(const std::vector<Transfer>& transfers, absl::Time deadline,
                          CallRegistry& calls) {
  std::vector<const Transfer*> open;
  for (const Transfer& transfer : transfers) open.push_back(&transfer);
  absl::Duration backoff = absl::Milliseconds(20);
  while (true) {
    Attempt attempt;
    std::vector<TransferCall*> started;
    for (const Transfer* transfer : open) {
      auto call = std::make_unique<TransferCall>(
          transfer->link->peer(), transfer->begin(),
          [&attempt](const absl::Status& status) { attempt.OnEnd(status); });
      started.push_back(call.get());
      attempt.Add(std::move(call));
    }
    absl::Status last;
    std::vector<const Transfer*> again;
    {
      const CallRegistry::Entry entry(calls, [&attempt] { attempt.CancelAll(); });
      for (size_t i = 0; i < open.size(); ++i) {
        started[i]->Start(open[i]->link->channel(), open[i]->method, deadline);
      }
      for (size_t i = 0; i < open.size(); ++i) {
        const absl::Status status = started[i]->Wait();
        if (status.ok()) continue;
        if (last.ok() || MayRepeat(status)) last = status;
        again.push_back(open[i]);
      }
    }
    if (calls.shut_down() && !last.ok()) return absl::CancelledError("the client was shut down");
    if (absl::Status error = attempt.error(); !error.ok()) return error;
    if (again.empty()) return absl::OkStatus();
    if (absl::Now() + backoff >= deadline) return last;
    calls.Sleep(backoff);
    backoff = std::min(2 * backoff, absl::Seconds(1));
    open = std::move(again);
  }
}

}  // namespace muster
