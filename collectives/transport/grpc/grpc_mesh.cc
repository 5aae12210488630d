#include "collectives/transport/grpc/grpc_mesh.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "collectives/transport/grpc/grpc_wire.h"

namespace muster {
namespace {

// Messages up to this size share one channel.
constexpr size_t kSmallMessageBytes = 64 << 10;
// A peer that aborts ends its calls to this rank, too. How long after their end the status of this
// rank's calls to it, which has the reason, may be.
constexpr absl::Duration kReasonPatience = absl::Seconds(1);
// How long Close waits: for gRPC to let go of memory by itself, and for peers to have read what
// was sent to them.
constexpr absl::Duration kReleasePatience = absl::Milliseconds(100);
constexpr absl::Duration kGoodbyePatience = absl::Seconds(2);
// Longer than gRPC ever takes once a connection is cut.
constexpr absl::Duration kCutPatience = absl::Seconds(60);

}  // namespace

GrpcMeshCalls::GrpcMeshCalls(size_t ranks, size_t channels) : peers(ranks) {
  for (Peer& peer : peers) {
    peer.outgoing.resize(channels);
    peer.incoming.resize(channels);
  }
}

void EndCalls(GrpcMeshCalls& calls, const grpc::Status& status) {
  std::vector<OutgoingCall*> outgoing;
  for (GrpcMeshCalls::Peer& peer : calls.peers) {
    for (const auto& call : peer.outgoing) {
      if (call != nullptr) outgoing.push_back(call.get());
    }
  }
  for (OutgoingCall* call : outgoing) call->StopSending();
  for (GrpcMeshCalls::Peer& peer : calls.peers) {
    for (const auto& call : peer.incoming) {
      if (call != nullptr) call->Leave(status);
    }
  }
  bool polite = status.ok();
  // What is on its way may take a moment; what a peer does not read, for ever.
  if (polite) polite = calls.signal->AwaitUnpinned(absl::Now() + kReleasePatience);
  for (OutgoingCall* call : outgoing) polite ? call->SayGoodbye() : call->Cancel();
  absl::Time patience = absl::Now() + (polite ? kGoodbyePatience : kReleasePatience);
  for (OutgoingCall* call : outgoing) {
    if (call->AwaitDone(patience)) continue;
    for (OutgoingCall* other : outgoing) other->Cut();
    patience = absl::InfiniteFuture();
    MUSTER_CHECK(call->AwaitDone(absl::Now() + kCutPatience))
        << "gRPC holds on to a call whose connection was cut";
  }
  // A call keeps what it could not send until it is destroyed.
  for (GrpcMeshCalls::Peer& peer : calls.peers) peer.outgoing.clear();
  MUSTER_CHECK(calls.signal->AwaitUnpinned(absl::Now() + kCutPatience))
      << "gRPC holds on to memory of calls that are over";
}

GrpcMesh::GrpcMesh(MeshSpec spec, GrpcMeshCalls calls)
    : spec_(std::move(spec)), signal_(calls.signal), calls_(std::move(calls)) {
  MUSTER_CHECK_EQ(calls_.peers.size(), spec_.members.size());
  peers_.resize(spec_.members.size());
  for (size_t r = 0; r < peers_.size(); ++r) {
    Peer& peer = peers_[r];
    peer.rank = static_cast<Rank>(r);
    if (peer.rank == spec_.rank) continue;
    peer.receives = std::make_unique<ReceiveTable>(spec_.options.limits);
    for (const auto& call : calls_.peers[r].incoming) {
      peer.inlets.push_back({.call = call, .reader = FrameReader(peer.receives.get(), &staging_)});
    }
  }
  // Whatever came while the mesh was being formed is still to be looked at.
  signal_->RaiseTrouble();
}

GrpcMesh::~GrpcMesh() { Close(absl::OkStatus(), std::nullopt); }

GrpcMesh::Peer& GrpcMesh::PeerAt(Rank rank) {
  MUSTER_CHECK(rank >= 0 && rank < world_size() && rank != spec_.rank)
      << "rank " << rank << " is no peer of rank " << spec_.rank;
  return peers_[rank];
}

void GrpcMesh::Fail(absl::Status status, std::optional<Rank> culprit) {
  failure_.Record(std::move(status), culprit);
  signal_->Fail();
}

void GrpcMesh::PostSend(Rank rank, uint64_t tag, absl::Span<const std::byte> bytes,
                        uint64_t token) {
  MUSTER_CHECK_LE(static_cast<int64_t>(bytes.size()), kMaxMessageBytes);
  MutexLock lock(&drive_mu_);
  if (failure_.has_value()) return;
  Peer& peer = PeerAt(rank);
  const auto& outgoing = calls_.peers[rank].outgoing;
  size_t channel = 0;
  if (bytes.size() > kSmallMessageBytes) channel = peer.next_channel++ % outgoing.size();
  outgoing[channel]->Send(tag, bytes, token);
}

void GrpcMesh::Post(Rank rank, const PendingReceive& receive) {
  MutexLock lock(&drive_mu_);
  if (failure_.has_value()) return;
  const absl::StatusOr<bool> served = PeerAt(rank).receives->Post(receive);
  if (!served.ok()) {
    Fail(Annotate(served.status(), DescribeMember(spec_, rank)), std::nullopt);
  } else if (*served) {
    served_at_post_.push_back(receive.token);
  }
}

void GrpcMesh::Expect(Rank peer, int delta) {
  MutexLock lock(&drive_mu_);
  PeerAt(peer).receives->Expect(delta);
}

absl::Status GrpcMesh::Read(Inlet& inlet, std::vector<uint64_t>* completed) {
  if (inlet.call->has_arrived()) inlet.call->Take(&inlet.slices);
  while (!inlet.slices.empty()) {
    const grpc::Slice& slice = inlet.slices.front();
    const auto bytes =
        absl::MakeConstSpan(reinterpret_cast<const std::byte*>(slice.begin()), slice.size());
    MUSTER_ASSIGN_OR_RETURN(const size_t taken,
                            inlet.reader.Take(bytes.subspan(inlet.used), completed));
    inlet.used += taken;
    if (inlet.used < bytes.size()) return absl::OkStatus();  // A message waits for its receive.
    inlet.used = 0;
    const size_t size = bytes.size();
    inlet.slices.pop_front();
    inlet.call->Used(size);
    if (inlet.slices.empty() && inlet.call->has_arrived()) inlet.call->Take(&inlet.slices);
  }
  return absl::OkStatus();
}

absl::Status GrpcMesh::CheckPeer(Peer& peer, absl::Time now) {
  bool sends = false;
  for (const auto& call : calls_.peers[peer.rank].outgoing) {
    const std::optional<grpc::Status> ended = call->ended();
    if (!ended.has_value()) continue;
    if (!ended->ok()) {
      const std::optional<absl::Status> abort = AbortIn(*ended, peer.rank);
      if (abort.has_value()) return *abort;
      return PeerIsGone(spec_, peer.rank,
                        absl::StrCat("the call to it ended: ", ended->error_message()));
    }
    peer.departed = true;
    sends = sends || call->has_sends();
  }
  bool over = true;
  bool broken = false;
  bool mid_message = false;
  for (const Inlet& inlet : peer.inlets) {
    over = over && inlet.over();
    broken = broken || inlet.call->state() == IncomingCall::State::kBroken;
    mid_message = mid_message || inlet.reader.mid_message();
  }
  uneasy_ = uneasy_ || peer.departed || broken;
  if (peer.departed) {
    const bool owes = over && (peer.receives->due() > 0 || mid_message);
    return sends || owes ? PeerIsGone(spec_, peer.rank, "it left while more was expected of it")
                         : absl::OkStatus();
  }
  if (!broken) return absl::OkStatus();
  if (!peer.broken_since.has_value()) peer.broken_since = now;
  const absl::Time judged_at = *peer.broken_since + kReasonPatience;
  if (now >= judged_at) return PeerIsGone(spec_, peer.rank, "its call ended without goodbye");
  signal_->SetNextLook(judged_at);
  return absl::OkStatus();
}

absl::Status GrpcMesh::Progress(bool trouble, std::vector<uint64_t>* completed) {
  completed->insert(completed->end(), served_at_post_.begin(), served_at_post_.end());
  served_at_post_.clear();
  for (Peer& peer : peers_) {
    for (Inlet& inlet : peer.inlets) {
      if (inlet.slices.empty() && !inlet.call->has_arrived()) continue;
      const absl::Status status = Read(inlet, completed);
      if (!status.ok()) return Annotate(status, DescribeMember(spec_, peer.rank));
    }
  }
  if (!trouble && !uneasy_) return absl::OkStatus();
  uneasy_ = false;
  signal_->SetNextLook(absl::InfiniteFuture());
  const absl::Time now = absl::Now();
  for (Peer& peer : peers_) {
    if (peer.rank != spec_.rank) MUSTER_RETURN_IF_ERROR(CheckPeer(peer, now));
  }
  return absl::OkStatus();
}

absl::Status GrpcMesh::Poll(absl::Time deadline, absl::Duration spin,
                            std::vector<uint64_t>* completed) {
  const size_t before = completed->size();
  std::optional<absl::Time> spin_until;
  while (true) {
    bool woken = false;
    {
      MutexLock lock(&drive_mu_);
      if (failure_.has_value()) return failure_.status();
      const GrpcSignal::Taken taken = signal_->Take(completed);
      woken = taken.woken;
      absl::Status status = Progress(taken.trouble, completed);
      if (!status.ok()) {
        Fail(std::move(status), std::nullopt);
        return failure_.status();
      }
    }
    if (completed->size() > before || woken) return absl::OkStatus();
    absl::Time now = absl::Now();
    if (now >= deadline) return absl::OkStatus();
    if (!spin_until.has_value()) spin_until = std::min(deadline, now + spin);
    // The threads that this one waits for may need its processor.
    while (!signal_->news() && now < *spin_until) {
      std::this_thread::yield();
      now = absl::Now();
    }
    if (!signal_->news()) signal_->AwaitNews(deadline);
  }
}

void GrpcMesh::Close(const absl::Status& reason, std::optional<Rank> culprit) {
  Fail(reason.ok() ? absl::CancelledError("the transport is closed") : reason, culprit);
  MutexLock lock(&drive_mu_);  // Waits for the driver, who sees the failure and leaves.
  if (std::exchange(closed_, true)) return;
  EndCalls(calls_, CloseStatus(reason, culprit));
}

}  // namespace muster
