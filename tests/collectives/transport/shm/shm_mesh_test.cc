// What is particular to shared memory: processes that freeze within a write, and what is left
// behind.
#include "collectives/transport/shm/shm_mesh.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>

#include "tests/collectives/engine/peer_process.h"

namespace muster {
namespace {

TEST(ShmMeshTest, AFrozenProcessCannotWriteToABufferRenewedAfterClose) {
  // Freezes the other rank at ever new moments; now and then one is within its writes.
  for (int attempt = 0; attempt < 12; ++attempt) {
    PeerProcess other(MeshKind::kShm, PeerLife::kReducesForEver);
    Rank0 own(other, MeshKind::kShm);
    absl::Status status;
    for (int round = 0; status.ok(); ++round) {
      if (round == 2 + attempt % 3) other.Signal(SIGSTOP);
      status = own.Reduce(absl::Milliseconds(300)).Wait();
    }
    EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
    if (own.communicator->MustRenewBuffers()) {
      ASSERT_TRUE(own.shared.Renew().ok());
    }
    std::fill(own.data, own.data + kPeerCount, 7.0f);
    other.Signal(SIGCONT);
    // It finds the mesh closed and ends.
    other.AwaitEnd();
    for (int64_t i = 0; i < kPeerCount; ++i)
      ASSERT_EQ(own.data[i], 7.0f) << i << " attempt " << attempt;
  }
}

// Whether a process maps or holds a file of /dev/shm.
bool HasNamedMemory(pid_t pid) {
  const std::string process = absl::StrCat("/proc/", pid);
  std::ifstream maps(process + "/maps");
  EXPECT_TRUE(maps.is_open());
  for (std::string line; std::getline(maps, line);) {
    if (line.find(" /dev/shm/") != std::string::npos) return true;
  }
  for (const auto& entry : std::filesystem::directory_iterator(process + "/fd")) {
    std::error_code error;
    const std::string target = std::filesystem::read_symlink(entry.path(), error).string();
    if (target.rfind("/dev/shm/", 0) == 0) return true;
  }
  return false;
}

// So no kind of exit can leave one behind.
TEST(ShmMeshTest, NoMemoryHasAName) {
  PeerProcess other(MeshKind::kShm, PeerLife::kReducesForEver);
  Rank0 own(other, MeshKind::kShm);
  ASSERT_TRUE(own.Reduce().Wait().ok());
  EXPECT_FALSE(HasNamedMemory(getpid()));
  EXPECT_FALSE(HasNamedMemory(other.pid()));
}

}  // namespace
}  // namespace muster

int main(int argc, char** argv) { return muster::RunTestsOrPeer(argc, argv); }
