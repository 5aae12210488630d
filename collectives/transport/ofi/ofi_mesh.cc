#include "collectives/transport/ofi/ofi_mesh.h"

#include <poll.h>
#include <sched.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "collectives/transport/culprit.h"

namespace muster {
namespace {

// How Poll waits once it has spun: it gives way to other ranks of the host for a while, then
// sleeps.
constexpr absl::Duration kYieldFor = absl::Microseconds(100);
constexpr absl::Duration kMinSleep = absl::Microseconds(20);
constexpr absl::Duration kMaxSleep = absl::Microseconds(500);
// Passes of a spinning Poll between looks at the control connections.
constexpr int kPassesPerControl = 32;
// How often the idle thread looks: while something is under way, and when all is quiet.
constexpr absl::Duration kBusyTick = absl::Microseconds(100);
constexpr absl::Duration kSlowTick = absl::Milliseconds(1);
constexpr absl::Duration kQuietTick = absl::Milliseconds(5);

// Longer messages are never early: no packet, or no peer's limits, hold them.
int64_t LongestEarly(const OfiMeshParts& parts) {
  const int64_t eager = parts.spec.options.limits.eager_bytes;
  if (parts.buffers == nullptr) return eager;
  return std::min(eager, static_cast<int64_t>(parts.buffers->packet_bytes() - kOfiHeaderBytes));
}

}  // namespace

OfiMesh::OfiMesh(OfiMeshParts parts)
    : parts_(std::move(parts)),
      watch_wake_(MakeEventFd()),
      control_(std::move(parts_.control)),
      regions_(parts_.rails),
      sender_(parts_.rails, regions_, parts_.links, parts_.targets, parts_.spec.options.limits),
      receiver_(parts_.rails, regions_, parts_.links, parts_.spec.options.limits,
                LongestEarly(parts_)),
      presence_(parts_.spec.members.size()) {}

absl::StatusOr<std::unique_ptr<OfiTransport>> OfiMesh::Create(OfiMeshParts parts) {
  std::unique_ptr<OfiMesh> mesh(new OfiMesh(std::move(parts)));
  {
    MutexLock lock(&mesh->drive_mu_);
    MUSTER_RETURN_IF_ERROR(mesh->receiver_.Init());
  }
  mesh->idle_thread_ = std::thread([m = mesh.get()] { m->ServeIdle(); });
  return mesh;
}

OfiMesh::~OfiMesh() { Close(absl::OkStatus(), std::nullopt); }

void OfiMesh::Fail(absl::Status status, std::optional<Rank> culprit) {
  if (!failure_.Record(std::move(status), culprit)) return;
  SignalEventFd(watch_wake_.get());
  control_.Interrupt();
}

void OfiMesh::CheckPeer(Rank peer) const {
  MUSTER_CHECK(peer >= 0 && peer < world_size() && peer != rank())
      << "rank " << peer << " is no peer of rank " << rank();
}

absl::Status OfiMesh::RegisterMemory(absl::Span<std::byte> memory) {
  Wake();  // A driver that waits holds the lock.
  MutexLock lock(&drive_mu_);
  return closed_ ? absl::CancelledError("the transport is closed") : regions_.Register(memory);
}

absl::Status OfiMesh::DeregisterMemory(absl::Span<std::byte> memory) {
  Wake();
  MutexLock lock(&drive_mu_);
  return closed_ ? absl::OkStatus() : regions_.Deregister(memory);
}

void OfiMesh::PostSend(Rank peer, uint64_t tag, absl::Span<const std::byte> bytes, uint64_t token) {
  CheckPeer(peer);
  MUSTER_CHECK_LE(static_cast<int64_t>(bytes.size()), kMaxMessageBytes);
  MutexLock lock(&drive_mu_);
  if (!failure_.has_value()) sender_.Post(peer, tag, bytes, token);
}

void OfiMesh::Post(Rank peer, const PendingReceive& receive) {
  CheckPeer(peer);
  MutexLock lock(&drive_mu_);
  if (failure_.has_value()) return;
  const absl::Status status = receiver_.Post(peer, receive, &completed_);
  if (!status.ok()) Fail(Annotate(status, DescribeMember(parts_.spec, peer)), std::nullopt);
}

void OfiMesh::Expect(Rank peer, int delta) {
  CheckPeer(peer);
  MutexLock lock(&drive_mu_);
  receiver_.Expect(peer, delta);
}

absl::Status OfiMesh::Blame(Rank peer, const absl::Status& error) {
  MUSTER_RETURN_IF_ERROR(ReadControl());
  // One that has left needs nothing more; CheckDeparted knows whether it owed something.
  if (presence_[static_cast<size_t>(peer)].goodbye.has_value()) return absl::OkStatus();
  return PeerIsGone(parts_.spec, peer, error.message());
}

absl::Status OfiMesh::ReadControl() {
  absl::Status first;
  for (const ControlNews& news : control_.Read()) {
    Presence& presence = presence_[static_cast<size_t>(news.peer)];
    absl::Status status;
    switch (news.kind) {
      case ControlNews::Kind::kGoodbye:
        presence.goodbye = news.packets;
        any_departed_ = true;
        break;
      case ControlNews::Kind::kTaken:
        presence.taken = true;
        break;
      case ControlNews::Kind::kAbort:
        presence.taken = true;
        status = WithCulprit(
            absl::Status(news.reason.code(),
                         absl::StrCat("rank ", news.peer, " aborted: ", news.reason.message())),
            news.culprit);
        break;
      case ControlNews::Kind::kClosed:
        presence.taken = true;
        // After a goodbye that was the end; what has not come by now will not come.
        if (presence.goodbye.has_value()) {
          presence.goodbye = parts_.links[news.peer]->processed();
        } else {
          status = PeerIsGone(parts_.spec, news.peer, news.reason.message());
        }
        break;
    }
    if (first.ok()) first = status;
  }
  return first;
}

absl::Status OfiMesh::CheckDeparted() {
  for (Rank r = 0; r < world_size(); ++r) {
    Presence& presence = presence_[static_cast<size_t>(r)];
    if (!presence.goodbye.has_value()) continue;
    const OfiPeerLink& link = *parts_.links[r];
    const bool all_came = static_cast<int32_t>(link.processed() - *presence.goodbye) >= 0;
    // A failed mesh takes nothing any more, and keeps nobody waiting.
    if (!all_came && !failure_.has_value()) continue;
    if (!std::exchange(presence.told_taken, true)) control_.SendTaken(r);
    if (receiver_.due(r) > 0)
      return PeerIsGone(parts_.spec, r, "it left while more was expected of it");
    if (sender_.pending(r) > 0 || link.queued_messages() > 0) {
      return PeerIsGone(parts_.spec, r, "it left before it took what was sent to it");
    }
  }
  return absl::OkStatus();
}

absl::Status OfiMesh::Repost() {
  while (!to_repost_.empty()) {
    const auto [peer, buffer] = to_repost_.back();
    MUSTER_ASSIGN_OR_RETURN(const bool posted, parts_.buffers->Repost(buffer));
    if (!posted) break;
    to_repost_.pop_back();
    if (peer >= 0) parts_.links[peer]->Returned();
  }
  return absl::OkStatus();
}

absl::Status OfiMesh::ProcessRecord(Rank peer, const OfiRecord& record, bool driving) {
  if (const auto* request = std::get_if<OfiRequest>(&record)) {
    return receiver_.OnRequest(peer, *request, &completed_);
  }
  if (const auto* grant = std::get_if<OfiGrant>(&record)) return sender_.OnGrant(peer, *grant);
  if (const auto* done = std::get_if<OfiDone>(&record)) {
    return sender_.OnDone(peer, done->tag, &completed_);
  }
  return receiver_.OnPiece(std::get<OfiWritten>(record).immediate, driving, &completed_);
}

absl::Status OfiMesh::ProcessPacket(Rank peer, const OfiReceivedPacket& packet, bool driving) {
  absl::Span<const std::byte> payload =
      parts_.buffers->Received(packet.buffer, packet.length).subspan(kOfiHeaderBytes);
  if (packet.header.kind == OfiPacketKind::kEager) {
    return receiver_.OnEager(peer, packet.header.argument, payload, driving, &completed_);
  }
  while (!payload.empty()) {
    MUSTER_ASSIGN_OR_RETURN(const OfiRecord record, TakeOfiRecord(&payload));
    MUSTER_RETURN_IF_ERROR(ProcessRecord(peer, record, driving));
  }
  return absl::OkStatus();
}

absl::Status OfiMesh::TakePacket(uint32_t buffer, size_t length, bool driving) {
  OfiReceivedPacket packet;
  packet.buffer = buffer;
  packet.length = length;
  MUSTER_ASSIGN_OR_RETURN(packet.header, DecodeOfiHeader(parts_.buffers->Received(buffer, length)));
  const auto peer = static_cast<Rank>(packet.header.rank);
  if (packet.header.cookie != parts_.cookie || peer >= world_size() || peer == rank()) {
    to_repost_.emplace_back(-1, buffer);  // Of an older mesh, or a stranger's.
    return absl::OkStatus();
  }
  OfiPeerLink& link = *parts_.links[peer];
  absl::Status status = link.Note(packet.header);
  if (!status.ok()) return Annotate(status, DescribeMember(parts_.spec, peer));
  if (!parts_.connections.empty()) parts_.connections.Settle(peer);
  for (auto next = link.Order(packet); next.has_value(); next = link.NextKept()) {
    status = ProcessPacket(peer, *next, driving);
    if (!status.ok()) return Annotate(status, DescribeMember(parts_.spec, peer));
    to_repost_.emplace_back(peer, next->buffer);
  }
  return absl::OkStatus();
}

absl::Status OfiMesh::Dispatch(size_t rail, const OfiCompletion& completion, bool driving) {
  if (completion.operation == nullptr) {
    return receiver_.OnPiece(completion.immediate, driving, &completed_);
  }
  const OfiOperation& operation = *completion.operation;
  switch (operation.kind) {
    case OfiOperation::Kind::kReceive:
      if (!completion.status.ok()) return Annotate(completion.status, "receiving packets");
      return TakePacket(operation.index, completion.length, driving);
    case OfiOperation::Kind::kSend:
      parts_.buffers->FreeSend(operation.index);
      break;
    case OfiOperation::Kind::kWrite:
      if (completion.status.ok()) return sender_.OnWritten(operation, &completed_);
      break;
  }
  return completion.status.ok() ? absl::OkStatus() : Blame(operation.peer, completion.status);
}

absl::Status OfiMesh::PushOut(bool with_what_can_wait, bool* moved) {
  Rank culprit = -1;
  absl::Status status = receiver_.Grant(&culprit, moved);
  if (!status.ok()) return Annotate(status, absl::StrCat("a message from rank ", culprit));
  // Packets first: they are short, and on some providers wait behind the writes before them.
  for (Rank r = 0; r < world_size(); ++r) {
    if (r == rank() || !control_.connected(r)) continue;
    OfiPeerLink& link = *parts_.links[r];
    // With more to come from the peer, this is called again soon.
    const bool more_to_come = receiver_.due(r) > 0 || sender_.pending(r) > 0;
    if (with_what_can_wait || !more_to_come ? !link.wants_flush() : !link.urgent()) continue;
    status = link.Flush(*parts_.rails[0], *parts_.buffers, &completed_, moved);
    if (!status.ok()) MUSTER_RETURN_IF_ERROR(Blame(r, status));
  }
  status = sender_.PostWrites(&culprit, moved);
  return status.ok() ? status : Blame(culprit, status);
}

absl::Status OfiMesh::Progress(bool driving, bool* moved) {
  if (driving) MUSTER_RETURN_IF_ERROR(receiver_.Deliver(&completed_));
  // What was posted since the last pass goes out before time is spent on what has come in.
  MUSTER_RETURN_IF_ERROR(PushOut(/*with_what_can_wait=*/true, moved));
  for (size_t r = 0; r < parts_.rails.size(); ++r) {
    batch_.clear();
    MUSTER_RETURN_IF_ERROR(parts_.rails[r]->Read(&batch_));
    *moved = *moved || !batch_.empty();
    for (const OfiCompletion& completion : batch_) {
      MUSTER_RETURN_IF_ERROR(Dispatch(r, completion, driving));
    }
  }
  MUSTER_RETURN_IF_ERROR(Repost());
  MUSTER_RETURN_IF_ERROR(PushOut(/*with_what_can_wait=*/!driving || completed_.empty(), moved));
  return any_departed_ ? CheckDeparted() : absl::OkStatus();
}

absl::Status OfiMesh::Poll(absl::Time deadline, absl::Duration spin,
                           std::vector<uint64_t>* completed) {
  absl::Time spin_until, yield_until;
  absl::Duration sleep = kMinSleep;
  for (int pass = 0;; ++pass) {
    ++polls_;
    MutexLock lock(&drive_mu_);
    if (failure_.has_value()) return failure_.status();
    bool moved = false;
    absl::Status status = Progress(/*driving=*/true, &moved);
    const bool done = !completed_.empty() || wake_pending_.exchange(false);
    const absl::Time now = absl::Now();
    const bool last = now >= deadline;
    if (status.ok() && !done && (last || pass % kPassesPerControl == kPassesPerControl - 1) &&
        control_.Wait(absl::ZeroDuration())) {
      status = ReadControl();
      if (status.ok() && any_departed_) status = CheckDeparted();
    }
    if (!status.ok()) {
      Fail(std::move(status), std::nullopt);
      return failure_.status();
    }
    completed->insert(completed->end(), completed_.begin(), completed_.end());
    completed_.clear();
    if (done || last) return failure_.so_far();
    if (pass == 0) spin_until = now + spin;
    if (moved || pass == 0) {
      yield_until = std::max(now, spin_until) + kYieldFor;
      sleep = kMinSleep;
    }
    if (moved || now < spin_until) continue;
    if (now < yield_until) {
      sched_yield();
      continue;
    }
    if (control_.Wait(std::min(sleep, deadline - now))) pass = kPassesPerControl - 2;
    sleep = std::min(2 * sleep, kMaxSleep);
  }
}

void OfiMesh::Wake() {
  wake_pending_ = true;
  control_.Interrupt();
}

void OfiMesh::Watch(absl::Time deadline) {
  if (failure_.has_value()) return;
  // The idle thread, or a driver, reads the control connections and signals failures.
  pollfd waiting = {watch_wake_.get(), POLLIN, 0};
  if (poll(&waiting, 1, PollTimeoutMs(deadline)) == 1) DrainEventFd(watch_wake_.get());
}

bool OfiMesh::Busy() const {
  if (!sender_.idle() || !receiver_.idle() || !to_repost_.empty() || any_departed_) return true;
  for (const auto& rail : parts_.rails) {
    if (rail->outstanding() > 0) return true;
  }
  for (const auto& link : parts_.links) {
    if (link != nullptr && link->wants_flush()) return true;
  }
  return false;
}

void OfiMesh::ServeIdle() {
  uint64_t polls_seen = 0;
  absl::Duration tick = kQuietTick;
  while (!stopping_) {
    const bool news = control_.Wait(tick);
    const uint64_t polls = polls_;
    const bool driven = std::exchange(polls_seen, polls) != polls;
    if (driven && !news) {
      tick = kSlowTick;
      continue;
    }
    if (!drive_mu_.TryLock()) {
      // A driver is at work and sees all that happens.
      tick = kSlowTick;
      if (news) absl::SleepFor(kBusyTick);
      continue;
    }
    if (!closed_) {
      bool moved = false;
      absl::Status status =
          failure_.has_value() ? absl::OkStatus() : Progress(/*driving=*/false, &moved);
      if (news) {
        const absl::Status said = ReadControl();
        if (status.ok()) status = said;
        const absl::Status left = CheckDeparted();
        if (status.ok()) status = left;
      }
      if (!status.ok()) Fail(std::move(status), std::nullopt);
      const absl::Duration longest = Busy() && !failure_.has_value() ? kSlowTick : kQuietTick;
      tick = moved ? kBusyTick : std::min(2 * tick, longest);
    }
    drive_mu_.Unlock();
  }
}

void OfiMesh::FlushAndLeave() {
  const absl::Time deadline = absl::Now() + parts_.flush_timeout;
  std::vector<bool> told(presence_.size(), false);
  while (absl::Now() < deadline) {
    // What fails now fails peers that are gone, and for them there is nothing to wait.
    bool moved = false;
    Progress(/*driving=*/false, &moved).IgnoreError();
    if (control_.Wait(absl::ZeroDuration())) ReadControl().IgnoreError();
    CheckDeparted().IgnoreError();
    bool waiting = false;
    for (Rank r = 0; r < world_size(); ++r) {
      const Presence& presence = presence_[static_cast<size_t>(r)];
      if (!control_.connected(r) || presence.taken) continue;
      waiting = true;
      if (told[r] || (parts_.links[r]->has_queued() && !presence.goodbye.has_value())) continue;
      control_.SendGoodbye(r, parts_.links[r]->sent());
      told[r] = true;
    }
    if (!waiting) return;
    if (!moved) control_.Wait(kMinSleep);
  }
}

void OfiMesh::Close(const absl::Status& reason, std::optional<Rank> culprit) {
  const bool had_failed = failure_.has_value();
  Fail(reason.ok() ? absl::CancelledError("the transport is closed") : reason, culprit);
  Wake();
  WakeWatcher();
  {
    MutexLock lock(&drive_mu_);  // Waits for the driver, who sees the failure and leaves.
    if (closed_) return;
    closed_ = true;
    if (reason.ok() && !had_failed) {
      FlushAndLeave();
    } else {
      for (Rank r = 0; r < world_size(); ++r) {
        if (reason.ok()) {
          control_.SendGoodbye(r, parts_.links[r] == nullptr ? 0 : parts_.links[r]->sent());
        } else {
          control_.SendAbort(r, reason, culprit);
        }
      }
    }
    for (const auto& rail : parts_.rails) rail->CloseEndpoint(/*regions_gone=*/false);
    sender_.Clear();
    receiver_.Clear();
    regions_.Clear();
    if (parts_.buffers != nullptr) parts_.buffers->Close();
    for (const auto& rail : parts_.rails) rail->CloseEndpoint(/*regions_gone=*/true);
    stopping_ = true;
  }
  control_.Interrupt();
  if (idle_thread_.joinable()) idle_thread_.join();
  control_.Disconnect();
}

}  // namespace muster
