#include "collectives/transport/shm/host_mesh.h"

#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "collectives/transport/culprit.h"
#include "collectives/transport/shm/shm_mesh.h"
#include "collectives/transport/shm/shm_window.h"
#include "collectives/transport/tcp_mesh.h"
#include "collectives/transport/wire.h"

namespace muster {
namespace {

// What each rank tells each other about its memory, little-endian.
constexpr size_t kIntroductionBytes = 36;
using Introduction = std::array<std::byte, kIntroductionBytes>;

Introduction Encode(const ShmWindow::Location& location) {
  Introduction bytes;
  std::byte* out = bytes.data();
  out = PutInteger(out, location.nonce);
  out = PutInteger(out, location.pid);
  out = PutInteger(out, location.capacity);
  out = PutInteger(out, location.area);
  PutInteger(out, location.fd);
  return bytes;
}

ShmWindow::Location Decode(const Introduction& bytes) {
  ShmWindow::Location location;
  const std::byte* in = bytes.data();
  in = GetInteger(in, &location.nonce);
  in = GetInteger(in, &location.pid);
  in = GetInteger(in, &location.capacity);
  in = GetInteger(in, &location.area);
  GetInteger(in, &location.fd);
  return location;
}

// Sends `mine` to all and receives theirs, over the control connections, which carry nothing else
// yet.
absl::StatusOr<std::vector<Introduction>> Introduce(const std::vector<TcpPeerSockets>& sockets,
                                                    Rank rank, const Introduction& mine,
                                                    absl::Time deadline) {
  std::vector<Introduction> theirs(sockets.size(), mine);
  for (Rank r = 0; r < static_cast<Rank>(sockets.size()); ++r) {
    if (r == rank) continue;
    // A fresh connection's buffer takes this whole.
    const ssize_t sent = send(sockets[r].control.get(), mine.data(), mine.size(), MSG_NOSIGNAL);
    if (sent != static_cast<ssize_t>(mine.size())) {
      return WithCulprit(ErrnoStatus(errno, absl::StrCat("introducing myself to rank ", r)), r);
    }
  }
  for (Rank r = 0; r < static_cast<Rank>(sockets.size()); ++r) {
    size_t got = 0;
    while (r != rank && got < kIntroductionBytes) {
      pollfd readable = {sockets[r].control.get(), POLLIN, 0};
      if (poll(&readable, 1, PollTimeoutMs(deadline)) == 0) {
        return WithCulprit(
            absl::DeadlineExceededError(absl::StrCat("rank ", r, " did not introduce itself")), r);
      }
      const ssize_t now =
          recv(sockets[r].control.get(), theirs[r].data() + got, kIntroductionBytes - got, 0);
      if (now < 0 && (errno == EINTR || errno == EAGAIN)) continue;
      if (now <= 0) {
        return WithCulprit(
            absl::UnavailableError(absl::StrCat("rank ", r, " is gone: it hung up early")), r);
      }
      got += static_cast<size_t>(now);
    }
  }
  return theirs;
}

absl::StatusOr<uint64_t> RandomNumber() {
  uint64_t number = 0;
  if (getrandom(&number, sizeof(number), 0) != sizeof(number)) {
    return ErrnoStatus(errno, "getrandom");
  }
  return number;
}

// A window into the memory of all, or why not.
struct Attempt {
  std::unique_ptr<ShmWindow> window;
  absl::Status status;  // of this rank or, if there is none of its own, of another
};

// Connected ranks try to map each other. Not OK: the mesh can't be used in any way.
absl::StatusOr<Attempt> MapAll(const std::vector<TcpPeerSockets>& sockets, Rank rank,
                               std::shared_ptr<SharedArena> arena, absl::Time deadline) {
  const int world_size = static_cast<int>(sockets.size());
  Attempt attempt;
  ShmWindow::Location mine;  // of nothing
  if (arena == nullptr) {
    attempt.status = absl::UnavailableError("this rank has no memory to share");
  } else if (world_size > ShmWindow::kMaxRanks) {
    attempt.status = absl::UnavailableError(
        absl::StrCat(world_size, " ranks; at most ", ShmWindow::kMaxRanks, " share memory"));
  } else {
    MUSTER_ASSIGN_OR_RETURN(const uint64_t nonce, RandomNumber());
    auto window = ShmWindow::Create(std::move(arena), rank, world_size, nonce);
    if (window.ok()) {
      attempt.window = *std::move(window);
      mine = attempt.window->location();
    } else {
      attempt.status = window.status();
    }
  }
  MUSTER_ASSIGN_OR_RETURN(const std::vector<Introduction> introductions,
                          Introduce(sockets, rank, Encode(mine), deadline));
  for (Rank r = 0; r < world_size && attempt.status.ok(); ++r) {
    if (r != rank) attempt.status = attempt.window->Map(r, Decode(introductions[r]));
  }
  // All do as all can. Nobody goes on, or away, before all have tried.
  ShmWindow::Location verdict;
  verdict.nonce = attempt.status.ok() ? 1 : 0;
  MUSTER_ASSIGN_OR_RETURN(const std::vector<Introduction> verdicts,
                          Introduce(sockets, rank, Encode(verdict), deadline));
  for (Rank r = 0; r < world_size && attempt.status.ok(); ++r) {
    if (Decode(verdicts[r]).nonce == 1) continue;
    attempt.status = absl::UnavailableError(
        absl::StrCat("rank ", r, " can't share memory with all (its log says why)"));
  }
  if (!attempt.status.ok()) attempt.window.reset();
  return attempt;
}

}  // namespace

absl::StatusOr<HostMesh> ConnectHostMesh(HostMeshKind kind, TcpListener& listener, MeshSpec spec,
                                         std::shared_ptr<SharedArena> arena, absl::Time deadline) {
  MUSTER_ASSIGN_OR_RETURN(std::vector<TcpPeerSockets> sockets,
                          ConnectMeshSockets(listener, spec, deadline));
  MUSTER_ASSIGN_OR_RETURN(Attempt attempt, MapAll(sockets, spec.rank, std::move(arena), deadline));
  if (!attempt.status.ok() && kind == HostMeshKind::kSharedMemory) {
    return absl::UnimplementedError(
        absl::StrCat("the ranks can't share memory: ", std::string(attempt.status.message())));
  }
  HostMesh mesh;
  mesh.why = attempt.status.ok() ? absl::StrCat("all ", sockets.size(), " ranks share a host")
                                 : std::string(attempt.status.message());
  auto messages = std::make_unique<TcpMesh>(std::move(spec), std::move(sockets));
  if (attempt.status.ok()) {
    mesh.transport = std::make_unique<ShmMesh>(std::move(messages), std::move(attempt.window));
  } else {
    mesh.transport = std::move(messages);
  }
  return mesh;
}

}  // namespace muster
