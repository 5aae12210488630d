// A transport whose n-th long message leaves with one bit changed, as memory or a network card
// would.
#ifndef MUSTER_TESTS_STATE_CORRUPTING_TRANSPORT_H_
#define MUSTER_TESTS_STATE_CORRUPTING_TRANSPORT_H_

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "collectives/transport/forwarding_transport.h"

namespace muster {

class CorruptingTransport : public ForwardingTransport {
 public:
  // Messages of at least `min_bytes` count, the first as number 0. In that one the bit `bit` of the
  // byte that is `from_end` bytes before its end changes.
  CorruptingTransport(std::unique_ptr<Transport> base, size_t min_bytes, int number,
                      size_t from_end, int bit)
      : ForwardingTransport(std::move(base)),
        min_bytes_(min_bytes),
        number_(number),
        from_end_(from_end),
        bit_(bit) {}
  ~CorruptingTransport() override { base_.reset(); }

  void PostSend(Rank peer, uint64_t tag, absl::Span<const std::byte> bytes,
                uint64_t token) override {
    if (bytes.size() >= min_bytes_ && number_-- == 0) {
      copy_.assign(bytes.begin(), bytes.end());
      copy_[bytes.size() - 1 - from_end_] ^= std::byte{1} << bit_;
      bytes = copy_;
    }
    base_->PostSend(peer, tag, bytes, token);
  }

 private:
  const size_t min_bytes_;
  int number_;
  const size_t from_end_;
  const int bit_;
  std::vector<std::byte> copy_;  // lives as long as the mesh
};

}  // namespace muster

#endif  // MUSTER_TESTS_STATE_CORRUPTING_TRANSPORT_H_
