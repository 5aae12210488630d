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
  // All calls are started. gRPC (1.51) may never end a call that is cancelled by one thread while
  // another starts it, not even at its deadline; so whoever cancels before this does it here.
  void AllStarted() ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    all_started_ = true;
    if (cancelled_) CancelLocked();
  }
  // The first call that fails ends the others, which may wait for what it was to bring.
  void OnEnd(const absl::Status& status) ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    if (status.ok() || cancelled_) return;
    first_failure_ = status;
    CancelLocked();
  }
  void CancelAll() ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    CancelLocked();
  }
  // What the others were cancelled for.
  absl::Status first_failure() const ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    return first_failure_;
  }

 private:
  void CancelLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    cancelled_ = true;
    if (!all_started_) return;
    for (const std::unique_ptr<TransferCall>& call : calls_) call->Cancel();
  }
  mutable absl::Mutex mutex_;
  std::vector<std::unique_ptr<TransferCall>> calls_ ABSL_GUARDED_BY(mutex_);
  absl::Status first_failure_ ABSL_GUARDED_BY(mutex_);
  bool all_started_ ABSL_GUARDED_BY(mutex_) = false;
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
    std::vector<const Transfer*> again;
    {
      const CallRegistry::Entry entry(calls, [&attempt] { attempt.CancelAll(); });
      for (size_t i = 0; i < open.size(); ++i) {
        started[i]->Start(open[i]->link->channel(), open[i]->method, deadline);
      }
      attempt.AllStarted();
      for (size_t i = 0; i < open.size(); ++i) {
        if (!started[i]->Wait().ok()) again.push_back(open[i]);
      }
    }
    if (again.empty()) return absl::OkStatus();
    if (calls.shut_down()) return absl::CancelledError("the client was shut down");
    const absl::Status failure = attempt.first_failure();
    if (!MayRepeat(failure) || absl::Now() + backoff >= deadline) return failure;
    calls.Sleep(backoff);
    backoff = std::min(2 * backoff, absl::Seconds(1));
    open = std::move(again);
  }
}

}  // namespace muster
