// A transport that counts the bytes a rank sends.
#ifndef MUSTER_BENCH_STRATEGIES_COUNTING_TRANSPORT_H_
#define MUSTER_BENCH_STRATEGIES_COUNTING_TRANSPORT_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "collectives/transport/forwarding_transport.h"

namespace muster::bench {

class CountingTransport : public ForwardingTransport {
 public:
  // `sent` must outlive the object.
  CountingTransport(std::unique_ptr<Transport> base, std::atomic<int64_t>& sent)
      : ForwardingTransport(std::move(base)), sent_(sent) {}

  void PostSend(Rank peer, uint64_t tag, absl::Span<const std::byte> bytes,
                uint64_t token) override {
    sent_ += static_cast<int64_t>(bytes.size());
    base_->PostSend(peer, tag, bytes, token);
  }

 private:
  std::atomic<int64_t>& sent_;
};

}  // namespace muster::bench

#endif  // MUSTER_BENCH_STRATEGIES_COUNTING_TRANSPORT_H_
