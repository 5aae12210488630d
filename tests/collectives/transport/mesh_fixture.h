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
#include "collectives/transport/in_process_transport.h"
#include "collectives/transport/ofi/ofi_transport.h"
#include "collectives/transport/shm/host_mesh.h"
#include "collectives/transport/tcp_transport.h"
#include "tests/collectives/transport/hostile_transport.h"

namespace muster {

enum class MeshKind {
  kInProcess,
  kTcp,
  kTcpThreeChannels,
  kTcpIpv6,
  kOfi,
  kOfiTwoRails,
  kOfiWithoutImmediates,
  kHostile,
  kShm,
};

inline constexpr MeshKind kAllMeshKinds[] = {MeshKind::kInProcess,
                                             MeshKind::kTcp,
                                             MeshKind::kTcpThreeChannels,
                                             MeshKind::kTcpIpv6,
                                             MeshKind::kOfi,
                                             MeshKind::kOfiTwoRails,
                                             MeshKind::kOfiWithoutImmediates,
                                             MeshKind::kHostile,
                                             MeshKind::kShm};

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
  }
  return "";
}

// Runs body(rank) in a thread per rank.
inline void RunRanks(int world_size, const std::function<void(Rank)>& body) {
  std::vector<std::thread> threads;
  for (Rank r = 0; r < world_size; ++r) threads.emplace_back(body, r);
  for (std::thread& thread : threads) thread.join();
}

// A mesh's ends; listeners stay alive with it.
struct TestMesh {
  std::vector<std::unique_ptr<TcpListener>> listeners;
  std::vector<std::shared_ptr<SharedArena>> arenas;  // by rank, of kShm
  std::vector<std::unique_ptr<Transport>> ends;
};

inline bool IsOfi(MeshKind kind) {
  return kind == MeshKind::kOfi || kind == MeshKind::kOfiTwoRails ||
         kind == MeshKind::kOfiWithoutImmediates;
}

// One end over `listener`. `arena` is for kShm.
inline absl::StatusOr<std::unique_ptr<Transport>> ConnectEnd(MeshKind kind, TcpListener& listener,
                                                             const MeshSpec& spec,
                                                             std::shared_ptr<SharedArena> arena,
                                                             absl::Time deadline) {
  if (kind == MeshKind::kShm) {
    auto mesh =
        ConnectHostMesh(HostMeshKind::kSharedMemory, listener, spec, std::move(arena), deadline);
    if (!mesh.ok()) return mesh.status();
    return std::move(mesh->transport);
  }
  if (!IsOfi(kind)) return TcpTransport::Connect(listener, spec, deadline);
  OfiOptions options;
  if (kind == MeshKind::kOfiTwoRails) options.rails = {"lo", "127.0.0.1"};
  options.use_immediate_data = kind != MeshKind::kOfiWithoutImmediates;
  return OfiTransport::Connect(listener, spec, options, deadline);
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
  spec.options.channels = kind == MeshKind::kTcpThreeChannels ? 3 : 1;
  spec.options.limits = limits;
  for (Rank r = 0; r < world_size; ++r) {
    TcpListenerOptions options;
    options.bind = kind == MeshKind::kTcpIpv6 ? "::1" : "127.0.0.1";
    auto listener = TcpListener::Create(options);
    EXPECT_TRUE(listener.ok()) << listener.status();
    mesh.listeners.push_back(*std::move(listener));
    spec.members.push_back(
        {Incarnation{static_cast<uint64_t>(100 + r)}, mesh.listeners.back()->address()});
  }
  mesh.ends.resize(static_cast<size_t>(world_size));
  for (Rank r = 0; kind == MeshKind::kShm && r < world_size; ++r) {
    auto arena = SharedArena::Create();
    EXPECT_TRUE(arena.ok()) << arena.status();
    mesh.arenas.push_back(*std::move(arena));
  }
  RunRanks(world_size, [&](Rank r) {
    MeshSpec mine = spec;
    mine.rank = r;
    auto end = ConnectEnd(kind, *mesh.listeners[r], mine,
                          kind == MeshKind::kShm ? mesh.arenas[r] : nullptr,
                          absl::Now() + absl::Seconds(30));
    EXPECT_TRUE(end.ok()) << end.status();
    if (end.ok()) mesh.ends[r] = *std::move(end);
  });
  return mesh;
}

}  // namespace muster

#endif  // MUSTER_TESTS_COLLECTIVES_TRANSPORT_MESH_FIXTURE_H_
