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
#include "collectives/transport/shm/shm_area.h"
#include "collectives/transport/shm/shm_group.h"
#include "collectives/transport/shm/shm_mesh.h"
#include "collectives/transport/tcp_mesh.h"
#include "collectives/transport/wire.h"

namespace muster {
namespace {

// What each rank tells each other about its memory, little-endian.
constexpr size_t kIntroductionBytes = 44;
using Introduction = std::array<std::byte, kIntroductionBytes>;

Introduction Encode(const ShmGroup::Location& location) {
  Introduction bytes;
  std::byte* out = bytes.data();
  out = PutInteger(out, location.nonce);
  out = PutInteger(out, location.pid);
  out = PutInteger(out, location.capacity);
  out = PutInteger(out, location.area);
  out = PutInteger(out, location.address);
  PutInteger(out, location.fd);
  return bytes;
}

ShmGroup::Location Decode(const Introduction& bytes) {
  ShmGroup::Location location;
  const std::byte* in = bytes.data();
  in = GetInteger(in, &location.nonce);
  in = GetInteger(in, &location.pid);
  in = GetInteger(in, &location.capacity);
  in = GetInteger(in, &location.area);
  in = GetInteger(in, &location.address);
  GetInteger(in, &location.fd);
  return location;
}

// Sends each rank its element of `mine` and receives theirs, over the control connections, which
// carry nothing else yet.
absl::StatusOr<std::vector<Introduction>> Introduce(const std::vector<TcpPeerSockets>& sockets,
                                                    Rank rank,
                                                    const std::vector<Introduction>& mine,
                                                    absl::Time deadline) {
  std::vector<Introduction> theirs(sockets.size());
  for (Rank r = 0; r < static_cast<Rank>(sockets.size()); ++r) {
    if (r == rank) continue;
    // A fresh connection's buffer takes this whole.
    const ssize_t sent =
        send(sockets[r].control.get(), mine[r].data(), kIntroductionBytes, MSG_NOSIGNAL);
    if (sent != static_cast<ssize_t>(kIntroductionBytes)) {
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

// What a rank has found out about another's memory.
constexpr uint64_t kMapsAll = 1;
constexpr uint64_t kReadsYours = 2;

// The memory of all, or why not.
struct Attempt {
  std::unique_ptr<ShmGroup> group;
  absl::Status status;         // of this rank or, if there is none of its own, of another
  std::vector<bool> can_read;  // by rank: it reads this one's memory wherever it lies
  absl::Status reads;          // why this rank does not read all the others' so
};

// Connected ranks try to map each other. Not OK: the mesh can't be used in any way.
absl::StatusOr<Attempt> MapAll(const std::vector<TcpPeerSockets>& sockets, Rank rank,
                               std::shared_ptr<SharedArena> arena, const HostMeshOptions& options,
                               absl::Time deadline) {
  const int world_size = static_cast<int>(sockets.size());
  const auto to_all = [&sockets](const ShmGroup::Location& location) {
    return std::vector<Introduction>(sockets.size(), Encode(location));
  };
  Attempt attempt;
  attempt.can_read.resize(sockets.size());
  ShmGroup::Location mine;  // of nothing
  if (arena == nullptr) {
    attempt.status = absl::UnavailableError("this rank has no memory to share");
  } else if (world_size > kMaxShmRanks) {
    attempt.status = absl::UnavailableError(
        absl::StrCat(world_size, " ranks; at most ", kMaxShmRanks, " share memory"));
  } else {
    MUSTER_ASSIGN_OR_RETURN(const uint64_t nonce, RandomNumber());
    auto group = ShmGroup::Create(std::move(arena), rank, world_size, nonce);
    if (group.ok()) {
      attempt.group = *std::move(group);
      mine = attempt.group->location();
    } else {
      attempt.status = group.status();
    }
  }
  MUSTER_ASSIGN_OR_RETURN(const std::vector<Introduction> introductions,
                          Introduce(sockets, rank, to_all(mine), deadline));
  for (Rank r = 0; r < world_size && attempt.status.ok(); ++r) {
    if (r != rank) attempt.status = attempt.group->Map(r, Decode(introductions[r]));
  }
  // All do as all can. Nobody goes on, or away, before all have tried.
  std::vector<Introduction> mine_of_each(sockets.size());
  for (Rank r = 0; r < world_size; ++r) {
    ShmGroup::Location verdict;
    if (attempt.status.ok()) {
      const absl::Status reads = !options.read_unregistered
                                     ? absl::UnavailableError("an option forbids reading it")
                                 : r == rank ? absl::OkStatus()
                                             : attempt.group->TryToRead(r);
      verdict.nonce = kMapsAll | (reads.ok() ? kReadsYours : 0);
      if (attempt.reads.ok()) attempt.reads = reads;
    }
    mine_of_each[r] = Encode(verdict);
  }
  MUSTER_ASSIGN_OR_RETURN(const std::vector<Introduction> verdicts,
                          Introduce(sockets, rank, mine_of_each, deadline));
  for (Rank r = 0; r < world_size && attempt.status.ok(); ++r) {
    if (r == rank) continue;
    const uint64_t verdict = Decode(verdicts[r]).nonce;
    attempt.can_read[r] = (verdict & kReadsYours) != 0;
    if ((verdict & kMapsAll) != 0) continue;
    attempt.status = absl::UnavailableError(
        absl::StrCat("rank ", r, " can't share memory with all (its log says why)"));
  }
  if (!attempt.status.ok()) attempt.group.reset();
  return attempt;
}

}  // namespace

absl::StatusOr<HostMesh> ConnectHostMesh(HostMeshKind kind, TcpListener& listener, MeshSpec spec,
                                         std::shared_ptr<SharedArena> arena, absl::Time deadline,
                                         const HostMeshOptions& options) {
  MUSTER_ASSIGN_OR_RETURN(std::vector<TcpPeerSockets> sockets,
                          ConnectMeshSockets(listener, spec, deadline));
  MUSTER_ASSIGN_OR_RETURN(Attempt attempt,
                          MapAll(sockets, spec.rank, std::move(arena), options, deadline));
  if (!attempt.status.ok() && kind == HostMeshKind::kSharedMemory) {
    return absl::UnimplementedError(
        absl::StrCat("the ranks can't share memory: ", std::string(attempt.status.message())));
  }
  HostMesh mesh;
  if (!attempt.status.ok()) {
    mesh.why = std::string(attempt.status.message());
    mesh.transport = std::make_unique<TcpMesh>(std::move(spec), std::move(sockets));
    return mesh;
  }
  mesh.why = absl::StrCat("all ", sockets.size(), " ranks share a host");
  if (!attempt.reads.ok()) {
    absl::StrAppend(&mesh.why, "; messages from unregistered memory are staged: ",
                    std::string(attempt.reads.message()));
  }
  // Data does not go by TCP: of the sockets only the control connections are kept.
  std::vector<UniqueFd> control;
  for (TcpPeerSockets& peer : sockets) control.push_back(std::move(peer.control));
  mesh.transport = std::make_unique<ShmMesh>(std::move(spec), std::move(control),
                                             std::move(attempt.group), std::move(attempt.can_read));
  return mesh;
}

}  // namespace muster
