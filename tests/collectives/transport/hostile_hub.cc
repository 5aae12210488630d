#include "tests/collectives/transport/hostile_hub.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/check.h"
#include "collectives/transport/culprit.h"

namespace muster {
namespace {

constexpr uint64_t kLongestDelay = 4;         // passes
constexpr uint64_t kLongestDeathNotice = 20;  // passes

absl::Status Gone(Rank rank, absl::string_view how) {
  return absl::UnavailableError(absl::StrCat("rank ", rank, " is gone: ", how));
}

}  // namespace

HostileHub::HostileHub(int world_size, uint64_t seed, const TransportLimits& limits)
    : world_size_(world_size),
      limits_(limits),
      seed_(seed),
      ends_(static_cast<size_t>(world_size)) {
  for (End& end : ends_) end.inboxes = std::vector<Inbox>(static_cast<size_t>(world_size));
}

uint64_t HostileHub::DrawLocked(Rank rank, uint64_t bound) {
  const RandomStream random(seed_, "hostile", static_cast<uint64_t>(rank));
  return random.Below(At(rank).draws++, bound);
}

uint64_t HostileHub::Draw(Rank rank, uint64_t bound) {
  MutexLock lock(&mu_);
  return DrawLocked(rank, bound);
}

void HostileHub::FailLocked(Rank self, absl::Status status, std::optional<Rank> culprit) {
  End& end = At(self);
  if (end.failure.has_value()) return;
  end.failure = MeshFailure{WithCulprit(std::move(status), culprit), culprit};
  end.news = true;
}

void HostileHub::Fail(Rank self, absl::Status status, std::optional<Rank> culprit) {
  MutexLock lock(&mu_);
  FailLocked(self, std::move(status), culprit);
}

std::optional<MeshFailure> HostileHub::failure(Rank self) const {
  MutexLock lock(&mu_);
  return ends_[static_cast<size_t>(self)].failure;
}

void HostileHub::Send(Rank from, Rank to, uint64_t tag, absl::Span<const std::byte> bytes,
                      uint64_t token) {
  MutexLock lock(&mu_);
  Message message;
  message.from = from;
  message.to = to;
  message.tag = tag;
  message.source = bytes;
  message.length = static_cast<int64_t>(bytes.size());
  message.token = token;
  // Every other message is told to try again, some several times.
  message.delay = DrawLocked(from, 2) == 0 ? 0 : DrawLocked(from, kLongestDelay);
  At(from).outbox.push_back(std::move(message));
  At(from).news = true;
}

void HostileHub::Await(Rank self, Rank from, const PendingReceive& receive) {
  MutexLock lock(&mu_);
  Inbox& inbox = At(self).inboxes[static_cast<size_t>(from)];
  const bool inserted = inbox.awaited.emplace(receive.tag, receive).second;
  MUSTER_CHECK(inserted) << "tag " << receive.tag << " is awaited already";
  MUSTER_CHECK_LE(inbox.awaited.size(), static_cast<size_t>(limits_.max_pending_per_peer));
  if (!receive.standing) ++inbox.due;
  At(self).news = true;
}

void HostileHub::Expect(Rank self, Rank from, int delta) {
  MutexLock lock(&mu_);
  At(self).inboxes[static_cast<size_t>(from)].due += delta;
  At(self).news = true;
}

void HostileHub::CopyOut(Message& message) {
  message.copy = std::make_unique<std::byte[]>(message.source.size() + 1);
  std::copy(message.source.begin(), message.source.end(), message.copy.get());
  message.source = {};
  // The sender may reuse its memory now, and learns so now or later; delivery takes its own time.
  At(message.from).completions.push_back({message.token, DrawLocked(message.from, kLongestDelay)});
  At(message.from).news = true;
  message.delay = DrawLocked(message.to, kLongestDelay);
}

void HostileHub::EmptyOutbox(Rank self) {
  std::deque<Message> waiting = std::exchange(At(self).outbox, {});
  for (Message& message : waiting) {
    if (message.delay > 0) {
      --message.delay;
      At(self).outbox.push_back(std::move(message));
      continue;
    }
    End& target = At(message.to);
    if (target.closed) {
      FailLocked(self, Gone(message.to, "it left before something was sent to it"), message.to);
      return;
    }
    if (target.dead) continue;  // Lost; never completed.
    Inbox& inbox = target.inboxes[static_cast<size_t>(self)];
    if (message.length <= limits_.eager_bytes &&
        inbox.early_bytes + message.length <= limits_.unexpected_bytes &&
        inbox.messages.size() < static_cast<size_t>(limits_.max_pending_per_peer)) {
      inbox.early_bytes += message.length;
      message.early = true;
      CopyOut(message);
    }
    inbox.messages.push_back(std::move(message));
    target.news = true;
  }
}

void HostileHub::ReadyFrom(Rank self, Rank from, std::vector<std::pair<Rank, uint64_t>>* ready) {
  Inbox& inbox = At(self).inboxes[static_cast<size_t>(from)];
  std::vector<uint64_t> seen;
  for (Message& message : inbox.messages) {
    if (std::find(seen.begin(), seen.end(), message.tag) != seen.end()) continue;
    seen.push_back(message.tag);
    if (!inbox.awaited.contains(message.tag)) continue;
    if (message.copy == nullptr) {
      CopyOut(message);
    } else if (message.delay > 0) {
      --message.delay;
    } else {
      ready->emplace_back(from, message.tag);
    }
  }
}

std::optional<HostileHub::Claimed> HostileHub::Claim(Rank self, Rank from, uint64_t tag) {
  Inbox& inbox = At(self).inboxes[static_cast<size_t>(from)];
  const auto message =
      std::find_if(inbox.messages.begin(), inbox.messages.end(),
                   [tag](const Message& candidate) { return candidate.tag == tag; });
  const auto receive = inbox.awaited.find(tag);
  if (receive->second.length != message->length) {
    FailLocked(self, LengthMismatch(tag, receive->second.length, message->length), std::nullopt);
    return std::nullopt;
  }
  Claimed claimed;
  claimed.from = from;
  claimed.receive = receive->second;
  claimed.bytes = std::move(message->copy);
  claimed.length = message->length;
  if (message->early) inbox.early_bytes -= message->length;
  inbox.messages.erase(message);
  inbox.awaited.erase(receive);
  return claimed;
}

void HostileHub::CheckPeers(Rank self) {
  for (Rank from = 0; from < world_size(); ++from) {
    Inbox& inbox = At(self).inboxes[static_cast<size_t>(from)];
    if (inbox.death_notice.has_value() && (*inbox.death_notice)-- == 0) {
      FailLocked(self, Gone(from, "the control plane says so"), from);
      return;
    }
    if (!inbox.departed || inbox.due <= 0) continue;
    const bool more_comes = std::any_of(
        inbox.messages.begin(), inbox.messages.end(),
        [&inbox](const Message& message) { return inbox.awaited.contains(message.tag); });
    if (!more_comes) {
      FailLocked(self, Gone(from, "it left while more was expected of it"), from);
      return;
    }
  }
}

std::vector<HostileHub::Claimed> HostileHub::Pass(Rank self, std::vector<uint64_t>* completed) {
  MutexLock lock(&mu_);
  End& end = At(self);
  end.news = false;
  std::vector<Claimed> claimed;
  if (end.failure.has_value()) return claimed;
  EmptyOutbox(self);
  std::vector<std::pair<Rank, uint64_t>> ready;
  for (Rank from = 0; from < world_size(); ++from) ReadyFrom(self, from, &ready);
  const uint64_t at_most = 1 + DrawLocked(self, 4);
  for (uint64_t i = 0; i < at_most && !ready.empty() && !end.failure.has_value(); ++i) {
    const uint64_t pick = DrawLocked(self, ready.size());
    std::optional<Claimed> one = Claim(self, ready[pick].first, ready[pick].second);
    ready.erase(ready.begin() + static_cast<ptrdiff_t>(pick));
    if (one.has_value()) claimed.push_back(*std::move(one));
  }
  std::deque<Completion> waiting = std::exchange(end.completions, {});
  for (Completion& completion : waiting) {
    if (completion.delay == 0) {
      completed->push_back(completion.token);
    } else {
      --completion.delay;
      end.completions.push_back(completion);
    }
  }
  if (claimed.empty()) CheckPeers(self);
  return claimed;
}

void HostileHub::Delivered(Rank self, const Claimed& message) {
  MutexLock lock(&mu_);
  if (!message.receive.standing) --At(self).inboxes[static_cast<size_t>(message.from)].due;
}

bool HostileHub::HasWork(const End& end) const {
  if (end.news || end.woken || end.failure.has_value()) return true;
  if (!end.outbox.empty() || !end.completions.empty()) return true;
  for (const Inbox& inbox : end.inboxes) {
    if (inbox.death_notice.has_value()) return true;
    for (const Message& message : inbox.messages) {
      if (inbox.awaited.contains(message.tag)) return true;
    }
  }
  return false;
}

void HostileHub::WaitForWork(Rank self, absl::Time deadline) {
  MutexLock lock(&mu_);
  const auto has_work = [this, self]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    return HasWork(ends_[static_cast<size_t>(self)]);
  };
  mu_.AwaitWithDeadline(Condition(&has_work), deadline);
}

