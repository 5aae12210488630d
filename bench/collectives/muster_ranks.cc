#include "bench/allreduce/muster_ranks.h"

#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "absl/time/clock.h"
#include "bench/allreduce/rank_group.h"
#include "collectives/engine/communicator.h"
#include "collectives/transport/in_process_transport.h"
#include "collectives/transport/ofi/ofi_transport.h"
#include "collectives/transport/shm/host_mesh.h"
#include "collectives/transport/socket.h"
#include "collectives/transport/tcp_transport.h"

namespace muster::bench {
namespace {

template <typename T>
T OrDie(absl::StatusOr<T> value) {
  if (!value.ok()) {
    std::fprintf(stderr, "bench-allreduce: %s\n", value.status().ToString().c_str());
    std::exit(1);
  }
  return *std::move(value);
}

class MusterReducer : public AllReducer {
 public:
  MusterReducer(std::unique_ptr<TcpListener> listener, std::unique_ptr<Transport> transport,
                const MusterOptions& options, std::shared_ptr<SharedArena> arena = nullptr)
      : listener_(std::move(listener)), arena_(std::move(arena)) {
    CommunicatorOptions communicator;
    if (options.segment_bytes > 0) communicator.segment_bytes = options.segment_bytes;
    if (options.direct_limit_bytes >= 0)
      communicator.direct_limit_bytes = options.direct_limit_bytes;
    if (options.small_limit_bytes >= 0) {
      communicator.window_small_limit_bytes = options.small_limit_bytes;
    }
    if (options.spin_us >= 0) communicator.spin = absl::Microseconds(options.spin_us);
    communicator_ = OrDie(Communicator::Create(std::move(transport), communicator));
  }

  float* Allocate(size_t count) override {
    if (arena_ == nullptr) return AllReducer::Allocate(count);
    buffers_.push_back(OrDie(arena_->Allocate(static_cast<int64_t>(count * sizeof(float)))));
    return reinterpret_cast<float*>(buffers_.back().data());
  }

  void Run(const float* input, float* output, size_t count, const std::string& variant) override {
    CollectiveOptions options;
    options.caller_waits = true;
    if (variant == "ring") options.algorithm = Algorithm::kRing;
    if (variant == "direct") options.algorithm = Algorithm::kDirect;
    const absl::Status status = communicator_
                                    ->AllReduce(input, output, static_cast<int64_t>(count),
                                                DType::kF32, ReduceOp::kSum, options)
                                    .Wait();
    if (status.ok()) return;
    std::fprintf(stderr, "bench-allreduce: %s\n", status.ToString().c_str());
    std::exit(1);
  }

 private:
  std::unique_ptr<TcpListener> listener_;
  std::shared_ptr<SharedArena> arena_;
  std::vector<SharedBuffer> buffers_;
  std::unique_ptr<Communicator> communicator_;
};

// Streams bytes around the ring of ranks.
class BareStream : public AllReducer {
 public:
  BareStream(int rank, int ranks, Exchange& exchange) : ranks_(ranks) {
    const UniqueFd listening = OrDie(ListenOn(OrDie(ResolveBindHost("127.0.0.1", 0))));
    const auto addresses = exchange.AllToAll(rank, OrDie(LocalAddress(listening.get())).ToString());
    right_ = OrDie(StartConnect(OrDie(ParseAddress(addresses[(rank + 1) % ranks]))));
    pollfd waiting = {listening.get(), POLLIN, 0};
    poll(&waiting, 1, 10000);
    left_ = UniqueFd(accept4(listening.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    waiting = {right_.get(), POLLOUT, 0};
    poll(&waiting, 1, 10000);
    for (int fd : {right_.get(), left_.get()}) {
      const absl::Status status = ConfigureStream(fd, absl::Seconds(20), 0);
      if (!status.ok()) std::exit(1);
    }
  }

  void Run(const float* input, float* output, size_t count, const std::string&) override {
    // Twice around, (n-1)/n of the vector each time.
    for (int phase = 0; phase < 2; ++phase) {
      const size_t total =
          count * sizeof(float) / static_cast<size_t>(ranks_) * static_cast<size_t>(ranks_ - 1);
      size_t sent = 0, got = 0;
      const auto* from = reinterpret_cast<const char*>(input);
      auto* to = reinterpret_cast<char*>(output);
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
  bool Sums() const override { return false; }

 private:
  const int ranks_;
  UniqueFd left_;
  UniqueFd right_;
  int idle_ = 0;
};

}  // namespace

namespace {

// Ranks in processes of their own, connected by `connect(listener, spec, arena)`.
template <typename Connect>
int ServeProcesses(int ranks, const MusterOptions& options, const Connect& connect,
                   bool registered = false) {
  return ServeRanks(ranks, /*processes=*/true, [&](int rank, Exchange& exchange) {
    auto listener = OrDie(TcpListener::Create());
    MeshSpec spec;
    spec.token = "bench";
    spec.epoch = 1;
    spec.rank = rank;
    for (const std::string& address : exchange.AllToAll(rank, listener->address())) {
      spec.members.push_back({Incarnation{spec.members.size() + 1}, address});
    }
    auto arena = OrDie(SharedArena::Create());
    std::unique_ptr<Transport> transport = connect(*listener, std::move(spec), arena);
    return std::make_unique<MusterReducer>(std::move(listener), std::move(transport), options,
                                           registered ? arena : nullptr);
  });
}

absl::Time ConnectDeadline() { return absl::Now() + absl::Seconds(20); }

}  // namespace

int ServeMusterTcp(int ranks, const MusterOptions& options) {
  return ServeProcesses(ranks, options, [&](TcpListener& listener, MeshSpec spec, auto&) {
    spec.options.channels = options.channels;
    spec.options.socket_buffer_bytes = options.socket_buffer_bytes;
    return OrDie(TcpTransport::Connect(listener, std::move(spec), ConnectDeadline()));
  });
}

int ServeMusterOfi(int ranks, const MusterOptions& options) {
  return ServeProcesses(ranks, options, [&](TcpListener& listener, MeshSpec spec, auto&) {
    OfiOptions ofi;
    ofi.provider = options.provider;
    if (options.packet_bytes > 0) ofi.packet_bytes = options.packet_bytes;
    const bool speaks = spec.rank == 0;
    auto transport =
        OrDie(OfiTransport::Connect(listener, std::move(spec), ofi, ConnectDeadline()));
    if (speaks) std::fprintf(stderr, "# ofi: %s\n", transport->explanation().c_str());
    return transport;
  });
}

int ServeMusterShm(int ranks, bool registered, const MusterOptions& options) {
  const auto connect = [](TcpListener& listener, MeshSpec spec,
                          const std::shared_ptr<SharedArena>& arena) {
    return OrDie(ConnectHostMesh(HostMeshKind::kSharedMemory, listener, std::move(spec), arena,
                                 ConnectDeadline()))
        .transport;
  };
  return ServeProcesses(ranks, options, connect, registered);
}

int ServeMusterInProcess(int ranks, const MusterOptions& options) {
  auto mesh = MakeInProcessMesh(ranks);
  return ServeRanks(ranks, /*processes=*/false, [&](int rank, Exchange&) {
    return std::make_unique<MusterReducer>(nullptr, std::move(mesh[rank]), options);
  });
}

int ServeTcpBound(int ranks) {
  return ServeRanks(ranks, /*processes=*/true, [&](int rank, Exchange& exchange) {
    return std::make_unique<BareStream>(rank, ranks, exchange);
  });
}

}  // namespace muster::bench
