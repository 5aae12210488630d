#include "collectives/transport/shm/host_mesh.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "collectives/transport/culprit.h"
#include "tests/collectives/transport/mesh_fixture.h"

namespace muster {
namespace {

constexpr int kRanks = 3;

// Connects three ranks; those in `without` have no memory to share.
std::vector<absl::StatusOr<HostMesh>> Connect(
    const std::vector<Rank>& without, HostMeshKind kind = HostMeshKind::kBest,
    const std::vector<Rank>& without_reading = {},
    const std::vector<std::string>& hosts = std::vector<std::string>(kRanks)) {
  std::vector<std::unique_ptr<TcpListener>> listeners;
  MeshSpec spec;
  spec.token = "test";
  spec.epoch = 1;
  for (Rank r = 0; r < kRanks; ++r) {
    listeners.push_back(TcpListener::Create().value());
    spec.members.push_back(
        {Incarnation{static_cast<uint64_t>(1 + r)}, listeners.back()->address(), hosts[r]});
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

// Sends a large message from one rank to another.
void ExpectArrives(const std::vector<absl::StatusOr<HostMesh>>& meshes, Rank from, Rank to) {
  const std::vector<std::byte> sent(1 << 20, std::byte{7});
  std::vector<std::byte> got(sent.size());
  (*meshes[from]).transport->PostSend(to, 5, sent, 1);
  (*meshes[to]).transport->PostReceive(from, 5, absl::MakeSpan(got), 2);
  std::vector<uint64_t> sender, receiver;
  while (sender.empty() || receiver.empty()) {
    for (const auto& [rank, completed] : {std::pair(from, &sender), std::pair(to, &receiver)}) {
      ASSERT_TRUE((*meshes[rank]).transport->Poll(absl::InfinitePast(), {}, completed).ok());
    }
  }
  EXPECT_EQ(got, sent) << from << " to " << to;
}

void ExpectAllReachEachOther(const std::vector<absl::StatusOr<HostMesh>>& meshes) {
  for (Rank from = 0; from < kRanks; ++from) {
    for (Rank to = 0; to < kRanks; ++to) {
      if (from != to) ExpectArrives(meshes, from, to);
    }
  }
}

TEST(HostMeshTest, ARankWithoutMemoryIsReachedOverTcpByThoseThatShare) {
  const auto meshes = Connect({1});
  for (const auto& mesh : meshes) {
    ASSERT_TRUE(mesh.ok()) << mesh.status();
    EXPECT_EQ(mesh->transport->name(), "shm+tcp");
    EXPECT_EQ(mesh->transport->window(), nullptr);
  }
  EXPECT_EQ(meshes[0]->why,
            "ranks 0, 2 share a host; TCP leads to the other 1 (rank 1 has no memory to share)");
  EXPECT_EQ(
      meshes[1]->why,
      "this rank reaches all over TCP (this rank has no memory to share); others share hosts");
  ExpectAllReachEachOther(meshes);
}

TEST(HostMeshTest, RanksOfOneHostShareMemoryAndThoseOfOthersDoNot) {
  const auto meshes = Connect({}, HostMeshKind::kBest, {}, {"a", "b", "b"});
  for (const auto& mesh : meshes) {
    ASSERT_TRUE(mesh.ok()) << mesh.status();
    EXPECT_EQ(mesh->transport->name(), "shm+tcp");
  }
  EXPECT_THAT(meshes[0]->why, testing::HasSubstr("rank 1 runs on another host"));
  EXPECT_THAT(meshes[2]->why, testing::HasSubstr("ranks 1, 2 share a host; TCP leads to "));
  ExpectAllReachEachOther(meshes);
}

TEST(HostMeshTest, AllUseTcpIfNoTwoShareAHostAndEachSaysWhy) {
  for (const auto& meshes : {Connect({}, HostMeshKind::kBest, {}, {"a", "b", "c"}),
                             Connect({0, 1, 2}), Connect({0, 2})}) {
    for (const auto& mesh : meshes) {
      ASSERT_TRUE(mesh.ok()) << mesh.status();
      EXPECT_EQ(mesh->transport->name(), "tcp");
      EXPECT_NE(mesh->why, "");
    }
    ExpectAllReachEachOther(meshes);
  }
}

TEST(HostMeshTest, FailuresNameRanksOfTheWholeMesh) {
  std::array<std::byte, 8> memory;
  for (const bool knows_before : {false, true}) {
    // On its host rank 2 is the second.
    auto meshes = Connect({}, HostMeshKind::kBest, {}, {"a", "b", "b"});
    for (const auto& mesh : meshes) ASSERT_TRUE(mesh.ok()) << mesh.status();
    Transport& end = *meshes[1]->transport;
    std::vector<uint64_t> completed;
    if (!knows_before) end.PostReceive(2, 1, absl::MakeSpan(memory), 1);
    meshes[2]->transport->Close(absl::OkStatus(), std::nullopt);
    if (knows_before) {
      end.Watch(absl::InfiniteFuture());
      ASSERT_TRUE(end.Poll(absl::InfinitePast(), {}, &completed).ok());
      end.PostSend(2, 1, memory, 1);
    }
    const absl::Status status = end.Poll(absl::InfiniteFuture(), {}, &completed);
    EXPECT_TRUE(absl::IsUnavailable(status)) << status;
    EXPECT_THAT(std::string(status.message()), testing::StartsWith("rank 2 ("));
    EXPECT_EQ(CulpritOf(status), std::optional<Rank>(2));
    EXPECT_EQ(end.failure()->culprit, std::optional<Rank>(2));
  }
}

TEST(HostMeshTest, ARankThatMayNotReadOthersMemorySaysSoAndIsSentToAllTheSame) {
  const auto meshes = Connect({}, HostMeshKind::kSharedMemory, /*without_reading=*/{1});
  for (const auto& mesh : meshes) ASSERT_TRUE(mesh.ok()) << mesh.status();
  EXPECT_EQ(meshes[0]->why, "all 3 ranks share a host");
  EXPECT_THAT(meshes[1]->why, testing::HasSubstr("unregistered memory are staged"));
  for (const Rank to : {1, 2}) ExpectArrives(meshes, 0, to);
}

TEST(HostMeshTest, SharedMemoryAskedForByNameIsRefusedToAllIfOneCannot) {
  for (const auto& meshes : {Connect({2}, HostMeshKind::kSharedMemory),
                             Connect({}, HostMeshKind::kSharedMemory, {}, {"a", "b", "b"})}) {
    for (const auto& mesh : meshes) {
      EXPECT_EQ(mesh.status().code(), absl::StatusCode::kUnimplemented) << mesh.status();
      EXPECT_THAT(std::string(mesh.status().message()), testing::HasSubstr("can't share memory"));
    }
  }
}

}  // namespace
}  // namespace muster
