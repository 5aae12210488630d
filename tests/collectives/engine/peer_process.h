// Rank 1 of a mesh of two in a process of its own, which a test may kill or freeze.
//
// It is this test program once more (exec), so that nothing of the test's process, such as threads
// or a library's state, is inherited. The kernel ends it with the test. Programs that use it have
// RunTestsOrPeer as their main.
#ifndef MUSTER_TESTS_COLLECTIVES_ENGINE_PEER_PROCESS_H_
#define MUSTER_TESTS_COLLECTIVES_ENGINE_PEER_PROCESS_H_

#include <sys/types.h>

#include <memory>
#include <string>

#include "collectives/engine/communicator.h"
#include "tests/collectives/transport/mesh_fixture.h"

namespace muster {

// Elements of the f32 vectors that a peer reduces or serves (kMax): enough for a signal to come
// within.
inline constexpr int64_t kPeerCount = 4 << 20;

enum class PeerLife {
  kIdle,            // calls nothing
  kReducesForEver,  // a vector of 1s
  // Sends rank 0 vectors of 1s, from memory that is registered where there is shared memory, or
  // not.
  kSendsForEver,
  kSendsUnregisteredForEver,
  kServesForEver,  // owns a vector that rank 0, the only worker, pushes and pulls
};

class PeerProcess {
 public:
  PeerProcess(MeshKind kind, PeerLife life);
  // Kills it.
  ~PeerProcess();

  // This process's end, rank 0. Requires: called once. `arena` is for shared memory.
  absl::StatusOr<std::unique_ptr<Communicator>> Connect(
      std::shared_ptr<SharedArena> arena = nullptr);

  pid_t pid() const { return pid_; }
  void Signal(int number);
  // Until it has ended by itself or by a signal.
  void AwaitEnd();
  // Where it listens. Requires: Connect() was called.
  const std::string& address() const { return address_; }

 private:
  const MeshKind kind_;
  pid_t pid_ = -1;
  int to_peer_ = -1;
  int from_peer_ = -1;
  MeshDoor door_;
  std::string address_;
};

// This process's end of a mesh with `peer`, and a vector of 2s, registered where there is shared
// memory.
struct Rank0 {
  Rank0(PeerProcess& peer, MeshKind kind);
  Work Reduce(absl::Duration timeout = absl::Seconds(60));

  std::shared_ptr<SharedArena> arena;
  SharedBuffer shared;
  std::vector<float> own;
  float* data = nullptr;
  std::unique_ptr<Communicator> communicator;
};

// A push and a pull with rank 0 as the only worker and rank 1 as the server, of kPeerCount
// elements.
absl::Status PushAndPull(Communicator& communicator, float* data);

// The main of a test program: the tests, or what PeerProcess asks of it.
int RunTestsOrPeer(int argc, char** argv);

}  // namespace muster

#endif  // MUSTER_TESTS_COLLECTIVES_ENGINE_PEER_PROCESS_H_
