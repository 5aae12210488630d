#include "collectives/transport/shm/shm_mesh.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "collectives/transport/culprit.h"

namespace muster {
namespace {

// A spinning wait looks that often by itself, about a microsecond; then it gives way in between:
// the rank waited for may be meant to run on this very core.
constexpr int kLooksAlone = 20;
constexpr int kLooksBetween = 16;
// Pieces of large messages moved in one pass.
constexpr int kPiecesPerPass = 4;
// How long a rank that leaves waits for peers to make room for its last words.
constexpr absl::Duration kFlush = absl::Seconds(1);

inline void Relax() { __builtin_ia32_pause(); }

}  // namespace

ShmMesh::ShmMesh(MeshSpec spec, std::vector<UniqueFd> control, std::unique_ptr<ShmGroup> group,
                 std::vector<bool> can_read)
    : spec_(std::move(spec)),
      group_(std::move(group)),
      window_(*group_),
      links_(spec_.members.size()),
      sender_(*group_, links_, std::move(can_read), spec_.options.limits),
      receiver_(*group_, links_, spec_.options.limits),
      control_(std::move(control)),
      posted_words_((spec_.members.size() + 63) / 64),
      departed_(spec_.members.size()) {
  for (Rank r = 0; r < world_size(); ++r) {
    if (r != rank()) links_[r] = std::make_unique<ShmLink>(*group_, r, waiting_links_);
  }
  control_thread_ = std::thread([this] { WatchControl(); });
}

ShmMesh::~ShmMesh() { Close(absl::OkStatus(), std::nullopt); }

void ShmMesh::CheckPeer(Rank peer) const {
  MUSTER_CHECK(peer >= 0 && peer < world_size() && peer != rank())
      << "rank " << peer << " is no peer of rank " << rank();
}

void ShmMesh::PostSend(Rank peer, uint64_t tag, absl::Span<const std::byte> bytes, uint64_t token) {
  CheckPeer(peer);
  MUSTER_CHECK_LE(static_cast<int64_t>(bytes.size()), kMaxMessageBytes);
  MutexLock lock(&drive_mu_);
  if (failure_.has_value()) return;
  if (departed_[peer]) {
    failure_.Record(PeerIsGone(spec_, peer, "it left before this was sent to it"), std::nullopt);
    return;
  }
  sender_.Post(peer, tag, bytes, token, &completed_);
}

void ShmMesh::Post(Rank peer, const PendingReceive& receive) {
  CheckPeer(peer);
  MutexLock lock(&drive_mu_);
  if (failure_.has_value()) return;
  absl::Status status = receiver_.Post(peer, receive, &completed_);
  if (!status.ok()) failure_.Record(Blame(peer, status), std::nullopt);
}

void ShmMesh::Expect(Rank peer, int delta) {
  CheckPeer(peer);
  MutexLock lock(&drive_mu_);
  receiver_.Expect(peer, delta);
}

absl::Status ShmMesh::Blame(Rank peer, const absl::Status& error) {
  if (error.ok()) return error;
  MUSTER_RETURN_IF_ERROR(ReadControl());
  if (absl::IsUnavailable(error) || group_->IsClosed(peer) || group_->HasEnded(peer)) {
    return PeerIsGone(spec_, peer, error.message());
  }
  return Annotate(error, DescribeMember(spec_, peer));
}

absl::Status ShmMesh::ReadControl() {
  absl::Status first;
  std::vector<ControlNews> all = control_.Read();
  {
    MutexLock lock(&watch_mu_);
    news_ = false;
  }
  for (const ControlNews& news : all) {
    absl::Status status;
    switch (news.kind) {
      case ControlNews::Kind::kGoodbye:
        departed_[news.peer] = true;
        any_departed_ = true;
        break;
      case ControlNews::Kind::kTaken:
        break;
      case ControlNews::Kind::kAbort:
        status = WithCulprit(
            absl::Status(news.reason.code(), absl::StrCat("rank ", RankInWhole(spec_, news.peer),
                                                          " aborted: ", news.reason.message())),
            news.culprit);
        break;
      case ControlNews::Kind::kClosed:
        if (!departed_[news.peer]) status = PeerIsGone(spec_, news.peer, news.reason.message());
        break;
    }
    if (first.ok()) first = status;
  }
  return first;
}

absl::Status ShmMesh::CheckDeparted() {
  for (Rank r = 0; r < world_size(); ++r) {
    if (!departed_[r]) continue;
    if (receiver_.due(r) > 0) {
      return PeerIsGone(spec_, r, "it left while more was expected of it");
    }
    if (sender_.pending(r) > 0 || links_[r]->queued_messages() > 0) {
      return PeerIsGone(spec_, r, "it left before it took what was sent to it");
    }
  }
  return absl::OkStatus();
}

absl::Status ShmMesh::Dispatch(Rank peer, const ShmEntry& entry, std::vector<uint64_t>* completed) {
  switch (entry.kind) {
    case ShmEntryKind::kInline:
    case ShmEntryKind::kInArena:
    case ShmEntryKind::kAtAddress:
    case ShmEntryKind::kStaged:
      return receiver_.OnMessage(peer, entry, completed);
    case ShmEntryKind::kPiece:
      return receiver_.OnPiece(peer, entry, completed);
    case ShmEntryKind::kPull:
      return sender_.OnPull(peer, entry);
    case ShmEntryKind::kTaken:
      return sender_.OnTaken(peer, entry, completed);
  }
  return absl::InvalidArgumentError(
      absl::StrCat("it sent an entry of unknown kind ", static_cast<int>(entry.kind)));
}

absl::Status ShmMesh::Serve(Rank peer, std::vector<uint64_t>* completed) {
  ShmLink& link = *links_[peer];
  while (const ShmEntry* entry = link.Next()) {
    const absl::Status status = Dispatch(peer, *entry, completed);
    if (!status.ok()) return Blame(peer, status);
    link.Pop();
  }
  link.Release();
  link.Flush(completed);
  return absl::OkStatus();
}

absl::Status ShmMesh::Progress(std::vector<uint64_t>* completed) {
  const bool closing = group_->TakeOthersClosed();
  some_closed_ = some_closed_ || closing;
  if (closing || news_) MUSTER_RETURN_IF_ERROR(ReadControl());
  for (size_t word = 0; word < posted_words_; ++word) {
    std::atomic<uint64_t>& posted = group_->own().posted[word];
    if (posted.load(std::memory_order_relaxed) == 0) continue;
    for (uint64_t bits = posted.exchange(0); bits != 0; bits &= bits - 1) {
      MUSTER_RETURN_IF_ERROR(
          Serve(static_cast<Rank>(word * 64 + std::countr_zero(bits)), completed));
    }
  }
  for (int i = 0; i < kPiecesPerPass && receiver_.can_move() && !failure_.has_value(); ++i) {
    Rank peer = -1;
    const absl::Status status = receiver_.Move(&peer, completed);
    if (!status.ok()) return Blame(peer, status);
  }
  sender_.SendPieces(completed);
  receiver_.TellTaken(completed);
  if (window_.waiting()) {
    if (window_.TakeMet()) {
      completed->push_back(window_.token());
    } else if (some_closed_) {
      if (const std::optional<Rank> gone = window_.ClosedWhileMissed(); gone.has_value()) {
        return Blame(*gone, absl::UnavailableError("it left while more was expected of it"));
      }
    }
  }
  return any_departed_ && !receiver_.can_move() ? CheckDeparted() : absl::OkStatus();
}

bool ShmMesh::HasWork() const {
  if (window_.waiting() && window_.Met()) return true;
  for (size_t word = 0; word < posted_words_; ++word) {
    if (group_->own().posted[word].load() != 0) return true;
  }
  return news_ || woken_ || failure_.has_value() || group_->own().others_closed.value.load() != 0;
}

bool ShmMesh::Look(int times) const {
  for (int i = 0; i < times; ++i) {
    if (HasWork()) return true;
    Relax();
  }
  return false;
}

bool ShmMesh::AwaitWork(absl::Time deadline, absl::Duration spin) {
  const bool spins = spin > absl::ZeroDuration();
  if (spins && Look(kLooksAlone)) return true;
  const absl::Duration longest =
      window_.ranks_share_cores() ? std::max(spin, GiveWay::kLongest) : spin;
  const bool gives_way = longest > absl::ZeroDuration();
  const int looks = spins ? kLooksBetween : 1;
  if (gives_way && give_way_.Until(deadline, longest, [&] { return Look(looks); })) return true;
  const absl::Time now = absl::Now();
  if (now >= deadline) return false;
  group_->Sleep(deadline - now, [this] { return HasWork(); });
  return true;
}

absl::Status ShmMesh::Poll(absl::Time deadline, absl::Duration spin,
                           std::vector<uint64_t>* completed) {
  MutexLock lock(&drive_mu_);
  const size_t before = completed->size();
  const bool had_backlog = has_backlog();
  completed->insert(completed->end(), completed_.begin(), completed_.end());
  completed_.clear();
  while (true) {
    if (failure_.has_value()) return failure_.status();
    absl::Status status = Progress(completed);
    if (!status.ok()) {
      failure_.Record(std::move(status), std::nullopt);
      return failure_.status();
    }
    if (completed->size() > before) return absl::OkStatus();
    if (had_backlog && !has_backlog()) return absl::OkStatus();
    if (woken_ && woken_.exchange(false)) return failure_.so_far();
    if (deadline == absl::InfinitePast()) return absl::OkStatus();
    if (receiver_.can_move() || AwaitWork(deadline, spin)) continue;
    deadline = absl::InfinitePast();  // One last look.
  }
}

void ShmMesh::Wake() {
  woken_ = true;
  group_->RingSelf();
}

void ShmMesh::Watch(absl::Time deadline) {
  MutexLock lock(&watch_mu_);
  const auto has_news = [this, seen = news_count_]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    return news_ || news_count_ != seen || watcher_woken_ || failure_.has_value();
  };
  watch_mu_.AwaitWithDeadline(Condition(&has_news), deadline);
  watcher_woken_ = false;
}

