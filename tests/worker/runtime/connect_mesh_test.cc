// What a job asks for by name it gets, or an error that says why not.
#include "worker/runtime/connect_mesh.h"

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/wait_until.h"

namespace muster {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;
using enum CommunicationSpec::Transport;

// `world_size` workers of one process connect; `arenas` of them have memory to share.
std::vector<absl::StatusOr<ConnectedMesh>> Connect(const CommunicationSpec& communication,
                                                   int world_size, int arenas) {
  std::vector<std::unique_ptr<TcpListener>> listeners;
  std::vector<std::unique_ptr<GrpcListener>> servers;
  MeshSpec spec;
  spec.token = "fleet/job";
  spec.epoch = 1;
  for (int i = 0; i < world_size; ++i) {
    listeners.push_back(TcpListener::Create().value());
    servers.push_back(GrpcListener::Serve().value());
    spec.members.push_back(
        {Incarnation{static_cast<uint64_t>(i) + 1},
         MeetsAtServers(communication) ? servers.back()->address() : listeners.back()->address()});
  }
  std::vector<absl::StatusOr<ConnectedMesh>> results(world_size);
  std::vector<std::thread> threads;
  for (int i = 0; i < world_size; ++i) {
    threads.emplace_back([&, i] {
      MeshSpec mine = spec;
      mine.rank = i;
      std::shared_ptr<SharedArena> arena;
      if (i < arenas) arena = SharedArena::Create().value();
      results[i] =
          ConnectMesh(communication, *listeners[i], servers[i].get(), std::move(mine),
                      std::move(arena), "memfd_create is forbidden", absl::Now() + kTestPatience);
    });
  }
  for (std::thread& thread : threads) thread.join();
  return results;
}

std::string Refusal(const absl::StatusOr<ConnectedMesh>& mesh) {
  EXPECT_TRUE(absl::IsUnimplemented(mesh.status())) << mesh.status();
  return std::string(mesh.status().message());
}

TEST(ConnectMeshTest, AutomaticTakesSharedMemoryAndSaysWhy) {
  for (const auto& mesh : Connect({}, 2, 2)) {
    ASSERT_TRUE(mesh.ok()) << mesh.status();
    EXPECT_EQ(mesh->transport->name(), "shm");
    EXPECT_EQ(mesh->why, "auto: all 2 ranks share a host");
  }
}

TEST(ConnectMeshTest, GrpcIsTakenWhereItIsAskedFor) {
  for (const auto& mesh : Connect({.transport = kGrpc}, 2, 2)) {
    ASSERT_TRUE(mesh.ok()) << mesh.status();
    EXPECT_EQ(mesh->transport->name(), "grpc");
    EXPECT_EQ(mesh->why, "asked for");
  }
}

TEST(ConnectMeshTest, AutomaticFallsBackAndSaysWhy) {
  const auto meshes = Connect({}, 2, 1);
  for (const auto& mesh : meshes) {
    ASSERT_TRUE(mesh.ok()) << mesh.status();
    EXPECT_EQ(mesh->transport->name(), "tcp");
    EXPECT_THAT(mesh->why, StartsWith("auto: "));
  }
  EXPECT_THAT(meshes[0]->why, HasSubstr("rank 1"));
  EXPECT_THAT(meshes[1]->why, HasSubstr("memfd_create is forbidden"));
}

TEST(ConnectMeshTest, SharedMemoryByNameIsHadOrRefused) {
  const auto meshes = Connect({.transport = kSharedMemory}, 2, 1);
  EXPECT_THAT(Refusal(meshes[0]),
              AllOf(StartsWith("communication.transport: "), HasSubstr("rank 1")));
  EXPECT_THAT(Refusal(meshes[1]), AllOf(StartsWith("communication.transport: "),
                                        HasSubstr("memfd_create is forbidden")));
}

TEST(ConnectMeshTest, TcpByNameIsTcpEvenOnOneHost) {
  for (const auto& mesh : Connect({.transport = kTcp}, 2, 2)) {
    ASSERT_TRUE(mesh.ok()) << mesh.status();
    EXPECT_EQ(mesh->transport->name(), "tcp");
    EXPECT_EQ(mesh->why, "asked for");
  }
}

TEST(ConnectMeshTest, ALibfabricProviderByNameIsHadOrRefused) {
  // Which providers there are depends on the version of libfabric and on the machine.
  const auto automatic = Connect({.transport = kLibfabric}, 1, 1);
  ASSERT_TRUE(automatic[0].ok()) << automatic[0].status();
  const std::string there = automatic[0]->provider;
  for (const auto& mesh : Connect({.transport = kLibfabric, .provider = there}, 2, 2)) {
    ASSERT_TRUE(mesh.ok()) << mesh.status();
    EXPECT_EQ(mesh->transport->name(), "ofi");
    EXPECT_EQ(mesh->provider, there);
    EXPECT_THAT(mesh->why, AllOf(HasSubstr("libfabric"), Not(HasSubstr("auto"))));
  }
  // Machines that have such devices are asked for another one.
  for (const std::string provider : {"no-such-provider", "psm3"}) {
    const auto refused = Connect({.transport = kLibfabric, .provider = provider}, 1, 1);
    EXPECT_THAT(Refusal(refused[0]), AllOf(StartsWith("communication.provider: "),
                                           HasSubstr(provider), HasSubstr("available: ")));
  }
}

TEST(ConnectMeshTest, LibfabricWithoutAProviderTakesOneAndSaysWhy) {
  const auto meshes = Connect({.transport = kLibfabric}, 2, 2);
  for (const auto& mesh : meshes) {
    ASSERT_TRUE(mesh.ok()) << mesh.status();
    EXPECT_FALSE(mesh->provider.empty());
    EXPECT_THAT(mesh->why, AllOf(StartsWith(mesh->provider), HasSubstr("auto")));
  }
}

TEST(ConnectMeshTest, TheWindowNeedsSharedMemory) {
  const CommunicationSpec window{.algorithm = CommunicationSpec::Algorithm::kWindow};
  for (const auto& mesh : Connect(window, 2, 2)) EXPECT_TRUE(mesh.ok()) << mesh.status();
  const auto meshes = Connect(window, 2, 1);
  for (const auto& mesh : meshes) {
    EXPECT_THAT(Refusal(mesh), AllOf(StartsWith("communication.algorithm: WINDOW needs workers"),
                                     HasSubstr("use tcp")));
  }
  EXPECT_THAT(Refusal(meshes[1]), HasSubstr("memfd_create is forbidden"));
}

}  // namespace
}  // namespace muster
