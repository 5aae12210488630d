// A transport that takes its receives in one place, whatever kind they are of.
#ifndef MUSTER_COLLECTIVES_TRANSPORT_MESH_TRANSPORT_H_
#define MUSTER_COLLECTIVES_TRANSPORT_MESH_TRANSPORT_H_

#include <cstddef>
#include <cstdint>

#include "absl/types/span.h"
#include "base/check.h"
#include "collectives/transport/receive_table.h"
#include "collectives/transport/transport.h"

namespace muster {

class MeshTransport : public Transport {
 public:
  void PostReceive(Rank peer, uint64_t tag, absl::Span<std::byte> destination,
                   uint64_t token) final {
    Check(peer, PendingReceive::Into(tag, destination, /*standing=*/false, token));
  }
  void PostStandingReceive(Rank peer, uint64_t tag, absl::Span<std::byte> destination,
                           uint64_t token) final {
    Check(peer, PendingReceive::Into(tag, destination, /*standing=*/true, token));
  }
  void PostConsume(Rank peer, uint64_t tag, int64_t length, int element_bytes,
                   PieceConsumer* consumer, uint64_t token) final {
    Check(peer, PendingReceive::Through(tag, length, element_bytes, consumer, token));
  }

 private:
  // In the thread that drives; `receive` has a legal length, `peer` is for the mesh to check.
  virtual void Post(Rank peer, const PendingReceive& receive) = 0;

  void Check(Rank peer, const PendingReceive& receive) {
    MUSTER_CHECK(receive.length >= 0 && receive.length <= kMaxMessageBytes &&
                 receive.length % receive.element_bytes == 0)
        << receive.length;
    Post(peer, receive);
  }
};

}  // namespace muster

#endif  // MUSTER_COLLECTIVES_TRANSPORT_MESH_TRANSPORT_H_
