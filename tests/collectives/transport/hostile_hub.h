// What the ends of a hostile mesh share (hostile_transport.h): all messages on their way, under one
// lock. Thread-safe.
#ifndef MUSTER_TESTS_COLLECTIVES_TRANSPORT_HOSTILE_HUB_H_
#define MUSTER_TESTS_COLLECTIVES_TRANSPORT_HOSTILE_HUB_H_

#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "base/mutex.h"
#include "base/random.h"
#include "collectives/transport/receive_table.h"
#include "collectives/transport/transport.h"

namespace muster {

class HostileHub {
 public:
  // A message whose bytes have left the sender's memory, and the receive that it is for.
  struct Claimed {
    Rank from = -1;
    PendingReceive receive;
    std::unique_ptr<std::byte[]> bytes;
    int64_t length = 0;
  };

  HostileHub(int world_size, uint64_t seed, const TransportLimits& limits);
  int world_size() const { return world_size_; }

  void Send(Rank from, Rank to, uint64_t tag, absl::Span<const std::byte> bytes, uint64_t token);
  void Await(Rank self, Rank from, const PendingReceive& receive);
  void Expect(Rank self, Rank from, int delta);
  // One pass of `self`: what it may deliver now. Appends completions of sends.
  std::vector<Claimed> Pass(Rank self, std::vector<uint64_t>* completed);
  void Delivered(Rank self, const Claimed& message);
  // Waits until a pass may bring something.
  void WaitForWork(Rank self, absl::Time deadline);
  // The next number in [0, bound) of that rank's stream.
  uint64_t Draw(Rank rank, uint64_t bound);

  bool TakeWoken(Rank self);
  void Wake(Rank self);
  void WakeWatcher(Rank self);
  void Watch(Rank self, absl::Time deadline);
  void Fail(Rank self, absl::Status status, std::optional<Rank> culprit);
  std::optional<MeshFailure> failure(Rank self) const;
  void Close(Rank self, const absl::Status& reason, std::optional<Rank> culprit);
  void Kill(Rank rank);

 private:
  struct Message {
    Rank from = -1;
    Rank to = -1;
    uint64_t tag = 0;
    absl::Span<const std::byte> source;
    uint64_t token = 0;
    std::unique_ptr<std::byte[]> copy;  // null while it lies in its sender's memory
    int64_t length = 0;
    bool early = false;  // in the receiver's budget
    uint64_t delay = 0;  // passes of whoever holds it
  };
  struct Completion {
    uint64_t token = 0;
    uint64_t delay = 0;
  };
  // What one rank has from, and wants of, another.
  struct Inbox {
    std::deque<Message> messages;
    absl::flat_hash_map<uint64_t, PendingReceive> awaited;
    int64_t early_bytes = 0;
    int due = 0;
    bool departed = false;
    std::optional<uint64_t> death_notice;  // passes until this rank learns of the other's death
  };
  struct End {
    std::vector<Inbox> inboxes;  // by sender
    std::deque<Message> outbox;  // to be tried again
    std::deque<Completion> completions;
    std::optional<MeshFailure> failure;
    bool closed = false;
    bool dead = false;
    bool woken = false;
    bool watcher_woken = false;
    uint64_t draws = 0;
    bool news = false;  // since the last pass
  };

  End& At(Rank rank) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return ends_[static_cast<size_t>(rank)]; }
  uint64_t DrawLocked(Rank rank, uint64_t bound) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void FailLocked(Rank self, absl::Status status, std::optional<Rank> culprit)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void CopyOut(Message& message) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void EmptyOutbox(Rank self) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void ReadyFrom(Rank self, Rank from, std::vector<std::pair<Rank, uint64_t>>* ready)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  std::optional<Claimed> Claim(Rank self, Rank from, uint64_t tag)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void CheckPeers(Rank self) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool HasWork(const End& end) const;

  const int world_size_;
  const TransportLimits limits_;
  const uint64_t seed_;
  mutable Mutex mu_;
  std::vector<End> ends_ ABSL_GUARDED_BY(mu_);
};

}  // namespace muster

#endif  // MUSTER_TESTS_COLLECTIVES_TRANSPORT_HOSTILE_HUB_H_
