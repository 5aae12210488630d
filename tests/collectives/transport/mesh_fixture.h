// Makes whole meshes inside one test process, each rank's end to be driven by a thread of the test.
#ifndef MUSTER_TESTS_COLLECTIVES_TRANSPORT_MESH_FIXTURE_H_
#define MUSTER_TESTS_COLLECTIVES_TRANSPORT_MESH_FIXTURE_H_

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "collectives/transport/forwarding_transport.h"
#include "collectives/transport/grpc/grpc_transport.h"
#include "collectives/transport/in_process_transport.h"
#include "collectives/transport/ofi/ofi_transport.h"
#include "collectives/transport/shm/host_mesh.h"
#include "collectives/transport/tcp_transport.h"
#include "tests/collectives/transport/hostile_transport.h"
#include "tests/collectives/transport/registering_transport.h"

namespace muster {

enum class MeshKind {
  kInProcess,
  kTcp,
  kTcpThreeChannels,
  kTcpIpv6,
  kGrpc,
  kGrpcThreeChannels,
  kOfi,
  kOfiTwoRails,
  kOfiWithoutImmediates,
  kHostile,
  kShm,            // from memory that is not registered
  kShmRegistered,  // every message is sent from registered memory
  kShmStaged,      // ranks may not read each other's memory
  kTwoLevel,       // hosts in turn: even and odd ranks
  // Ranks that are all on one host or on one each, of a mesh that has another rank, which does
  // nothing: on another host, or on that of rank 0.
  kTwoLevelOneHost,
  kTwoLevelOwnHosts,
};

inline constexpr MeshKind kAllMeshKinds[] = {MeshKind::kInProcess,
                                             MeshKind::kTcp,
                                             MeshKind::kTcpThreeChannels,
                                             MeshKind::kTcpIpv6,
                                             MeshKind::kGrpc,
                                             MeshKind::kGrpcThreeChannels,
                                             MeshKind::kOfi,
                                             MeshKind::kOfiTwoRails,
                                             MeshKind::kOfiWithoutImmediates,
                                             MeshKind::kHostile,
                                             MeshKind::kShm,
                                             MeshKind::kShmRegistered,
                                             MeshKind::kShmStaged,
                                             MeshKind::kTwoLevel,
                                             MeshKind::kTwoLevelOneHost,
                                             MeshKind::kTwoLevelOwnHosts};

inline std::string NameOf(MeshKind kind) {
  switch (kind) {
    case MeshKind::kInProcess:
      return "InProcess";
    case MeshKind::kTcp:
      return "Tcp";
    case MeshKind::kTcpThreeChannels:
      return "TcpThreeChannels";
    case MeshKind::kTcpIpv6:
      return "TcpIpv6";
    case MeshKind::kGrpc:
      return "Grpc";
    case MeshKind::kGrpcThreeChannels:
      return "GrpcThreeChannels";
    case MeshKind::kOfi:
      return "Ofi";
    case MeshKind::kOfiTwoRails:
      return "OfiTwoRails";
    case MeshKind::kOfiWithoutImmediates:
      return "OfiWithoutImmediates";
    case MeshKind::kHostile:
      return "Hostile";
    case MeshKind::kShm:
      return "Shm";
    case MeshKind::kShmRegistered:
      return "ShmRegistered";
    case MeshKind::kShmStaged:
      return "ShmStaged";
    case MeshKind::kTwoLevel:
      return "TwoLevel";
    case MeshKind::kTwoLevelOneHost:
      return "TwoLevelOneHost";
    case MeshKind::kTwoLevelOwnHosts:
      return "TwoLevelOwnHosts";
  }
  return "";
}

// Runs body(rank) in a thread per rank.
inline void RunRanks(int world_size, const std::function<void(Rank)>& body) {
  std::vector<std::thread> threads;
  for (Rank r = 0; r < world_size; ++r) threads.emplace_back(body, r);
  for (std::thread& thread : threads) thread.join();
}

inline bool IsGrpc(MeshKind kind) {
  return kind == MeshKind::kGrpc || kind == MeshKind::kGrpcThreeChannels;
}

// Where a process lets its peers in.
struct MeshDoor {
  std::unique_ptr<TcpListener> tcp;
  std::unique_ptr<GrpcListener> grpc;  // instead of the other
  const std::string& address() const { return grpc != nullptr ? grpc->address() : tcp->address(); }
};

inline absl::StatusOr<MeshDoor> OpenDoor(MeshKind kind) {
  MeshDoor door;
  if (IsGrpc(kind)) {
    auto listener = GrpcListener::Serve();
    if (!listener.ok()) return listener.status();
    door.grpc = *std::move(listener);
    return door;
  }
  TcpListenerOptions options;
  options.bind = kind == MeshKind::kTcpIpv6 ? "::1" : "127.0.0.1";
  auto listener = TcpListener::Create(options);
  if (!listener.ok()) return listener.status();
  door.tcp = *std::move(listener);
  return door;
}

// A mesh's ends; doors stay open with it.
struct TestMesh {
  std::vector<MeshDoor> doors;
  std::vector<std::shared_ptr<SharedArena>> arenas;  // by rank, where memory is shared
  std::vector<std::unique_ptr<Transport>> ends;
  std::unique_ptr<Transport> idle_end;
};

inline bool IsOfi(MeshKind kind) {
  return kind == MeshKind::kOfi || kind == MeshKind::kOfiTwoRails ||
         kind == MeshKind::kOfiWithoutImmediates;
}

inline bool IsShm(MeshKind kind) {
  return kind == MeshKind::kShm || kind == MeshKind::kShmRegistered || kind == MeshKind::kShmStaged;
}

inline bool HasIdleRank(MeshKind kind) {
  return kind == MeshKind::kTwoLevelOneHost || kind == MeshKind::kTwoLevelOwnHosts;
}

inline bool SharesMemory(MeshKind kind) {
  return IsShm(kind) || kind == MeshKind::kTwoLevel || HasIdleRank(kind);
}

// MeshMember::host of a rank; `ranks` include the idle one, which is the last.
inline std::string HostOf(MeshKind kind, Rank rank, int ranks) {
  if (kind == MeshKind::kTwoLevel) return rank % 2 == 0 ? "even" : "odd";
  const bool idle = rank == ranks - 1;
  if (kind == MeshKind::kTwoLevelOneHost) return idle ? "other" : "one";
  if (kind == MeshKind::kTwoLevelOwnHosts) return absl::StrCat("host-", idle ? 0 : rank);
  return "";
}

// The first ranks of a mesh, as if there were no more.
class FirstRanks : public ForwardingTransport {
 public:
  FirstRanks(std::unique_ptr<Transport> base, int world_size)
      : ForwardingTransport(std::move(base)), world_size_(world_size) {}
  int world_size() const override { return world_size_; }
  int local_world_size() const override { return world_size_; }

