#include "tests/collectives/engine/peer_process.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "base/check.h"

extern char** environ;

namespace muster {
namespace {

constexpr const char* kPeerFlag = "--peer-process";

using Line = std::array<char, 64>;

void WriteLine(int fd, const std::string& text) {
  Line line = {};
  MUSTER_CHECK_LT(text.size(), line.size());
  std::copy(text.begin(), text.end(), line.begin());
  MUSTER_CHECK_EQ(write(fd, line.data(), line.size()), static_cast<ssize_t>(line.size()));
}

// Empty: the other end is gone.
std::string ReadLine(int fd) {
  Line line = {};
  const ssize_t got = read(fd, line.data(), line.size());
  return got == static_cast<ssize_t>(line.size()) ? std::string(line.data()) : std::string();
}

absl::StatusOr<std::unique_ptr<Communicator>> MakeRank(MeshKind kind, Rank rank, MeshDoor& door,
                                                       const std::string& other,
                                                       std::shared_ptr<SharedArena> arena) {
  MeshSpec spec;
  spec.token = "peer-process";
  spec.epoch = 1;
  spec.rank = rank;
  spec.members = {{Incarnation{11}, rank == 0 ? door.address() : other},
                  {Incarnation{12}, rank == 1 ? door.address() : other}};
  auto transport = ConnectEnd(kind, door, spec, std::move(arena), absl::Now() + absl::Seconds(30));
  if (!transport.ok()) return transport.status();
  return Communicator::Create(*std::move(transport));
}

// The peer's process.
int Live(MeshKind kind, PeerLife life, int in, int out) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  auto door = OpenDoor(kind);
  if (!door.ok()) return 3;
  WriteLine(out, door->address());
  const std::string other = ReadLine(in);
  if (other.empty()) return 0;  // The test has ended without it.
  std::shared_ptr<SharedArena> arena;
  if (SharesMemory(kind)) arena = SharedArena::Create().value();
  auto communicator = MakeRank(kind, 1, *door, other, arena);
  if (!communicator.ok()) {
    std::fprintf(stderr, "peer process: %s\n", communicator.status().ToString().c_str());
    return 4;
  }
  if (life == PeerLife::kIdle) {
    (void)ReadLine(in);  // Until the test's end.
    return 0;
  }
  std::vector<float> own;
  SharedBuffer shared;
  float* data = nullptr;
  if (arena != nullptr && life != PeerLife::kSendsUnregisteredForEver) {
    shared = arena->Allocate(kPeerCount * 4).value();
    data = reinterpret_cast<float*>(shared.data());
  } else {
    own.resize(kPeerCount);
    data = own.data();
  }
  std::fill(data, data + kPeerCount, 1.0f);
  while (true) {
    Communicator& all = **communicator;
    if (life == PeerLife::kServesForEver) {
      if (!PushAndPull(all, data).ok()) return 0;
      continue;
    }
    Work work = life == PeerLife::kReducesForEver
                    ? all.AllReduce(data, data, kPeerCount, DType::kF32, ReduceOp::kMax)
                    : all.Send(data, kPeerCount, DType::kF32, /*to=*/0);
    if (!work.Wait().ok()) return 0;
  }
}

}  // namespace

PeerProcess::PeerProcess(MeshKind kind, PeerLife life) : kind_(kind) {
  int to[2], from[2];
  MUSTER_CHECK(pipe(to) == 0 && pipe(from) == 0);
  const std::string words[] = {std::to_string(static_cast<int>(kind)),
                               std::to_string(static_cast<int>(life)), std::to_string(to[0]),
                               std::to_string(from[1])};
  std::vector<char*> arguments = {const_cast<char*>("peer"), const_cast<char*>(kPeerFlag)};
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  MUSTER_CHECK_EQ(posix_spawn(&pid_, "/proc/self/exe", nullptr, nullptr, arguments.data(), environ),
                  0);
  close(to[0]);
  close(from[1]);
  to_peer_ = to[1];
  from_peer_ = from[0];
}

PeerProcess::~PeerProcess() {
  if (pid_ > 0) kill(pid_, SIGKILL);
  AwaitEnd();
  close(to_peer_);
  close(from_peer_);
}

void PeerProcess::Signal(int number) { EXPECT_EQ(kill(pid_, number), 0); }

void PeerProcess::AwaitEnd() {
  if (pid_ > 0) waitpid(pid_, nullptr, 0);
  pid_ = -1;
}

absl::StatusOr<std::unique_ptr<Communicator>> PeerProcess::Connect(
    std::shared_ptr<SharedArena> arena) {
  auto door = OpenDoor(kind_);
  if (!door.ok()) return door.status();
  door_ = *std::move(door);
  address_ = ReadLine(from_peer_);
  WriteLine(to_peer_, door_.address());
  return MakeRank(kind_, 0, door_, address_, std::move(arena));
}

Rank0::Rank0(PeerProcess& peer, MeshKind kind) {
  if (SharesMemory(kind)) {
    arena = SharedArena::Create().value();
    shared = arena->Allocate(kPeerCount * 4).value();
    data = reinterpret_cast<float*>(shared.data());
  } else {
    own.resize(kPeerCount);
    data = own.data();
  }
  std::fill(data, data + kPeerCount, 2.0f);
  communicator = peer.Connect(arena).value();
}

Work Rank0::Reduce(absl::Duration timeout) {
  CollectiveOptions options;
  options.timeout = timeout;
  options.label = "bucket-3";
  return communicator->AllReduce(data, data, kPeerCount, DType::kF32, ReduceOp::kMax, options);
}

absl::Status PushAndPull(Communicator& communicator, float* data) {
  const std::vector<int64_t> counts = {0, kPeerCount};
  const std::vector<int64_t> order_counts = {kPeerCount};
  const absl::Status status =
      communicator.Push(data, data, counts, order_counts, DType::kF32, ReduceOp::kMax).Wait();
  if (!status.ok()) return status;
  return communicator.Pull(data, data, counts, /*contributors=*/1, DType::kF32).Wait();
}

int RunTestsOrPeer(int argc, char** argv) {
  if (argc == 6 && std::strcmp(argv[1], kPeerFlag) == 0) {
    return Live(static_cast<MeshKind>(std::atoi(argv[2])),
                static_cast<PeerLife>(std::atoi(argv[3])), std::atoi(argv[4]), std::atoi(argv[5]));
  }
  testing::InitGoogleMock(&argc, argv);
  return RUN_ALL_TESTS();
}

}  // namespace muster
