#include "collectives/transport/grpc/grpc_transport.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/random.h"
#include "base/status_macros.h"
#include "collectives/transport/grpc/grpc_mesh.h"
#include "collectives/transport/grpc/grpc_rendezvous.h"
#include "collectives/transport/grpc/grpc_wire.h"
#include "collectives/transport/mesh_peers.h"
#include "collectives/transport/socket.h"
#include "collectives/transport/tcp_handshake.h"

namespace muster {
namespace {

// Between two looks at the calls while connections are being opened.
constexpr absl::Duration kConnectTick = absl::Milliseconds(5);

// Forms one mesh; used by one thread.
class MeshBuilder {
 public:
  MeshBuilder(GrpcRendezvous& rendezvous, const MeshSpec& spec, absl::Time deadline)
      : rendezvous_(rendezvous),
        spec_(spec),
        deadline_(deadline),
        token_hash_(StableHash(spec.token)),
        calls_(spec.members.size(), static_cast<size_t>(spec.options.channels)) {}

  absl::StatusOr<GrpcMeshCalls> Run() {
    MeshPlan plan;
    plan.token_hash = token_hash_;
    plan.epoch = spec_.epoch;
    plan.rank = spec_.rank;
    plan.channels = static_cast<uint16_t>(spec_.options.channels);
    plan.both_dial = true;
    for (const MeshMember& member : spec_.members) plan.incarnations.push_back(member.incarnation);
    MUSTER_RETURN_IF_ERROR(rendezvous_.Begin(std::move(plan), calls_.signal));
    auto end = absl::MakeCleanup([this] { rendezvous_.End(); });
    auto give_up = absl::MakeCleanup([this] {
      EndCalls(calls_, grpc::Status(grpc::StatusCode::UNAVAILABLE, "the mesh was not formed"));
    });
    for (Rank r = 0; r < static_cast<Rank>(spec_.members.size()); ++r) {
      if (r != spec_.rank) MUSTER_RETURN_IF_ERROR(DialPeer(r));
    }
    while (true) {
      // First, so that what comes from now on ends the wait below.
      std::vector<uint64_t> none;
      calls_.signal->Take(&none);
      MUSTER_RETURN_IF_ERROR(TakeArrivals());
      std::vector<Rank> missing;
      MUSTER_RETURN_IF_ERROR(CheckCalls(&missing));
      if (missing.empty()) break;
      if (absl::Now() >= deadline_) return LacksConnections(spec_, missing);
      MUSTER_RETURN_IF_ERROR(StartConnected());
    }
    std::move(give_up).Cancel();
    return std::move(calls_);
  }

 private:
  // A connection being opened.
  struct Dial {
    UniqueFd fd;
    Rank rank = -1;
    int channel = 0;  // from 1
  };

  absl::Status DialPeer(Rank r) {
    const auto address = ParseAddress(spec_.members[r].address);
    if (!address.ok()) return CannotConnect(spec_, r, address.status());
    for (int channel = 1; channel <= spec_.options.channels; ++channel) {
      auto fd = StartConnect(*address);
      if (!fd.ok()) return CannotConnect(spec_, r, fd.status());
      dials_.push_back({*std::move(fd), r, channel});
    }
    return absl::OkStatus();
  }

  absl::Status TakeArrivals() {
    MUSTER_ASSIGN_OR_RETURN(std::vector<GrpcArrival> arrivals, rendezvous_.Take());
    for (GrpcArrival& arrival : arrivals) {
      calls_.peers[arrival.rank].incoming[arrival.channel - 1] = std::move(arrival.call);
    }
    return absl::OkStatus();
  }