 private:
  const int world_size_;
};

// One end over `listener`. `arena` is for shared memory.
inline absl::StatusOr<std::unique_ptr<Transport>> ConnectEnd(MeshKind kind, TcpListener& listener,
                                                             const MeshSpec& spec,
                                                             std::shared_ptr<SharedArena> arena,
                                                             absl::Time deadline) {
  if (IsShm(kind)) {
    HostMeshOptions options;
    options.read_unregistered = kind != MeshKind::kShmStaged;
    auto mesh =
        ConnectHostMesh(HostMeshKind::kSharedMemory, listener, spec, arena, deadline, options);
    if (!mesh.ok() || kind != MeshKind::kShmRegistered) {
      return mesh.ok() ? std::move(mesh->transport)
                       : absl::StatusOr<std::unique_ptr<Transport>>(mesh.status());
    }
    return std::make_unique<RegisteringTransport>(std::move(mesh->transport), std::move(arena));
  }
  if (SharesMemory(kind)) {
    auto mesh = ConnectHostMesh(HostMeshKind::kBest, listener, spec, std::move(arena), deadline);
    if (!mesh.ok()) return mesh.status();
    return std::move(mesh->transport);
  }
  if (!IsOfi(kind)) return TcpTransport::Connect(listener, spec, deadline);
  OfiOptions options;
  if (kind == MeshKind::kOfiTwoRails) options.rails = {"lo", "127.0.0.1"};
  options.use_immediate_data = kind != MeshKind::kOfiWithoutImmediates;
  return OfiTransport::Connect(listener, spec, options, deadline);
}

inline absl::StatusOr<std::unique_ptr<Transport>> ConnectEnd(MeshKind kind, MeshDoor& door,
                                                             const MeshSpec& spec,
                                                             std::shared_ptr<SharedArena> arena,
                                                             absl::Time deadline) {
  if (IsGrpc(kind)) return GrpcTransport::Connect(*door.grpc, spec, deadline);
  return ConnectEnd(kind, *door.tcp, spec, std::move(arena), deadline);
}

inline TestMesh MakeMesh(MeshKind kind, int world_size, TransportLimits limits = {}) {
  TestMesh mesh;
  if (kind == MeshKind::kInProcess) {
    mesh.ends = MakeInProcessMesh(world_size, limits);
    return mesh;
  }
  if (kind == MeshKind::kHostile) {
    mesh.ends = MakeHostileMesh(world_size, /*seed=*/1, limits).ends;
    return mesh;
  }
  MeshSpec spec;
  spec.token = "test";
  spec.epoch = 1;
  const bool three = kind == MeshKind::kTcpThreeChannels || kind == MeshKind::kGrpcThreeChannels;
  spec.options.channels = three ? 3 : 1;
  spec.options.limits = limits;
  const int ranks = world_size + (HasIdleRank(kind) ? 1 : 0);
  for (Rank r = 0; r < ranks; ++r) {
    auto door = OpenDoor(kind);
    EXPECT_TRUE(door.ok()) << door.status();
    mesh.doors.push_back(*std::move(door));
    spec.members.push_back({.incarnation = Incarnation{static_cast<uint64_t>(100 + r)},
                            .address = mesh.doors.back().address(),
                            .host = HostOf(kind, r, ranks)});
  }
  mesh.ends.resize(static_cast<size_t>(ranks));
  for (Rank r = 0; SharesMemory(kind) && r < ranks; ++r) {
    auto arena = SharedArena::Create();
    EXPECT_TRUE(arena.ok()) << arena.status();
    mesh.arenas.push_back(*std::move(arena));
  }
  RunRanks(ranks, [&](Rank r) {
    MeshSpec mine = spec;
    mine.rank = r;
    auto end = ConnectEnd(kind, mesh.doors[r], mine, SharesMemory(kind) ? mesh.arenas[r] : nullptr,
                          absl::Now() + absl::Seconds(30));
    EXPECT_TRUE(end.ok()) << end.status();
    if (end.ok()) mesh.ends[r] = *std::move(end);
  });
  if (!HasIdleRank(kind)) return mesh;
  mesh.idle_end = std::move(mesh.ends.back());
  mesh.ends.pop_back();
  for (std::unique_ptr<Transport>& end : mesh.ends) {
    if (end != nullptr) end = std::make_unique<FirstRanks>(std::move(end), world_size);
  }
  return mesh;
}

}  // namespace muster

#endif  // MUSTER_TESTS_COLLECTIVES_TRANSPORT_MESH_FIXTURE_H_
