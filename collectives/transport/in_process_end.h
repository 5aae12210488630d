// One rank's end of an in-process mesh: what its peers' threads may touch of it. The transport
// around it (in_process_transport.cc) is driven by the rank's own thread.
//
// A message is an offer: it stays in its sender's memory until the receiver has claimed and moved
// it. Thread-safe. No end's lock is held while another's is taken.
#ifndef MUSTER_COLLECTIVES_TRANSPORT_IN_PROCESS_END_H_
#define MUSTER_COLLECTIVES_TRANSPORT_IN_PROCESS_END_H_

#include <atomic>
#include <deque>
#include <optional>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "base/mutex.h"
#include "collectives/transport/receive_table.h"
#include "collectives/transport/transport.h"

namespace muster {

// A message that lies in its sender's memory.
struct Offer {
  uint64_t tag = 0;
  absl::Span<const std::byte> bytes;
  uint64_t token = 0;
};

// An offer and the receive it was posted for, claimed by the receiver's driver.
struct ClaimedMessage {
  Rank from = -1;
  Offer offer;
  PendingReceive receive;
};

class InProcessEnd {
 public:
  InProcessEnd(int world_size, const TransportLimits& limits);

  // From a peer's driver. False: this end is closed.
  bool TakeOffer(Rank from, const Offer& offer) ABSL_LOCKS_EXCLUDED(mu_);
  // From a peer's driver: what this end sent has been moved.
  void SendCompleted(uint64_t token) ABSL_LOCKS_EXCLUDED(mu_);
  // From a peer that closes: drops its offers, and returns when none of its memory is being read.
  void Withdraw(Rank from) ABSL_LOCKS_EXCLUDED(mu_);
  // From a peer that has closed in good order.
  void Departed(Rank from) ABSL_LOCKS_EXCLUDED(mu_);

  // From the own driver.
  void Await(Rank from, const PendingReceive& receive) ABSL_LOCKS_EXCLUDED(mu_);
  void Expect(Rank from, int delta) ABSL_LOCKS_EXCLUDED(mu_);
  std::optional<ClaimedMessage> Claim() ABSL_LOCKS_EXCLUDED(mu_);
  void Settle(const ClaimedMessage& message) ABSL_LOCKS_EXCLUDED(mu_);
  void TakeCompleted(std::vector<uint64_t>* completed) ABSL_LOCKS_EXCLUDED(mu_);
  // A rank that has left and still owes this one a message.
  std::optional<Rank> DepartedDebtor() ABSL_LOCKS_EXCLUDED(mu_);
  bool TakeWoken() { return woken_.load() && woken_.exchange(false); }
  // There may be something for the driver. Cheap enough to spin on.
  bool HasWork() const {
    return ready_ > 0 || has_completed_ || woken_ || failed_ || any_departed_;
  }
  void WaitForWork(absl::Time deadline) ABSL_LOCKS_EXCLUDED(mu_);

  // From any thread.
  // The first failure counts.
  void Fail(absl::Status status, std::optional<Rank> culprit) ABSL_LOCKS_EXCLUDED(mu_);
  bool failed() const { return failed_; }
  std::optional<MeshFailure> failure() const ABSL_LOCKS_EXCLUDED(mu_);
  void Wake() ABSL_LOCKS_EXCLUDED(mu_);
  void WakeWatcher() ABSL_LOCKS_EXCLUDED(mu_);
  void Watch(absl::Time deadline) ABSL_LOCKS_EXCLUDED(mu_);
  // Takes no more offers, and returns the ranks whose offers are left unserved.
  std::vector<Rank> CloseInbox() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  struct Inbox {
    absl::flat_hash_map<uint64_t, Offer> offers;
    absl::flat_hash_map<uint64_t, PendingReceive> awaited;
    std::deque<uint64_t> ready;  // tags both offered and awaited
    bool claimed = false;        // one of its offers is being read
    int due = 0;                 // receives that must be served
    bool departed = false;
    bool Idle() const { return !claimed; }
  };
  bool HasWorkLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool HasNews() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return failed_ || watcher_woken_; }

  const TransportLimits limits_;
  mutable Mutex mu_;
  std::vector<Inbox> inboxes_ ABSL_GUARDED_BY(mu_);  // by sender
  size_t next_ ABSL_GUARDED_BY(mu_) = 0;
  std::vector<uint64_t> completed_ ABSL_GUARDED_BY(mu_);
  bool watcher_woken_ ABSL_GUARDED_BY(mu_) = false;
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
  std::optional<MeshFailure> failure_ ABSL_GUARDED_BY(mu_);

  // Written under mu_, so that waiters see each change; read without it while spinning.
  std::atomic<int> ready_{0};
  std::atomic<bool> has_completed_{false};
  std::atomic<bool> any_departed_{false};
  std::atomic<bool> failed_{false};
  std::atomic<bool> woken_{false};
};

}  // namespace muster

#endif  // MUSTER_COLLECTIVES_TRANSPORT_IN_PROCESS_END_H_
