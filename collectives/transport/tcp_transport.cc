#include "collectives/transport/tcp_transport.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "base/random.h"
#include "base/status_macros.h"
#include "collectives/transport/mesh_peers.h"
#include "collectives/transport/socket.h"
#include "collectives/transport/tcp_handshake.h"
#include "collectives/transport/tcp_mesh.h"
#include "collectives/transport/tcp_rendezvous.h"

namespace muster {
namespace {

// A connection on its way to being welcomed.
struct Dial {
  UniqueFd fd;
  Rank rank = -1;
  int channel = 0;
  bool connected = false;
  bool welcomed = false;
  std::array<std::byte, kAnswerBytes + kMaxRefusalText> answer;
  size_t got = 0;
};

// Forms one mesh; used by one thread.
class MeshBuilder {
 public:
  MeshBuilder(TcpMeshRendezvous& rendezvous, const MeshSpec& spec, absl::Time deadline)
      : rendezvous_(rendezvous),
        spec_(spec),
        deadline_(deadline),
        token_hash_(StableHash(spec.token)),
        notify_(MakeEventFd()),
        sockets_(spec.members.size()) {}

  absl::StatusOr<std::vector<TcpPeerSockets>> Run() {
    MeshPlan plan;
    plan.token_hash = token_hash_;
    plan.epoch = spec_.epoch;
    plan.rank = spec_.rank;
    plan.channels = static_cast<uint16_t>(spec_.options.channels);
    for (const MeshMember& member : spec_.members) plan.incarnations.push_back(member.incarnation);
    MUSTER_RETURN_IF_ERROR(rendezvous_.Begin(std::move(plan), notify_.get()));
    auto end = absl::MakeCleanup([this] { rendezvous_.End(); });
    missing_ = static_cast<int>(spec_.members.size() - 1) * (1 + spec_.options.channels);
    for (TcpPeerSockets& peer : sockets_) peer.data.resize(spec_.options.channels);
    for (Rank r = 0; r < spec_.rank; ++r) MUSTER_RETURN_IF_ERROR(DialPeer(r));
    while (missing_ > 0) {
      MUSTER_RETURN_IF_ERROR(TakeArrivals());
      if (missing_ == 0) break;
      if (absl::Now() >= deadline_) return Missing();
      MUSTER_RETURN_IF_ERROR(WaitAndAdvance());
    }
    MUSTER_RETURN_IF_ERROR(ConfigureAll());
    return std::move(sockets_);
  }

 private:
  absl::Status Blame(const absl::Status& status, Rank r) const {
    return CannotConnect(spec_, r, status);
  }

  absl::Status DialPeer(Rank r) {
    const auto address = ParseAddress(spec_.members[r].address);
    if (!address.ok()) return Blame(address.status(), r);
    for (int channel = 0; channel <= spec_.options.channels; ++channel) {
      auto fd = StartConnect(*address);
      if (!fd.ok()) return Blame(fd.status(), r);
      Dial dial;
      dial.fd = *std::move(fd);
      dial.rank = r;
      dial.channel = channel;
      dials_.push_back(std::move(dial));
    }
    return absl::OkStatus();
  }

  void Place(Rank r, int channel, UniqueFd fd) {
    TcpPeerSockets& peer = sockets_[r];
    (channel == 0 ? peer.control : peer.data[channel - 1]) = std::move(fd);
    --missing_;
  }

  absl::Status TakeArrivals() {
    MUSTER_ASSIGN_OR_RETURN(std::vector<TcpArrival> arrivals, rendezvous_.Take());
    for (TcpArrival& arrival : arrivals)
      Place(arrival.rank, arrival.channel, std::move(arrival.fd));
    return absl::OkStatus();
  }

  absl::Status WaitAndAdvance() {
    std::vector<pollfd> polled = {{notify_.get(), POLLIN, 0}};
    for (const Dial& dial : dials_) {
      polled.push_back({dial.fd.get(), static_cast<short>(dial.connected ? POLLIN : POLLOUT), 0});
    }
    if (poll(polled.data(), polled.size(), PollTimeoutMs(deadline_)) < 0 && errno != EINTR) {
      return ErrnoStatus(errno, "poll");
    }
    DrainEventFd(notify_.get());
    for (size_t i = 0; i < dials_.size(); ++i) {
      if (polled[i + 1].revents == 0) continue;
      const absl::Status status =
          dials_[i].connected ? ReadAnswer(dials_[i]) : SendHello(dials_[i]);
      if (!status.ok()) return Blame(status, dials_[i].rank);
    }
    dials_.erase(std::remove_if(dials_.begin(), dials_.end(),
                                [](const Dial& dial) { return dial.welcomed; }),
                 dials_.end());
    return absl::OkStatus();
  }

