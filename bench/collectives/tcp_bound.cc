#include "bench/collectives/tcp_bound.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <utility>

#include "bench/collectives/rank_group.h"
#include "collectives/transport/socket.h"

namespace muster::bench {
namespace {

template <typename T>
T OrDie(absl::StatusOr<T> value) {
  if (!value.ok()) {
    std::fprintf(stderr, "bench: %s\n", value.status().ToString().c_str());
    std::exit(1);
  }
  return *std::move(value);
}

// Streams bytes around the ring of ranks.
class BareStream : public BenchRank {
 public:
  BareStream(int rank, int ranks, Exchange& exchange) : ranks_(ranks) {
    const UniqueFd listening = OrDie(ListenOn(OrDie(ResolveBindHost("127.0.0.1", 0))));
    const auto addresses = exchange.AllToAll(rank, OrDie(LocalAddress(listening.get())).ToString());
    right_ = OrDie(StartConnect(OrDie(ParseAddress(addresses[(rank + 1) % ranks]))));
    pollfd waiting = {listening.get(), POLLIN, 0};
    poll(&waiting, 1, 10000);
    left_ = OrDie(AcceptFrom(listening.get()));
    waiting = {right_.get(), POLLOUT, 0};
    poll(&waiting, 1, 10000);
    for (int fd : {right_.get(), left_.get()}) {
      const absl::Status status = ConfigureStream(fd, absl::Seconds(20), 0);
      if (!status.ok()) std::exit(1);
    }
  }

  bool Supports(const Trial& trial) const override { return trial.kind == Kind::kAllReduce; }

  void Run(const Trial& trial, const void* input, void* output) override {
    // Twice around, (n-1)/n of the vector each time.
    for (int phase = 0; phase < 2; ++phase) {
      const size_t total = trial.count * SizeOf(trial.type) / static_cast<size_t>(ranks_) *
                           static_cast<size_t>(ranks_ - 1);
      size_t sent = 0, got = 0;
      const auto* from = static_cast<const char*>(input);
      auto* to = static_cast<char*>(output);
      while (sent < total || got < total) {
        bool moved = false;
        if (sent < total) {
          const ssize_t n = send(right_.get(), from + sent,
                                 std::min<size_t>(total - sent, 512 << 10), MSG_NOSIGNAL);
          if (n > 0) {
            sent += static_cast<size_t>(n);
            moved = true;
          }
        }
        if (got < total) {
          const ssize_t n = recv(left_.get(), to + got, total - got, 0);
          if (n == 0) std::exit(1);
          if (n > 0) {
            got += static_cast<size_t>(n);
            moved = true;
          }
        }
        if (moved) {
          idle_ = 0;
        } else if (++idle_ > 100) {
          pollfd both[2] = {{left_.get(), static_cast<short>(got < total ? POLLIN : 0), 0},
                            {right_.get(), static_cast<short>(sent < total ? POLLOUT : 0), 0}};
          poll(both, 2, 1000);
        }
      }
    }
  }
  bool Computes() const override { return false; }

 private:
  const int ranks_;
  UniqueFd left_;
  UniqueFd right_;
  int idle_ = 0;
};

}  // namespace

int ServeTcpBound(int ranks) {
  return ServeRanks(ranks, /*processes=*/true, [&](int rank, Exchange& exchange) {
    return std::make_unique<BareStream>(rank, ranks, exchange);
  });
}

}  // namespace muster::bench