void ShmMesh::WakeWatcher() {
  MutexLock lock(&watch_mu_);
  watcher_woken_ = true;
}

void ShmMesh::WatchControl() {
  const auto was_read = [this]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return !news_ || stopping_; };
  while (true) {
    const bool news = control_.Wait(absl::Hours(1));
    MutexLock lock(&watch_mu_);
    if (stopping_) return;
    if (!news) continue;
    news_ = true;
    ++news_count_;
    group_->RingSelf();
    watch_mu_.Await(Condition(&was_read));
  }
}

void ShmMesh::FlushLinks() {
  const absl::Time limit = absl::Now() + kFlush;
  std::vector<uint64_t> completed;  // Nobody asks any more.
  for (Rank r = 0; r < world_size(); ++r) {
    while (r != rank() && links_[r]->has_queued() && !group_->IsClosed(r) && !group_->HasEnded(r) &&
           absl::Now() < limit) {
      links_[r]->Flush(&completed);
      absl::SleepFor(absl::Microseconds(50));
    }
  }
}

void ShmMesh::Close(const absl::Status& reason, std::optional<Rank> culprit) {
  const bool first = failure_.Record(
      reason.ok() ? absl::CancelledError("the transport is closed") : reason, culprit);
  group_->RingSelf();
  WakeWatcher();
  MutexLock lock(&drive_mu_);  // Waits for the driver, who sees the failure and leaves.
  if (std::exchange(closed_, true)) return;
  if (reason.ok() && first) FlushLinks();
  for (Rank r = 0; r < world_size(); ++r) {
    if (r == rank()) continue;
    if (reason.ok()) {
      control_.SendGoodbye(r, 0);
    } else {
      control_.SendAbort(r, reason, culprit);
    }
  }
  group_->Shut();
  {
    MutexLock stop(&watch_mu_);
    stopping_ = true;
  }
  control_.Interrupt();
  control_thread_.join();
  control_.Disconnect();
}

}  // namespace muster
