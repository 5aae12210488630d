// Where the connections that a TcpListener accepts meet the mesh that this process forms. Owns the
// listening socket and the thread that serves it; tcp_listener.h says what becomes of a connection.
//
// Thread-safe. At most one mesh is being formed at a time.
#ifndef MUSTER_COLLECTIVES_TRANSPORT_TCP_RENDEZVOUS_H_
#define MUSTER_COLLECTIVES_TRANSPORT_TCP_RENDEZVOUS_H_

#include <array>
#include <atomic>
#include <deque>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/mutex.h"
#include "collectives/transport/mesh_admission.h"
#include "collectives/transport/socket.h"
#include "collectives/transport/tcp_handshake.h"
#include "collectives/transport/tcp_listener.h"

namespace muster {

// A connection that has been welcomed.
struct TcpArrival {
  UniqueFd fd;
  Rank rank = -1;
  int channel = 0;
};

class TcpMeshRendezvous {
 public:
  TcpMeshRendezvous(UniqueFd listening, const TcpListenerOptions& options);
  ~TcpMeshRendezvous();

  // Starts taking connections for `plan`; signals `notify_fd` when Take() has news.
  // FAILED_PRECONDITION: the epoch was formed, given up or overtaken, or another mesh is being
  // formed.
  absl::Status Begin(MeshPlan plan, int notify_fd) ABSL_LOCKS_EXCLUDED(mu_);
  // What has arrived since the last call. CANCELLED after CancelThrough.
  absl::StatusOr<std::vector<TcpArrival>> Take() ABSL_LOCKS_EXCLUDED(mu_);
  // Refuses all further connections for the mesh's epoch.
  void End() ABSL_LOCKS_EXCLUDED(mu_);
  void CancelThrough(Epoch epoch) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  // Accepted, hello not complete.
  struct Handshake {
    UniqueFd fd;
    std::array<std::byte, kHelloBytes> bytes;
    size_t got = 0;
    absl::Time deadline;
  };
  // For an epoch not begun yet.
  struct Parked {
    UniqueFd fd;
    TcpHello hello;
    absl::Time deadline;
  };

  void Serve();
  void Accept();
  // Reads on; false when the handshake is over, one way or another.
  bool Advance(Handshake& handshake);
  void Admit(UniqueFd fd, const TcpHello& hello) ABSL_LOCKS_EXCLUDED(mu_);
  // Answers, and hands over, drops or parks.
  void Settle(UniqueFd fd, const TcpHello& hello, absl::Time park_until)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Answer(const UniqueFd& fd, TcpVerdict verdict, absl::string_view why)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Settles what was parked and need not wait any longer.
  void SortParked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Time DropExpired(absl::Time now) ABSL_LOCKS_EXCLUDED(mu_);

  const TcpListenerOptions options_;
  const UniqueFd listening_;
  const UniqueFd wake_;
  std::atomic<bool> stopping_{false};
  std::vector<Handshake> handshakes_;  // of the thread only
  bool accept_failing_ = false;        // of the thread only: out of descriptors, try again later

  Mutex mu_;
  MeshAdmission admission_ ABSL_GUARDED_BY(mu_);
  int notify_fd_ ABSL_GUARDED_BY(mu_) = -1;
  std::vector<TcpArrival> arrivals_ ABSL_GUARDED_BY(mu_);
  std::deque<Parked> parked_ ABSL_GUARDED_BY(mu_);

  std::thread thread_;  // last: starts when all else is there
};

}  // namespace muster

#endif  // MUSTER_COLLECTIVES_TRANSPORT_TCP_RENDEZVOUS_H_