bool HostileHub::TakeWoken(Rank self) {
  MutexLock lock(&mu_);
  return std::exchange(At(self).woken, false);
}

void HostileHub::Wake(Rank self) {
  MutexLock lock(&mu_);
  At(self).woken = true;
}

void HostileHub::WakeWatcher(Rank self) {
  MutexLock lock(&mu_);
  At(self).watcher_woken = true;
}

void HostileHub::Watch(Rank self, absl::Time deadline) {
  MutexLock lock(&mu_);
  const auto has_news = [this, self]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    const End& end = ends_[static_cast<size_t>(self)];
    return end.failure.has_value() || end.watcher_woken ||
           std::any_of(end.inboxes.begin(), end.inboxes.end(),
                       [](const Inbox& inbox) { return inbox.death_notice.has_value(); });
  };
  mu_.AwaitWithDeadline(Condition(&has_news), deadline);
  At(self).watcher_woken = false;
}

void HostileHub::Close(Rank self, const absl::Status& reason, std::optional<Rank> culprit) {
  MutexLock lock(&mu_);
  End& end = At(self);
  if (std::exchange(end.closed, true) || end.dead) return;
  end.outbox.clear();
  for (Rank peer = 0; peer < world_size(); ++peer) {
    if (peer == self) continue;
    Inbox& mine = end.inboxes[static_cast<size_t>(peer)];
    const bool unserved =
        std::any_of(mine.messages.begin(), mine.messages.end(),
                    [](const Message& message) { return message.copy == nullptr; });
    mine.messages.clear();
    mine.awaited.clear();
    Inbox& theirs = At(peer).inboxes[static_cast<size_t>(self)];
    std::erase_if(theirs.messages, [](const Message& message) { return message.copy == nullptr; });
    theirs.departed = reason.ok();
    At(peer).news = true;
    if (!reason.ok()) {
      FailLocked(
          peer,
          absl::Status(reason.code(), absl::StrCat("rank ", self, " aborted: ", reason.message())),
          culprit);
    } else if (unserved) {
      FailLocked(peer, Gone(self, "it left before it took what was sent to it"), self);
    }
  }
}

void HostileHub::Kill(Rank rank) {
  MutexLock lock(&mu_);
  End& end = At(rank);
  if (end.dead || end.closed) return;
  end.dead = true;
  FailLocked(rank, absl::UnavailableError("killed"), rank);
  end.outbox.clear();
  end.completions.clear();
  for (Rank peer = 0; peer < world_size(); ++peer) {
    if (peer == rank) continue;
    Inbox& theirs = At(peer).inboxes[static_cast<size_t>(rank)];
    // What still lay in its memory is lost, and some of what was on the wire.
    std::erase_if(theirs.messages, [&](const Message& message) ABSL_NO_THREAD_SAFETY_ANALYSIS {
      return message.copy == nullptr || DrawLocked(rank, 2) == 0;
    });
    theirs.death_notice = DrawLocked(rank, kLongestDeathNotice);
    At(peer).news = true;
    end.inboxes[static_cast<size_t>(peer)].messages.clear();
  }
}

}  // namespace muster
