// A transport that counts the bytes a rank sends, and of them those to ranks of other groups.
#ifndef MUSTER_BENCH_STRATEGIES_COUNTING_TRANSPORT_H_
#define MUSTER_BENCH_STRATEGIES_COUNTING_TRANSPORT_H_

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "collectives/transport/forwarding_transport.h"

namespace muster::bench {

struct SentBytes {
  std::atomic<int64_t> all{0};
  std::atomic<int64_t> across{0};
};

class CountingTransport : public ForwardingTransport {
 public:
  // `group`: the ranks of this one's. `sent` must outlive the object.
  CountingTransport(std::unique_ptr<Transport> base, std::vector<Rank> group, SentBytes& sent)
      : ForwardingTransport(std::move(base)), group_(std::move(group)), sent_(sent) {}

  void PostSend(Rank peer, uint64_t tag, absl::Span<const std::byte> bytes,
                uint64_t token) override {
    const auto count = static_cast<int64_t>(bytes.size());
    sent_.all += count;
    if (std::find(group_.begin(), group_.end(), peer) == group_.end()) sent_.across += count;
    base_->PostSend(peer, tag, bytes, token);
  }

 private:
  const std::vector<Rank> group_;
  SentBytes& sent_;
};

}  // namespace muster::bench

#endif  // MUSTER_BENCH_STRATEGIES_COUNTING_TRANSPORT_H_
