#include "collectives/transport/in_process_end.h"

#include <utility>

#include "base/check.h"
#include "collectives/transport/culprit.h"

namespace muster {

InProcessEnd::InProcessEnd(int world_size, const TransportLimits& limits)
    : limits_(limits), inboxes_(static_cast<size_t>(world_size)) {}

bool InProcessEnd::TakeOffer(Rank from, const Offer& offer) {
  MutexLock lock(&mu_);
  if (closed_) return false;
  Inbox& inbox = inboxes_[from];
  const bool inserted = inbox.offers.emplace(offer.tag, offer).second;
  MUSTER_CHECK(inserted) << "tag " << offer.tag << " is in use already";
  MUSTER_CHECK_LE(inbox.offers.size(), static_cast<size_t>(limits_.max_pending_per_peer));
  if (inbox.awaited.contains(offer.tag)) {
    inbox.ready.push_back(offer.tag);
    ++ready_;
  }
  return true;
}

void InProcessEnd::SendCompleted(uint64_t token) {
  MutexLock lock(&mu_);
  completed_.push_back(token);
  has_completed_ = true;
}

void InProcessEnd::Withdraw(Rank from) {
  MutexLock lock(&mu_);
  Inbox& inbox = inboxes_[from];
  inbox.offers.clear();
  ready_ -= static_cast<int>(inbox.ready.size());
  inbox.ready.clear();
  mu_.Await(Condition(&inbox, &Inbox::Idle));
}

void InProcessEnd::Departed(Rank from) {
  MutexLock lock(&mu_);
  inboxes_[from].departed = true;
  any_departed_ = true;
}

void InProcessEnd::Await(Rank from, const PendingReceive& receive) {
  MutexLock lock(&mu_);
  Inbox& inbox = inboxes_[from];
  const bool inserted = inbox.awaited.emplace(receive.tag, receive).second;
  MUSTER_CHECK(inserted) << "tag " << receive.tag << " is awaited already";
  MUSTER_CHECK_LE(inbox.awaited.size(), static_cast<size_t>(limits_.max_pending_per_peer));
  if (!receive.standing) ++inbox.due;
  if (inbox.offers.contains(receive.tag)) {
    inbox.ready.push_back(receive.tag);
    ++ready_;
  }
}

void InProcessEnd::Expect(Rank from, int delta) {
  MutexLock lock(&mu_);
  inboxes_[from].due += delta;
}

std::optional<ClaimedMessage> InProcessEnd::Claim() {
  if (ready_ == 0) return std::nullopt;
  MutexLock lock(&mu_);
  for (size_t i = 0; i < inboxes_.size(); ++i) {
    next_ = (next_ + 1) % inboxes_.size();  // Round robin: no peer starves another.
    Inbox& inbox = inboxes_[next_];
    if (inbox.ready.empty()) continue;
    const uint64_t tag = inbox.ready.front();
    inbox.ready.pop_front();
    --ready_;
    ClaimedMessage message;
    message.from = static_cast<Rank>(next_);
    const auto offer = inbox.offers.find(tag);
    const auto receive = inbox.awaited.find(tag);
    message.offer = offer->second;
    message.receive = receive->second;
    inbox.offers.erase(offer);
    inbox.awaited.erase(receive);
    inbox.claimed = true;
    return message;
  }
  return std::nullopt;
}

void InProcessEnd::Settle(const ClaimedMessage& message) {
  MutexLock lock(&mu_);
  Inbox& inbox = inboxes_[message.from];
  inbox.claimed = false;
  if (!message.receive.standing) --inbox.due;
}

void InProcessEnd::TakeCompleted(std::vector<uint64_t>* completed) {
  if (!has_completed_) return;
  MutexLock lock(&mu_);
  completed->insert(completed->end(), completed_.begin(), completed_.end());
  completed_.clear();
  has_completed_ = false;
}

std::optional<Rank> InProcessEnd::DepartedDebtor() {
  if (!any_departed_) return std::nullopt;
  MutexLock lock(&mu_);
  for (size_t r = 0; r < inboxes_.size(); ++r) {
    if (inboxes_[r].departed && inboxes_[r].due > 0) return static_cast<Rank>(r);
  }
  return std::nullopt;
}

bool InProcessEnd::HasWorkLocked() const {
  if (ready_ > 0 || has_completed_ || woken_ || failed_) return true;
  if (!any_departed_) return false;
  for (const Inbox& inbox : inboxes_) {
    if (inbox.departed && inbox.due > 0) return true;
  }
  return false;
}

void InProcessEnd::WaitForWork(absl::Time deadline) {
  MutexLock lock(&mu_);
  mu_.AwaitWithDeadline(Condition(this, &InProcessEnd::HasWorkLocked), deadline);
}

void InProcessEnd::Fail(absl::Status status, std::optional<Rank> culprit) {
  MutexLock lock(&mu_);
  if (!failure_.has_value()) {
    failure_ = MeshFailure{WithCulprit(std::move(status), culprit), culprit};
    failed_ = true;
  }
}

std::optional<MeshFailure> InProcessEnd::failure() const {
  MutexLock lock(&mu_);
  return failure_;
}

void InProcessEnd::Wake() {
  MutexLock lock(&mu_);
  woken_ = true;
}

void InProcessEnd::WakeWatcher() {
  MutexLock lock(&mu_);
  watcher_woken_ = true;
}

void InProcessEnd::Watch(absl::Time deadline) {
  MutexLock lock(&mu_);
  mu_.AwaitWithDeadline(Condition(this, &InProcessEnd::HasNews), deadline);
  watcher_woken_ = false;
}

std::vector<Rank> InProcessEnd::CloseInbox() {
  MutexLock lock(&mu_);
  closed_ = true;
  std::vector<Rank> unserved;
  for (size_t r = 0; r < inboxes_.size(); ++r) {
    Inbox& inbox = inboxes_[r];
    if (!inbox.offers.empty()) unserved.push_back(static_cast<Rank>(r));
    inbox.offers.clear();
    inbox.awaited.clear();
    inbox.ready.clear();
  }
  ready_ = 0;
  return unserved;
}

}  // namespace muster
