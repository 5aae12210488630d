// What is particular to shared memory: processes that die or freeze, and what is left behind.
#include "collectives/transport/shm/shm_mesh.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <filesystem>
#include <vector>

#include "base/check.h"
#include "collectives/engine/communicator.h"
#include "collectives/transport/culprit.h"
#include "collectives/transport/shm/host_mesh.h"
#include "tests/collectives/transport/mesh_fixture.h"
#include "tests/wait_until.h"

namespace muster {
namespace {

constexpr int64_t kCount = 4 << 20;

// Memory that a test and its child processes share.
struct Board {
  std::atomic<int> rounds{0};
};

// A rank in a process of its own, forked before this process has threads: sums for ever in a
// registered buffer, or once.
class Rank1Process {
 public:
  explicit Rank1Process(bool endlessly) {
    board_ = static_cast<Board*>(
        mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    new (board_) Board;
    EXPECT_EQ(pipe(to_child_), 0);
    EXPECT_EQ(pipe(to_parent_), 0);
    child_ = fork();
    if (child_ == 0) Run(endlessly);
  }
  ~Rank1Process() {
    if (child_ > 0) kill(child_, SIGKILL);
    AwaitEnd();
    munmap(board_, sizeof(Board));
  }

  void AwaitEnd() {
    if (child_ > 0) waitpid(child_, nullptr, 0);
    child_ = -1;
  }

  pid_t pid() const { return child_; }
  int rounds() const { return board_->rounds; }

  // Rank 0's end, with which the child's connects.
  absl::StatusOr<std::unique_ptr<Communicator>> Connect(std::shared_ptr<SharedArena> arena) {
    auto listener = TcpListener::Create();
    if (!listener.ok()) return listener.status();
    listener_ = *std::move(listener);
    Exchange(to_child_[1], to_parent_[0]);
    return MakeRank(0, std::move(arena));
  }

 private:
  void Exchange(int out, int in) {
    char text[64] = {};
    std::snprintf(text, sizeof(text), "%s", listener_->address().c_str());
    EXPECT_EQ(write(out, text, sizeof(text)), static_cast<ssize_t>(sizeof(text)));
    EXPECT_EQ(read(in, peer_, sizeof(peer_)), static_cast<ssize_t>(sizeof(peer_)));
  }

  absl::StatusOr<std::unique_ptr<Communicator>> MakeRank(Rank rank,
                                                         std::shared_ptr<SharedArena> arena) {
    MeshSpec spec;
    spec.token = "test";
    spec.epoch = 1;
    spec.rank = rank;
    spec.members = {{Incarnation{11}, rank == 0 ? listener_->address() : std::string(peer_)},
                    {Incarnation{12}, rank == 1 ? listener_->address() : std::string(peer_)}};
    auto mesh = ConnectHostMesh(HostMeshKind::kSharedMemory, *listener_, std::move(spec),
                                std::move(arena), absl::Now() + absl::Seconds(20));
    if (!mesh.ok()) return mesh.status();
    return Communicator::Create(std::move(mesh->transport));
  }

  [[noreturn]] void Run(bool endlessly) {
    auto listener = TcpListener::Create();
    auto arena = SharedArena::Create();
    if (!listener.ok() || !arena.ok()) _exit(3);
    listener_ = *std::move(listener);
    Exchange(to_parent_[1], to_child_[0]);
    auto communicator = MakeRank(1, *arena);
    auto buffer = (*arena)->Allocate(kCount * 4);
    if (!communicator.ok() || !buffer.ok()) _exit(4);
    auto* const data = reinterpret_cast<float*>(buffer->data());
    std::fill(data, data + kCount, 1.0f);
    do {
      if (!(*communicator)
               ->AllReduce(data, data, kCount, DType::kF32, ReduceOp::kMax)
               .Wait()
               .ok()) {
        _exit(5);
      }
      ++board_->rounds;
    } while (endlessly);
    _exit(0);
  }

  Board* board_ = nullptr;
  int to_child_[2] = {-1, -1};
  int to_parent_[2] = {-1, -1};
  pid_t child_ = -1;
  std::unique_ptr<TcpListener> listener_;
  char peer_[64] = {};
};

// This process's end of a mesh with `other`, and a registered buffer of 2s.
struct Rank0 {
  explicit Rank0(Rank1Process& other)
      : arena(SharedArena::Create()),
        communicator(other.Connect(arena.value())),
        buffer((*arena)->Allocate(kCount * 4)) {
    MUSTER_CHECK(communicator.ok()) << communicator.status();
    MUSTER_CHECK(buffer.ok()) << buffer.status();
    std::fill(data(), data() + kCount, 2.0f);
  }
  float* data() { return reinterpret_cast<float*>(buffer->data()); }

  absl::StatusOr<std::shared_ptr<SharedArena>> arena;
  absl::StatusOr<std::unique_ptr<Communicator>> communicator;
  absl::StatusOr<SharedBuffer> buffer;
};

TEST(ShmMeshTest, AKilledProcessFailsTheWaitingRankAndIsNamed) {
  Rank1Process other(/*endlessly=*/true);
  Rank0 own(other);
  auto& communicator = own.communicator;
  float* const data = own.data();
  absl::Status status;
  for (int round = 0; status.ok(); ++round) {
    ASSERT_LT(round, 10000);
    status = (*communicator)->AllReduce(data, data, kCount, DType::kF32, ReduceOp::kMax).Wait();
    if (round == 3) kill(other.pid(), SIGKILL);
  }
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
  EXPECT_EQ((*communicator)->failure()->culprit, std::optional<Rank>(1));
  EXPECT_EQ(data[0], 2.0f);
}

TEST(ShmMeshTest, AFrozenProcessCannotWriteToABufferRenewedAfterClose) {
  // Freezes the other rank at ever new moments; now and then one is within its writes.
  for (int attempt = 0; attempt < 12; ++attempt) {
    Rank1Process other(/*endlessly=*/true);
    Rank0 own(other);
    auto& communicator = own.communicator;
    float* const data = own.data();
    CollectiveOptions options;
    options.timeout = absl::Milliseconds(300);
    absl::Status status;
    for (int round = 0; status.ok(); ++round) {
      if (round == 2 + attempt % 3) kill(other.pid(), SIGSTOP);
      status = (*communicator)
                   ->AllReduce(data, data, kCount, DType::kF32, ReduceOp::kMax, options)
                   .Wait();
    }
    EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
    if ((*communicator)->MustRenewBuffers()) {
      ASSERT_TRUE(own.buffer->Renew().ok());
    }
    std::fill(data, data + kCount, 7.0f);
    kill(other.pid(), SIGCONT);
    // It finds the mesh closed and ends.
    other.AwaitEnd();
    for (int64_t i = 0; i < kCount; ++i) ASSERT_EQ(data[i], 7.0f) << i << " attempt " << attempt;
  }
}

TEST(ShmMeshTest, NothingIsLeftBehindByName) {
  const auto count = [] {
    int files = 0;
    for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/dev/shm"))
      ++files;
    return files;
  };
  if (!std::filesystem::exists("/dev/shm")) GTEST_SKIP() << "no /dev/shm here";
  const int before = count();
  Rank1Process other(/*endlessly=*/false);
  auto arena = SharedArena::Create();
  ASSERT_TRUE(arena.ok());
  auto communicator = other.Connect(*arena);
  ASSERT_TRUE(communicator.ok()) << communicator.status();
  EXPECT_LE(count(), before);
}

}  // namespace
}  // namespace muster