  absl::Status SendHello(Dial& dial) {
    int error = 0;
    socklen_t length = sizeof(error);
    getsockopt(dial.fd.get(), SOL_SOCKET, SO_ERROR, &error, &length);
    if (error != 0) return ErrnoStatus(error, "is its process gone?");
    dial.connected = true;
    TcpHello hello;
    hello.token_hash = token_hash_;
    hello.epoch = spec_.epoch;
    hello.from = spec_.members[spec_.rank].incarnation;
    hello.to = spec_.members[dial.rank].incarnation;
    hello.from_rank = spec_.rank;
    hello.to_rank = dial.rank;
    hello.world_size = static_cast<int32_t>(spec_.members.size());
    hello.channel = static_cast<uint16_t>(dial.channel);
    hello.channels = static_cast<uint16_t>(spec_.options.channels);
    const auto bytes = EncodeHello(hello);
    // A new connection's buffer takes a hello whole.
    const ssize_t sent = send(dial.fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent != static_cast<ssize_t>(bytes.size())) return ErrnoStatus(errno, "sending the hello");
    return absl::OkStatus();
  }

  absl::Status ReadAnswer(Dial& dial) {
    // Never a byte beyond the answer: what follows a welcome belongs to the mesh.
    size_t wanted = kAnswerBytes;
    TcpAnswer answer;
    while (true) {
      if (dial.got >= kAnswerBytes) {
        MUSTER_ASSIGN_OR_RETURN(answer,
                                DecodeAnswer(absl::MakeConstSpan(dial.answer).first(kAnswerBytes)));
        wanted = kAnswerBytes + answer.text_bytes;
        if (dial.got == wanted) break;
      }
      const ssize_t got =
          recv(dial.fd.get(), dial.answer.data() + dial.got, wanted - dial.got, MSG_DONTWAIT);
      if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) {
        return absl::OkStatus();
      }
      if (got < 0) return ErrnoStatus(errno, "waiting for its answer");
      if (got == 0) return absl::UnavailableError("it hung up without an answer");
      dial.got += static_cast<size_t>(got);
    }
    const absl::string_view text(reinterpret_cast<const char*>(dial.answer.data()) + kAnswerBytes,
                                 answer.text_bytes);
    switch (answer.verdict) {
      case TcpVerdict::kWelcome:
        break;
      case TcpVerdict::kBusy:
        return absl::ResourceExhaustedError(absl::StrCat("refused: ", text));
      case TcpVerdict::kVersion:
      case TcpVerdict::kToken:
      case TcpVerdict::kStaleEpoch:
      case TcpVerdict::kIncarnation:
      case TcpVerdict::kShape:
      case TcpVerdict::kDuplicate:
        return absl::FailedPreconditionError(absl::StrCat("refused: ", text));
    }
    if (answer.epoch != spec_.epoch || answer.incarnation != spec_.members[dial.rank].incarnation) {
      return absl::FailedPreconditionError(absl::StrCat(
          "answered as incarnation ", answer.incarnation.ToString(), " in epoch ", answer.epoch));
    }
    dial.welcomed = true;
    Place(dial.rank, dial.channel, std::move(dial.fd));
    return absl::OkStatus();
  }

  absl::Status Missing() const {
    std::vector<Rank> missing;
    for (Rank r = 0; r < static_cast<Rank>(sockets_.size()); ++r) {
      if (r == spec_.rank) continue;
      bool whole = sockets_[r].control.valid();
      for (const UniqueFd& fd : sockets_[r].data) whole = whole && fd.valid();
      if (!whole) missing.push_back(r);
    }
    return LacksConnections(spec_, missing);
  }

  absl::Status ConfigureAll() {
    for (Rank r = 0; r < static_cast<Rank>(sockets_.size()); ++r) {
      if (r == spec_.rank) continue;
      absl::Status status =
          ConfigureStream(sockets_[r].control.get(), spec_.options.peer_timeout, 0);
      for (const UniqueFd& fd : sockets_[r].data) {
        if (status.ok()) {
          status = ConfigureStream(fd.get(), spec_.options.peer_timeout,
                                   spec_.options.socket_buffer_bytes);
        }
      }
      if (!status.ok()) return Blame(status, r);
    }
    return absl::OkStatus();
  }

  TcpMeshRendezvous& rendezvous_;
  const MeshSpec& spec_;
  const absl::Time deadline_;
  const uint64_t token_hash_;
  const UniqueFd notify_;
  std::vector<Dial> dials_;
  std::vector<TcpPeerSockets> sockets_;
  int missing_ = 0;  // connections
};

}  // namespace

absl::StatusOr<std::vector<TcpPeerSockets>> ConnectMeshSockets(TcpListener& listener,
                                                               const MeshSpec& given,
                                                               absl::Time deadline) {
  MeshSpec spec = given;
  if (spec.options.channels == 0) spec.options.channels = 1;
  MUSTER_RETURN_IF_ERROR(ValidateSpec(spec));
  return MeshBuilder(listener.rendezvous(), spec, deadline).Run();
}

absl::StatusOr<std::unique_ptr<Transport>> TcpTransport::Connect(TcpListener& listener,
                                                                 MeshSpec spec,
                                                                 absl::Time deadline) {
  MUSTER_ASSIGN_OR_RETURN(std::vector<TcpPeerSockets> sockets,
                          ConnectMeshSockets(listener, spec, deadline));
  std::unique_ptr<Transport> transport =
      std::make_unique<TcpMesh>(std::move(spec), std::move(sockets));
  return transport;
}

}  // namespace muster
