// The transport over calls that have been welcomed (grpc_transport.h forms them). See transport.h
// for what it promises.
//
// gRPC's threads move bytes between sockets and chunks; the driver copies chunks to where they
// belong, in the order in which each peer sent them.
#ifndef MUSTER_COLLECTIVES_TRANSPORT_GRPC_GRPC_MESH_H_
#define MUSTER_COLLECTIVES_TRANSPORT_GRPC_GRPC_MESH_H_

#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "base/mutex.h"
#include "collectives/transport/grpc/frame_reader.h"
#include "collectives/transport/grpc/grpc_incoming_call.h"
#include "collectives/transport/grpc/grpc_outgoing_call.h"
#include "collectives/transport/grpc/grpc_signal.h"
#include "collectives/transport/mesh_peers.h"
#include "collectives/transport/mesh_transport.h"
#include "collectives/transport/tcp_transport.h"

namespace muster {

// The calls of a mesh, by rank and channel; null where there is none (yet).
struct GrpcMeshCalls {
  struct Peer {
    std::vector<std::shared_ptr<OutgoingCall>> outgoing;
    std::vector<std::shared_ptr<IncomingCall>> incoming;
  };
  GrpcMeshCalls(size_t ranks, size_t channels);

  std::shared_ptr<GrpcSignal> signal = std::make_shared<GrpcSignal>();
  std::vector<Peer> peers;
};

// Ends all calls with this word to the peers, and destroys the outgoing ones. On return gRPC uses
// no posted memory any more. Takes a few seconds at most, whatever the peers do.
void EndCalls(GrpcMeshCalls& calls, const grpc::Status& status);

class GrpcMesh : public MeshTransport {
 public:
  GrpcMesh(MeshSpec spec, GrpcMeshCalls calls);
  ~GrpcMesh() override;

  absl::string_view name() const override { return "grpc"; }
  Rank rank() const override { return spec_.rank; }
  int world_size() const override { return static_cast<int>(spec_.members.size()); }
  int local_world_size() const override { return LocalWorldSize(spec_); }
  void PostSend(Rank peer, uint64_t tag, absl::Span<const std::byte> bytes,
                uint64_t token) override;
  void Expect(Rank peer, int delta) override;
  absl::Status Poll(absl::Time deadline, absl::Duration spin,
                    std::vector<uint64_t>* completed) override;
  void Watch(absl::Time deadline) override { signal_->Watch(deadline); }
  void WakeWatcher() override { signal_->WakeWatcher(); }
  void Wake() override { signal_->Wake(); }
  void Close(const absl::Status& reason, std::optional<Rank> culprit) override;
  std::optional<MeshFailure> failure() const override { return failure_.get(); }

 private:
  // One incoming call and what is left of what it brought.
  struct Inlet {
    std::shared_ptr<IncomingCall> call;
    FrameReader reader;
    std::deque<grpc::Slice> slices;
    size_t used = 0;  // of the first of them
    bool over() const {
      return call->state() != IncomingCall::State::kOpen && slices.empty() && !call->has_arrived();
    }
  };
  struct Peer {
    Rank rank = -1;
    std::unique_ptr<ReceiveTable> receives;
    std::vector<Inlet> inlets;
    size_t next_channel = 0;  // for the next large message
    bool departed = false;    // in good order
    std::optional<absl::Time> broken_since;
  };

  Peer& PeerAt(Rank rank);
  void Post(Rank peer, const PendingReceive& receive) override;
  void Fail(absl::Status status, std::optional<Rank> culprit);
  // One pass over everything that may move without blocking. Appends to *completed.
  absl::Status Progress(bool trouble, std::vector<uint64_t>* completed)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(drive_mu_);
  absl::Status Read(Inlet& inlet, std::vector<uint64_t>* completed)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(drive_mu_);
  // Fails if the peer is gone and owes this rank something, or did not leave in good order.
  absl::Status CheckPeer(Peer& peer, absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(drive_mu_);

  const MeshSpec spec_;
  const std::shared_ptr<GrpcSignal> signal_;

  // Held by the driver inside Post* and Poll's passes, and by Close to wait the driver out.
  mutable Mutex drive_mu_;
  GrpcMeshCalls calls_ ABSL_GUARDED_BY(drive_mu_);
  std::vector<Peer> peers_;  // by rank
  StagingBuffer staging_ ABSL_GUARDED_BY(drive_mu_);
  // Receives that a message taken in early served at once; reported by the next Poll.
  std::vector<uint64_t> served_at_post_ ABSL_GUARDED_BY(drive_mu_);
  bool uneasy_ ABSL_GUARDED_BY(drive_mu_) = false;  // a peer has left or is broken
  bool closed_ ABSL_GUARDED_BY(drive_mu_) = false;

  FirstFailure failure_;
};

}  // namespace muster

#endif  // MUSTER_COLLECTIVES_TRANSPORT_GRPC_GRPC_MESH_H_
