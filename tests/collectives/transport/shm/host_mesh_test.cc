#include "collectives/transport/shm/host_mesh.h"

#include <algorithm>
#include <utility>

#include "tests/collectives/transport/mesh_fixture.h"

namespace muster {
namespace {

// Connects three ranks; those in `without` have no memory to share.
std::vector<absl::StatusOr<HostMesh>> Connect(const std::vector<Rank>& without,
                                              HostMeshKind kind = HostMeshKind::kBest,
                                              const std::vector<Rank>& without_reading = {}) {
  constexpr int kRanks = 3;
  std::vector<std::unique_ptr<TcpListener>> listeners;
  MeshSpec spec;
  spec.token = "test";
  spec.epoch = 1;
  for (Rank r = 0; r < kRanks; ++r) {
    listeners.push_back(TcpListener::Create().value());
    spec.members.push_back(
        {Incarnation{static_cast<uint64_t>(1 + r)}, listeners.back()->address()});
  }
  std::vector<absl::StatusOr<HostMesh>> meshes(kRanks);
  RunRanks(kRanks, [&](Rank r) {
    MeshSpec mine = spec;
    mine.rank = r;
    std::shared_ptr<SharedArena> arena;
    if (std::find(without.begin(), without.end(), r) == without.end()) {
      arena = SharedArena::Create().value();
    }
    HostMeshOptions options;
    options.read_unregistered =
        std::find(without_reading.begin(), without_reading.end(), r) == without_reading.end();
    meshes[r] =
        ConnectHostMesh(kind, *listeners[r], mine, arena, absl::Now() + absl::Seconds(20), options);
  });
  return meshes;
}

TEST(HostMeshTest, RanksThatCanShareMemoryDo) {
  for (const auto& mesh : Connect({})) {
    ASSERT_TRUE(mesh.ok()) << mesh.status();
    EXPECT_EQ(mesh->transport->name(), "shm");
    EXPECT_EQ(mesh->why, "all 3 ranks share a host");
  }
}

TEST(HostMeshTest, AllUseTcpIfOneCannotAndEachSaysWhy) {
  const auto meshes = Connect({1});
  for (const auto& mesh : meshes) {
    ASSERT_TRUE(mesh.ok()) << mesh.status();
    EXPECT_EQ(mesh->transport->name(), "tcp");
  }
  EXPECT_EQ(meshes[1]->why, "this rank has no memory to share");
  EXPECT_THAT(meshes[0]->why, testing::HasSubstr("rank 1"));
  // The mesh works.
  const uint8_t sent = 7;
  uint8_t got = 0;
  meshes[0]->transport->PostSend(
      2, 5, absl::MakeConstSpan(reinterpret_cast<const std::byte*>(&sent), 1), 1);
  meshes[2]->transport->PostReceive(0, 5, absl::MakeSpan(reinterpret_cast<std::byte*>(&got), 1), 2);
  std::vector<uint64_t> completed;
  while (completed.empty()) {
    ASSERT_TRUE(
        meshes[0]->transport->Poll(absl::InfinitePast(), absl::ZeroDuration(), &completed).ok());
    completed.clear();
    ASSERT_TRUE(
        meshes[2]->transport->Poll(absl::InfinitePast(), absl::ZeroDuration(), &completed).ok());
  }
  EXPECT_EQ(got, 7);
}

TEST(HostMeshTest, ARankThatMayNotReadOthersMemorySaysSoAndIsSentToAllTheSame) {
  const auto meshes = Connect({}, HostMeshKind::kSharedMemory, /*without_reading=*/{1});
  for (const auto& mesh : meshes) ASSERT_TRUE(mesh.ok()) << mesh.status();
  EXPECT_EQ(meshes[0]->why, "all 3 ranks share a host");
  EXPECT_THAT(meshes[1]->why, testing::HasSubstr("unregistered memory are staged"));
  const std::vector<std::byte> sent(1 << 20, std::byte{7});
  for (const Rank to : {1, 2}) {
    std::vector<std::byte> got(sent.size());
    meshes[0]->transport->PostSend(to, 5, sent, 1);
    meshes[to]->transport->PostReceive(0, 5, absl::MakeSpan(got), 2);
    std::vector<uint64_t> sender, receiver;
    while (sender.empty() || receiver.empty()) {
      for (const auto& [rank, completed] : {std::pair(0, &sender), std::pair(to, &receiver)}) {
        ASSERT_TRUE(meshes[rank]->transport->Poll(absl::InfinitePast(), {}, completed).ok());
      }
    }
    EXPECT_EQ(got, sent);
  }
}

TEST(HostMeshTest, SharedMemoryAskedForByNameIsRefusedToAllIfOneCannot) {
  for (const auto& mesh : Connect({2}, HostMeshKind::kSharedMemory)) {
    EXPECT_EQ(mesh.status().code(), absl::StatusCode::kUnimplemented) << mesh.status();
    EXPECT_THAT(std::string(mesh.status().message()), testing::HasSubstr("can't share memory"));
  }
}

}  // namespace
}  // namespace muster
