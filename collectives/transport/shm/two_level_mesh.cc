#include "collectives/transport/shm/two_level_mesh.h"

#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/time/clock.h"
#include "base/check.h"
#include "base/status_macros.h"

namespace muster {
namespace {

constexpr uint64_t kStopMark = 1;

}  // namespace

TwoLevelMesh::TwoLevelMesh(std::unique_ptr<ShmMesh> host, const std::vector<Rank>& host_ranks,
                           std::unique_ptr<TcpMesh> network)
    : network_(std::move(network)),
      host_(std::move(host)),
      rank_on_host_(static_cast<size_t>(network_->world_size()), -1) {
  if (host_ == nullptr) return;
  MUSTER_CHECK_EQ(host_ranks.size(), static_cast<size_t>(host_->world_size()));
  for (size_t i = 0; i < host_ranks.size(); ++i) {
    rank_on_host_[host_ranks[i]] = static_cast<Rank>(i);
  }
  network_->WatchAlso(host_->news_fd());
  ring_epoll_ = UniqueFd(epoll_create1(EPOLL_CLOEXEC));
  MUSTER_CHECK(ring_epoll_.valid()) << "epoll_create1: " << std::strerror(errno);
  stop_ring_ = MakeEventFd();
  EpollControl(ring_epoll_.get(), EPOLL_CTL_ADD, stop_ring_.get(), EPOLLIN, kStopMark);
  EpollControl(ring_epoll_.get(), EPOLL_CTL_ADD, network_->ready_fd(), EPOLLONESHOT, 0);
  ring_thread_ = std::thread([this] { RingForNetwork(); });
}

TwoLevelMesh::~TwoLevelMesh() { Close(absl::OkStatus(), std::nullopt); }

int TwoLevelMesh::local_world_size() const {
  return std::max(network_->local_world_size(), host_ == nullptr ? 1 : host_->world_size());
}

TwoLevelMesh::Way TwoLevelMesh::WayTo(Rank peer) const {
  MUSTER_CHECK(peer >= 0 && peer < world_size() && peer != rank())
      << "rank " << peer << " is no peer of rank " << rank();
  const Rank on_host = rank_on_host_[peer];
  return on_host < 0 ? Way{network_.get(), peer} : Way{host_.get(), on_host};
}

void TwoLevelMesh::PostSend(Rank peer, uint64_t tag, absl::Span<const std::byte> bytes,
                            uint64_t token) {
  const Way way = WayTo(peer);
  if (!failure_.has_value()) way.mesh->PostSend(way.rank, tag, bytes, token);
}

void TwoLevelMesh::PostReceive(Rank peer, uint64_t tag, absl::Span<std::byte> destination,
                               uint64_t token) {
  const Way way = WayTo(peer);
  if (!failure_.has_value()) way.mesh->PostReceive(way.rank, tag, destination, token);
}

void TwoLevelMesh::PostStandingReceive(Rank peer, uint64_t tag, absl::Span<std::byte> destination,
                                       uint64_t token) {
  const Way way = WayTo(peer);
  if (!failure_.has_value()) way.mesh->PostStandingReceive(way.rank, tag, destination, token);
}

void TwoLevelMesh::Expect(Rank peer, int delta) {
  const Way way = WayTo(peer);
  way.mesh->Expect(way.rank, delta);
}

void TwoLevelMesh::PostConsume(Rank peer, uint64_t tag, int64_t length, int element_bytes,
                               PieceConsumer* consumer, uint64_t token) {
  const Way way = WayTo(peer);
  if (failure_.has_value()) return;
  way.mesh->PostConsume(way.rank, tag, length, element_bytes, consumer, token);
}

absl::Status TwoLevelMesh::Failed(const absl::Status& status) {
  failure_.Record(status, std::nullopt);
  return failure_.status();
}

absl::Status TwoLevelMesh::LookIntoBoth(std::vector<uint64_t>* completed) {
  if (host_ != nullptr) {
    MUSTER_RETURN_IF_ERROR(host_->Poll(absl::InfinitePast(), absl::ZeroDuration(), completed));
  }
  return network_->Poll(absl::InfinitePast(), absl::ZeroDuration(), completed);
}

absl::Status TwoLevelMesh::Poll(absl::Time deadline, absl::Duration spin,
                                std::vector<uint64_t>* completed) {
  const size_t before = completed->size();
  const bool had_backlog = has_backlog();
  absl::Time spin_until = absl::InfinitePast();
  for (bool first = true;; first = false) {
    if (failure_.has_value()) return failure_.status();
    absl::Status status = LookIntoBoth(completed);
    if (!status.ok()) return Failed(status);
    if (completed->size() > before) return absl::OkStatus();
    if (woken_.exchange(false)) return failure_.so_far();
    if (had_backlog && !has_backlog()) return absl::OkStatus();
    const absl::Time now = absl::Now();
    if (now >= deadline) return absl::OkStatus();
    if (first) spin_until = now + spin;
    if (now < spin_until) continue;
    if (host_ == nullptr) {
      status = network_->Poll(deadline, absl::ZeroDuration(), completed);
    } else {
      RingWhenReady();
      status = host_->Poll(deadline, absl::ZeroDuration(), completed);
    }
    if (!status.ok()) return Failed(status);
  }
}

void TwoLevelMesh::RingWhenReady() {
  EpollControl(ring_epoll_.get(), EPOLL_CTL_MOD, network_->ready_fd(), EPOLLIN | EPOLLONESHOT, 0);
}

void TwoLevelMesh::RingForNetwork() {
  while (true) {
    epoll_event event;
    if (epoll_wait(ring_epoll_.get(), &event, 1, -1) != 1) continue;
    if (event.data.u64 == kStopMark) return;
    host_->Wake();
  }
}

void TwoLevelMesh::Wake() {
  woken_ = true;
  if (host_ != nullptr) {
    host_->Wake();
  } else {
    network_->Wake();
  }
}

void TwoLevelMesh::Close(const absl::Status& reason, std::optional<Rank> culprit) {
  if (const std::optional<MeshFailure> earlier = failure(); earlier.has_value()) {
    failure_.Record(earlier->status, earlier->culprit);
  }
  failure_.Record(reason.ok() ? absl::CancelledError("the transport is closed") : reason, culprit);
  MutexLock lock(&close_mu_);
  // Others hear of it first; the host may have to wait for a rank that was stopped.
  network_->Close(reason, culprit);
  if (host_ == nullptr) return;
  host_->Close(reason, culprit);
  SignalEventFd(stop_ring_.get());
  if (ring_thread_.joinable()) ring_thread_.join();
}

std::optional<MeshFailure> TwoLevelMesh::failure() const {
  if (failure_.has_value()) return failure_.get();
  if (host_ != nullptr && host_->failure().has_value()) return host_->failure();
  return network_->failure();
}

}  // namespace muster
