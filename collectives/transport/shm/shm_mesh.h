// One rank's end of a mesh in shared memory: the window for collectives, a TcpMesh for messages
// between two ranks, for goodbye, abort and death. Behaves as transport.h says.
#ifndef MUSTER_COLLECTIVES_TRANSPORT_SHM_SHM_MESH_H_
#define MUSTER_COLLECTIVES_TRANSPORT_SHM_SHM_MESH_H_

#include <atomic>
#include <memory>
#include <optional>
#include <vector>

#include "base/mutex.h"
#include "collectives/transport/shm/shm_window.h"
#include "collectives/transport/tcp_mesh.h"
#include "collectives/transport/transport.h"

namespace muster {

class ShmMesh : public Transport {
 public:
  ShmMesh(std::unique_ptr<TcpMesh> messages, std::unique_ptr<ShmWindow> window)
      : messages_(std::move(messages)), window_(std::move(window)) {}
  ~ShmMesh() override { Close(absl::OkStatus(), std::nullopt); }

  absl::string_view name() const override { return "shm"; }
  Rank rank() const override { return messages_->rank(); }
  int world_size() const override { return messages_->world_size(); }
  int local_world_size() const override { return world_size(); }
  Window* window() override { return window_.get(); }

  void PostSend(Rank peer, uint64_t tag, absl::Span<const std::byte> bytes,
                uint64_t token) override {
    messages_->PostSend(peer, tag, bytes, token);
  }
  void PostReceive(Rank peer, uint64_t tag, absl::Span<std::byte> destination,
                   uint64_t token) override {
    messages_->PostReceive(peer, tag, destination, token);
  }
  void PostStandingReceive(Rank peer, uint64_t tag, absl::Span<std::byte> destination,
                           uint64_t token) override {
    messages_->PostStandingReceive(peer, tag, destination, token);
  }
  void Expect(Rank peer, int delta) override { messages_->Expect(peer, delta); }
  void PostConsume(Rank peer, uint64_t tag, int64_t length, int element_bytes,
                   PieceConsumer* consumer, uint64_t token) override {
    messages_->PostConsume(peer, tag, length, element_bytes, consumer, token);
  }

  absl::Status Poll(absl::Time deadline, absl::Duration spin,
                    std::vector<uint64_t>* completed) override;

  void Watch(absl::Time deadline) override {
    messages_->Watch(deadline);
    window_->RingSelf();  // The driver may sleep on the window: let it look.
  }
  void WakeWatcher() override { messages_->WakeWatcher(); }
  void Wake() override {
    woken_ = true;
    messages_->Wake();
    window_->RingSelf();
  }

  void Close(const absl::Status& reason, std::optional<Rank> culprit) override;
  std::optional<MeshFailure> failure() const override { return messages_->failure(); }
  bool tainted() const override { return window_->tainted(); }

 private:
  absl::Status Met(std::vector<uint64_t>* completed) {
    completed->push_back(window_->token());
    return absl::OkStatus();
  }

  const std::unique_ptr<TcpMesh> messages_;
  const std::unique_ptr<ShmWindow> window_;
  std::atomic<bool> woken_{false};
  // Held by the driver in Poll, and by Close to wait the driver out.
  Mutex drive_mu_;
  bool closed_ = false;
};

}  // namespace muster

#endif  // MUSTER_COLLECTIVES_TRANSPORT_SHM_SHM_MESH_H_
