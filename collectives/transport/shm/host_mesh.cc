#include "collectives/transport/shm/host_mesh.h"

#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <iterator>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "base/random.h"
#include "base/status_macros.h"
#include "collectives/transport/mesh_peers.h"
#include "collectives/transport/shm/introductions.h"
#include "collectives/transport/shm/shm_area.h"
#include "collectives/transport/shm/shm_group.h"
#include "collectives/transport/shm/shm_mesh.h"
#include "collectives/transport/shm/two_level_mesh.h"
#include "collectives/transport/tcp_mesh.h"

namespace muster {
namespace {

// A rank's host as the others are told it: equal for two ranks only if they may share memory. 0: it
// shares none.
constexpr uint64_t kSharesNone = 0;

uint64_t HostNumber(const MeshSpec& spec) {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string kernel((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  std::array<char, 64> processes = {};  // "pid:[4026531836]"
  [[maybe_unused]] const ssize_t length =
      readlink("/proc/self/ns/pid", processes.data(), processes.size() - 1);
  const uint64_t number =
      StableHash(absl::StrCat(kernel, "/", processes.data(), "/", spec.members[spec.rank].host));
  return number == kSharesNone ? 1 : number;
}

absl::StatusOr<uint64_t> RandomNumber() {
  uint64_t number = 0;
  if (getrandom(&number, sizeof(number), 0) != sizeof(number)) {
    return ErrnoStatus(errno, "getrandom");
  }
  return number;
}

// What a rank has found out about another's memory.
constexpr uint64_t kMapsAll = 1;  // of its host
constexpr uint64_t kReadsYours = 2;

struct Sharing {
  bool all = false;  // ranks share one host's memory
  bool any = false;  // two ranks share their host's
  // Of this rank's host, itself included.
  std::vector<Rank> ranks;
  std::unique_ptr<ShmGroup> group;  // null: they share no memory
  std::vector<bool> can_read;       // by rank of it: that one reads this one's wherever it lies
  absl::Status reads;               // why this rank does not read all the others' so
  std::string why_not_all;
};

// The ranks with whom this one is to share memory, going by the numbers of hosts: none but itself,
// if it shares none.
std::vector<Rank> RanksOfHost(absl::Span<const uint64_t> numbers, Rank rank) {
  if (numbers[rank] == kSharesNone) return {rank};
  std::vector<Rank> ranks;
  for (Rank r = 0; r < static_cast<Rank>(numbers.size()); ++r) {
    if (numbers[r] == numbers[rank]) ranks.push_back(r);
  }
  return ranks;
}

// This rank's end of a group of sharing.ranks, in which the others' memory can be mapped; null
// where there are others, but none on its host.
absl::StatusOr<std::unique_ptr<ShmGroup>> MakeGroup(const Sharing& sharing, Rank rank,
                                                    int world_size,
                                                    std::shared_ptr<SharedArena> arena) {
  if (arena == nullptr) return absl::UnavailableError("this rank has no memory to share");
  const int size = static_cast<int>(sharing.ranks.size());
  if (size == 1 && world_size > 1) return std::unique_ptr<ShmGroup>();
  if (size > kMaxShmRanks) {
    return absl::UnavailableError(
        absl::StrCat(size, " ranks on this host; at most ", kMaxShmRanks, " share memory"));
  }
  MUSTER_ASSIGN_OR_RETURN(const uint64_t nonce, RandomNumber());
  const auto own = std::find(sharing.ranks.begin(), sharing.ranks.end(), rank);
  return ShmGroup::Create(std::move(arena), static_cast<Rank>(own - sharing.ranks.begin()), size,
                          nonce);
}

// By number, the ranks of each host on which all have said that they map each other.
std::map<uint64_t, std::vector<Rank>> HostsThatShare(absl::Span<const uint64_t> numbers,
                                                     absl::Span<const uint64_t> verdicts) {
  std::map<uint64_t, std::vector<Rank>> hosts;
  for (size_t r = 0; r < numbers.size(); ++r) hosts[numbers[r]].push_back(static_cast<Rank>(r));
  hosts.erase(kSharesNone);
  for (size_t r = 0; r < numbers.size(); ++r) {
    if ((verdicts[r] & kMapsAll) == 0) hosts.erase(numbers[r]);
  }
  return hosts;
}

// Connected ranks try to map those of their host; all do as all of it can. Not OK: the mesh can't
// be used in any way.
// Why a rank that has memory to share does not share it with this one.
std::string WhyApart(const MeshSpec& spec, Rank other) {
  const std::string& host = spec.members[other].host;
  if (host != spec.members[spec.rank].host) {
    return absl::StrCat("rank ", other, " runs on another host");
  }
  return absl::StrCat("rank ", other, " runs under another kernel or in another process namespace",
                      host.empty() ? "" : ", though on the same host ", host);
}

absl::StatusOr<Sharing> FindSharing(const std::vector<TcpPeerSockets>& sockets,
                                    const MeshSpec& spec, std::shared_ptr<SharedArena> arena,
                                    const HostMeshOptions& options, absl::Time deadline) {
  const Rank rank = spec.rank;
  MUSTER_ASSIGN_OR_RETURN(
      const std::vector<uint64_t> numbers,
      ExchangeNumbers(sockets, rank, arena == nullptr ? kSharesNone : HostNumber(spec), deadline));
  Sharing sharing;
  sharing.ranks = RanksOfHost(numbers, rank);
  const int size = static_cast<int>(sharing.ranks.size());
  auto group = MakeGroup(sharing, rank, static_cast<int>(numbers.size()), std::move(arena));
  absl::Status status = group.status();
  MUSTER_ASSIGN_OR_RETURN(
      const std::vector<ShmGroup::Location> locations,
      ExchangeLocations(
          sockets, rank,
          group.ok() && *group != nullptr ? (*group)->location() : ShmGroup::Location(), deadline));
  for (Rank i = 0; i < size && status.ok(); ++i) {
    const Rank r = sharing.ranks[i];
    if (r != rank) status = Annotate((*group)->Map(i, locations[r]), absl::StrCat("rank ", r));
  }
  // Nobody goes on, or away, before all have tried.
  std::vector<uint64_t> verdicts(numbers.size(), status.ok() ? kMapsAll : 0);
  for (Rank i = 0; i < size && status.ok(); ++i) {
    const Rank r = sharing.ranks[i];
    if (r == rank) continue;
    const absl::Status reads = options.read_unregistered
                                   ? (*group)->TryToRead(i)
                                   : absl::UnavailableError("an option forbids reading it");
    if (reads.ok()) verdicts[r] |= kReadsYours;
    if (sharing.reads.ok()) sharing.reads = reads;
  }
  MUSTER_ASSIGN_OR_RETURN(verdicts, ExchangeNumbers(sockets, rank, verdicts, deadline));
  for (const Rank r : sharing.ranks) {
    sharing.can_read.push_back((verdicts[r] & kReadsYours) != 0);
    if (status.ok() && (verdicts[r] & kMapsAll) == 0) {
      status = absl::UnavailableError(
          absl::StrCat("rank ", r, " can't share memory with its host's (its log says why)"));
    }
  }
  // A rank that was killed meanwhile is no reason never to share memory.
  for (Rank i = 0; i < size && !status.ok() && group.ok(); ++i) {
    if (sharing.ranks[i] != rank && (*group)->HasEnded(i)) {
      return PeerIsGone(spec, sharing.ranks[i], "its process has ended");
    }
  }
  if (status.ok()) sharing.group = *std::move(group);
  for (const auto& [number, ranks] : HostsThatShare(numbers, verdicts)) {
    sharing.all = sharing.all || ranks.size() == numbers.size();
    sharing.any = sharing.any || ranks.size() > 1;
  }
  for (Rank r = 0; r < static_cast<Rank>(numbers.size()) && status.ok(); ++r) {
    if (numbers[r] == numbers[rank]) continue;
    status = absl::UnavailableError(numbers[r] == kSharesNone
                                        ? absl::StrCat("rank ", r, " has no memory to share")
                                        : WhyApart(spec, r));
  }
  sharing.why_not_all = std::string(status.message());
  return sharing;
}

std::unique_ptr<ShmMesh> MakeShmMesh(MeshSpec spec, std::vector<TcpPeerSockets>& sockets,
                                     Sharing& sharing) {
  // Data does not go by TCP: of the sockets only the control connections are kept.
  std::vector<UniqueFd> control;
  for (const Rank r : sharing.ranks) {
    control.push_back(std::move(sockets[r].control));
    sockets[r].data.clear();
  }
  return std::make_unique<ShmMesh>(std::move(spec), std::move(control), std::move(sharing.group),
                                   std::move(sharing.can_read));
}

// The mesh of this rank's host alone.
MeshSpec SpecOfHost(const MeshSpec& spec, const std::vector<Rank>& ranks) {
  MeshSpec part = spec;
  part.members.clear();
  part.ranks_in_whole = ranks;
  for (const Rank r : ranks) {
    if (r == spec.rank) part.rank = static_cast<Rank>(part.members.size());
    part.members.push_back(spec.members[r]);
  }
  return part;
}

std::string ExplainTwoLevels(const Sharing& sharing, size_t world_size) {
  if (sharing.group == nullptr) {
    return absl::StrCat("this rank reaches all over TCP (", sharing.why_not_all,
                        "); others share hosts");
  }
  return absl::StrCat("ranks ", absl::StrJoin(sharing.ranks, ", "),
                      " share a host; TCP leads to the other ", world_size - sharing.ranks.size(),
                      " (", sharing.why_not_all, ")");
}

}  // namespace

absl::StatusOr<HostMesh> ConnectHostMesh(HostMeshKind kind, TcpListener& listener, MeshSpec spec,
                                         std::shared_ptr<SharedArena> arena, absl::Time deadline,
                                         const HostMeshOptions& options) {
  MUSTER_ASSIGN_OR_RETURN(std::vector<TcpPeerSockets> sockets,
                          ConnectMeshSockets(listener, spec, deadline));
  MUSTER_ASSIGN_OR_RETURN(Sharing sharing,
                          FindSharing(sockets, spec, std::move(arena), options, deadline));
  if (!sharing.all && kind == HostMeshKind::kSharedMemory) {
    return absl::UnimplementedError(
        absl::StrCat("the ranks can't share memory: ", sharing.why_not_all));
  }
  HostMesh mesh;
  if (!sharing.all && !sharing.any) {
    mesh.why = sharing.why_not_all;
    mesh.transport = std::make_unique<TcpMesh>(std::move(spec), std::move(sockets));
    return mesh;
  }
  const std::string staged = sharing.reads.ok()
                                 ? ""
                                 : absl::StrCat("; messages from unregistered memory are staged: ",
                                                std::string(sharing.reads.message()));
  if (sharing.all) {
    mesh.why = sockets.size() == 1
                   ? "there is one rank"
                   : absl::StrCat("all ", sockets.size(), " ranks share a host", staged);
    mesh.transport = MakeShmMesh(std::move(spec), sockets, sharing);
    return mesh;
  }
  mesh.why = absl::StrCat(ExplainTwoLevels(sharing, sockets.size()), staged);
  std::unique_ptr<ShmMesh> host;
  if (sharing.group != nullptr) {
    host = MakeShmMesh(SpecOfHost(spec, sharing.ranks), sockets, sharing);
  }
  mesh.transport = std::make_unique<TwoLevelMesh>(
      std::move(host), sharing.ranks,
      std::make_unique<TcpMesh>(std::move(spec), std::move(sockets)));
  return mesh;
}

}  // namespace muster