  // Waits for a moment, or for connections where some are being opened, and starts their calls.
  absl::Status StartConnected() {
    if (dials_.empty()) {
      calls_.signal->AwaitNews(deadline_);
      return absl::OkStatus();
    }
    std::vector<pollfd> polled;
    for (const Dial& dial : dials_) polled.push_back({dial.fd.get(), POLLOUT, 0});
    const absl::Time until = std::min(deadline_, absl::Now() + kConnectTick);
    if (poll(polled.data(), polled.size(), PollTimeoutMs(until)) < 0 && errno != EINTR) {
      return ErrnoStatus(errno, "poll");
    }
    std::vector<Dial> still;
    for (size_t i = 0; i < dials_.size(); ++i) {
      if (polled[i].revents == 0) {
        still.push_back(std::move(dials_[i]));
        continue;
      }
      const Rank rank = dials_[i].rank;
      const absl::Status status = StartCall(std::move(dials_[i]));
      if (!status.ok()) return CannotConnect(spec_, rank, status);
    }
    dials_ = std::move(still);
    return absl::OkStatus();
  }

  absl::Status StartCall(Dial dial) {
    int error = 0;
    socklen_t length = sizeof(error);
    getsockopt(dial.fd.get(), SOL_SOCKET, SO_ERROR, &error, &length);
    if (error != 0) return ErrnoStatus(error, "is its process gone?");
    MUSTER_RETURN_IF_ERROR(ConfigureStream(dial.fd.get(), spec_.options.peer_timeout,
                                           spec_.options.socket_buffer_bytes));
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
    MUSTER_ASSIGN_OR_RETURN(
        calls_.peers[dial.rank].outgoing[dial.channel - 1],
        OutgoingCall::Start(std::move(dial.fd), spec_.members[dial.rank].address,
                            std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()),
                            calls_.signal));
    return absl::OkStatus();
  }

  absl::Status CheckAnswer(const std::string& bytes, Rank rank) const {
    MUSTER_ASSIGN_OR_RETURN(const TcpAnswer answer, DecodeAnswer(BytesOf(bytes)));
    if (answer.epoch != spec_.epoch || answer.incarnation != spec_.members[rank].incarnation) {
      return absl::FailedPreconditionError(absl::StrCat(
          "answered as incarnation ", answer.incarnation.ToString(), " in epoch ", answer.epoch));
    }
    return absl::OkStatus();
  }

  // Fails if one of the calls has. Adds the ranks that are not yet connected both ways to *missing.
  absl::Status CheckCalls(std::vector<Rank>* missing) {
    for (Rank r = 0; r < static_cast<Rank>(spec_.members.size()); ++r) {
      if (r == spec_.rank) continue;
      bool whole = true;
      for (const auto& call : calls_.peers[r].outgoing) {
        const std::optional<grpc::Status> ended =
            call != nullptr ? call->ended() : std::optional<grpc::Status>();
        const std::optional<std::string> answer =
            call != nullptr ? call->answer() : std::optional<std::string>();
        // One that welcomed this rank and has left since is for the mesh to judge.
        if (ended.has_value() && !(ended->ok() && answer.has_value())) {
          return CannotConnect(
              spec_, r, ended->ok() ? absl::UnavailableError("no answer") : FromGrpc(*ended));
        }
        if (answer.has_value()) {
          const absl::Status status = CheckAnswer(*answer, r);
          if (!status.ok()) return CannotConnect(spec_, r, status);
        }
        whole = whole && answer.has_value();
      }
      for (const auto& call : calls_.peers[r].incoming) whole = whole && call != nullptr;
      if (!whole) missing->push_back(r);
    }
    return absl::OkStatus();
  }

  GrpcRendezvous& rendezvous_;
  const MeshSpec& spec_;
  const absl::Time deadline_;
  const uint64_t token_hash_;
  std::vector<Dial> dials_;
  GrpcMeshCalls calls_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Transport>> GrpcTransport::Connect(GrpcListener& listener,
                                                                  MeshSpec spec,
                                                                  absl::Time deadline) {
  if (spec.options.channels == 0) spec.options.channels = 1;
  MUSTER_RETURN_IF_ERROR(ValidateSpec(spec));
  MUSTER_ASSIGN_OR_RETURN(GrpcMeshCalls calls,
                          MeshBuilder(listener.rendezvous(), spec, deadline).Run());
  std::unique_ptr<Transport> transport =
      std::make_unique<GrpcMesh>(std::move(spec), std::move(calls));
  return transport;
}

}  // namespace muster
