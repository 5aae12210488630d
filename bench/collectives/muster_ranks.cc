#include "bench/collectives/muster_ranks.h"

#include <cstdio>
#include <cstdlib>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "collectives/schedule/schedule_request.h"
#include "collectives/transport/grpc/grpc_transport.h"
#include "collectives/transport/in_process_transport.h"
#include "collectives/transport/ofi/ofi_transport.h"
#include "collectives/transport/shm/host_mesh.h"
#include "collectives/transport/tcp_transport.h"
#include "collectives/tuner/measure.h"

namespace muster::bench {
namespace {

// In a rank's process, which has nobody to return to.
template <typename T>
T OrDie(absl::StatusOr<T> value) {
  if (!value.ok()) {
    std::fprintf(stderr, "bench: %s\n", value.status().ToString().c_str());
    std::exit(1);
  }
  return *std::move(value);
}

Collective CollectiveOf(Kind kind) {
  switch (kind) {
    case Kind::kAllReduce:
      return Collective::kAllReduce;
    case Kind::kReduceScatter:
      return Collective::kReduceScatter;
    case Kind::kAllGather:
      return Collective::kAllGather;
    case Kind::kBroadcast:
      return Collective::kBroadcast;
    case Kind::kReduce:
      return Collective::kReduce;
    case Kind::kGather:
      return Collective::kGather;
    case Kind::kScatter:
      return Collective::kScatter;
    case Kind::kAllToAll:
      return Collective::kAllToAll;
    case Kind::kSendReceive:
      return Collective::kSendReceive;
    case Kind::kBarrier:
      return Collective::kBarrier;
  }
  MUSTER_CHECK(false);
  __builtin_unreachable();
}

DType DTypeOf(ElementType type) { return DTypeFromName(Name(type)).value(); }
ReduceOp ReduceOpOf(Redop redop) { return ReduceOpFromName(Name(redop)).value(); }

// By its name; "auto" and "unregistered" leave the choice to the communicator.
Algorithm AlgorithmOf(Kind kind, absl::string_view variant) {
  for (const Algorithm algorithm : AlgorithmsOf(CollectiveOf(kind))) {
    if (Name(algorithm) == variant) return algorithm;
  }
  return Algorithm::kAuto;
}

// As many ranks in a row on each.
int HostOf(int rank, int ranks, int hosts) { return rank * hosts / ranks; }

class MusterRank : public BenchRank {
 public:
  MusterRank(std::unique_ptr<Communicator> communicator, std::shared_ptr<SharedArena> arena,
             const MusterOptions& options)
      : arena_(std::move(arena)),
        communicator_(std::move(communicator)),
        hosts_(options.hosts),
        is_to_tune_(options.tunes) {}

  bool Supports(const Trial& trial) const override {
    const absl::string_view variant = trial.variant;
    return variant == "unregistered" || CanMeasure(trial.kind, trial.type, trial.variant, hosts_);
  }

  void* Allocate(size_t bytes) override {
    if (arena_ == nullptr) return BenchRank::Allocate(bytes);
    buffers_.push_back(OrDie(arena_->Allocate(static_cast<int64_t>(bytes))));
    return buffers_.back().data();
  }

  void Run(const Trial& trial, const void* input, void* output) override {
    CollectiveOptions options;
    options.caller_waits = true;
    options.algorithm = AlgorithmOf(trial.kind, trial.variant);
    // Not when the ranks start, as others do then.
    if (options.algorithm == Algorithm::kAuto && std::exchange(is_to_tune_, false)) {
      communicator_->SetModel(
          std::make_shared<LinkModel>(OrDie(MeasureLinks(*communicator_, MeasureOptions()))));
    }
    const absl::Status status = trial.kind == Kind::kSendReceive
                                    ? SendReceive(trial, input, output, options)
                                    : Issue(trial, input, output, options).Wait();
    if (status.ok()) return;
    std::fprintf(stderr, "bench: %s\n", status.ToString().c_str());
    std::exit(1);
  }

 private:
  Work Issue(const Trial& trial, const void* input, void* output,
             const CollectiveOptions& options) {
    Communicator& all = *communicator_;
    const auto count = static_cast<int64_t>(trial.count);
    const DType dtype = DTypeOf(trial.type);
    const ReduceOp op = ReduceOpOf(trial.redop);
    counts_.assign(static_cast<size_t>(all.world_size()), count);
    switch (trial.kind) {
      case Kind::kAllReduce:
        return all.AllReduce(input, output, count, dtype, op, options);
      case Kind::kReduceScatter:
        return all.ReduceScatter(input, output, counts_, dtype, op, options);
      case Kind::kAllGather:
        return all.AllGather(input, output, counts_, dtype, options);
      case Kind::kBroadcast:
        return all.Broadcast(input, output, count, dtype, trial.root, options);
      case Kind::kReduce:
        return all.Reduce(input, output, count, dtype, op, trial.root, options);
      case Kind::kGather:
        return all.Gather(input, output, counts_, dtype, trial.root, options);
      case Kind::kScatter:
        return all.Scatter(input, output, counts_, dtype, trial.root, options);
      case Kind::kAllToAll:
        return all.AllToAll(input, output, count, dtype, options);
      case Kind::kBarrier:
        return all.Barrier(options);
      case Kind::kSendReceive:
        break;
    }
    MUSTER_CHECK(false) << "a pair of calls";
    __builtin_unreachable();
  }

  absl::Status SendReceive(const Trial& trial, const void* input, void* output,
                           const CollectiveOptions& options) {
    const int ranks = communicator_->world_size();
    const Rank rank = communicator_->rank();
    const auto count = static_cast<int64_t>(trial.count);
    const DType dtype = DTypeOf(trial.type);
    Work send = communicator_->Send(input, count, dtype, (rank + 1) % ranks, options);
    Work receive =
        communicator_->Receive(output, count, dtype, (rank + ranks - 1) % ranks, options);
    MUSTER_RETURN_IF_ERROR(receive.Wait());
    return send.Wait();
  }

  const std::shared_ptr<SharedArena> arena_;
  std::vector<SharedBuffer> buffers_;
  std::vector<int64_t> counts_;
  const std::unique_ptr<Communicator> communicator_;
  const int hosts_;
  bool is_to_tune_;
};

}  // namespace

CommunicatorOptions CommunicatorOptionsOf(const MusterOptions& options, int ranks) {
  CommunicatorOptions result;
  if (options.segment_bytes > 0) result.segment_bytes = options.segment_bytes;
  if (options.direct_limit_bytes >= 0) result.direct_limit_bytes = options.direct_limit_bytes;
  if (options.small_limit_bytes >= 0) result.window_small_limit_bytes = options.small_limit_bytes;
  if (options.spin_us >= 0) result.spin = absl::Microseconds(options.spin_us);
  for (int r = 0; options.hosts > 1 && r < ranks; ++r) {
    result.hosts.push_back(HostOf(r, ranks, options.hosts));
  }
  return result;
}

absl::StatusOr<MusterEnd> JoinMesh(const std::string& transport, int rank, Exchange& exchange,
                                   const MusterOptions& options) {
  MusterEnd end;
  MUSTER_ASSIGN_OR_RETURN(end.listener, TcpListener::Create());
  if (transport == "grpc") {
    MUSTER_ASSIGN_OR_RETURN(end.server, GrpcListener::Serve());
  }
  MeshSpec spec;
  spec.token = "bench";
  spec.epoch = 1;
  spec.rank = rank;
  spec.options.channels = options.channels;
  spec.options.socket_buffer_bytes = options.socket_buffer_bytes;
  const std::vector<std::string> addresses = exchange.AllToAll(
      rank, end.server != nullptr ? end.server->address() : end.listener->address());
  const int ranks = static_cast<int>(addresses.size());
  const int hosts = transport == "shm+tcp" ? options.hosts : 1;
  for (int r = 0; r < ranks; ++r) {
    spec.members.push_back({.incarnation = Incarnation{static_cast<uint64_t>(r) + 1},
                            .address = addresses[r],
                            .host = absl::StrCat("host-", HostOf(r, ranks, hosts))});
  }
  const absl::Time deadline = absl::Now() + absl::Seconds(20);
  if (transport == "shm" || transport == "shm+tcp") {
    MUSTER_ASSIGN_OR_RETURN(end.arena, SharedArena::Create());
    MUSTER_ASSIGN_OR_RETURN(
        HostMesh mesh,
        ConnectHostMesh(transport == "shm" ? HostMeshKind::kSharedMemory : HostMeshKind::kBest,
                        *end.listener, std::move(spec), end.arena, deadline));
    if (mesh.transport->name() != transport) {
      return absl::InvalidArgumentError(absl::StrCat("--transport ", transport, " with --hosts ",
                                                     options.hosts, " and ", ranks, " ranks is ",
                                                     mesh.transport->name(), ": ", mesh.why));
    }
    end.transport = std::move(mesh.transport);
  } else if (transport == "ofi") {
    OfiOptions ofi;
    ofi.provider = options.provider;
    if (options.packet_bytes > 0) ofi.packet_bytes = options.packet_bytes;
    MUSTER_ASSIGN_OR_RETURN(auto connected,
                            OfiTransport::Connect(*end.listener, std::move(spec), ofi, deadline));
    end.explanation = absl::StrCat("ofi: ", connected->explanation());
    end.transport = std::move(connected);
  } else if (transport == "grpc") {
    MUSTER_ASSIGN_OR_RETURN(end.transport,
                            GrpcTransport::Connect(*end.server, std::move(spec), deadline));
  } else if (transport == "tcp") {
    MUSTER_ASSIGN_OR_RETURN(end.transport,
                            TcpTransport::Connect(*end.listener, std::move(spec), deadline));
  } else {
    return absl::InvalidArgumentError("transport " + transport +
                                      "; expected shm, tcp, shm+tcp, grpc or ofi");
  }
  return end;
}

bool CanMeasure(Kind kind, ElementType type, const std::string& algorithm, int hosts) {
  if (algorithm == "auto") return true;
  const Algorithm named = AlgorithmOf(kind, algorithm);
  if (named == Algorithm::kAuto) return false;
  if (named == Algorithm::kHierarchical && hosts == 1) return false;
  const bool half_precision = Reduces(kind) && IsHalfPrecision(DTypeOf(type));
  return !half_precision || KeepsCanonicalOrder(CollectiveOf(kind), named);
}

std::unique_ptr<BenchRank> MakeMusterRank(std::unique_ptr<Communicator> communicator,
                                          std::shared_ptr<SharedArena> arena,
                                          const MusterOptions& options) {
  return std::make_unique<MusterRank>(std::move(communicator), std::move(arena), options);
}

int ServeMuster(const std::string& transport, int ranks, bool registered,
                const MusterOptions& options) {
  if (transport == "inproc") {
    auto mesh = MakeInProcessMesh(ranks);
    return ServeRanks(ranks, /*processes=*/false, [&](int rank, Exchange&) {
      return MakeMusterRank(
          OrDie(Communicator::Create(std::move(mesh[rank]), CommunicatorOptionsOf(options, ranks))),
          nullptr, options);
    });
  }
  // Of this process's one rank; outlives it.
  MusterEnd end;
  return ServeRanks(ranks, /*processes=*/true, [&](int rank, Exchange& exchange) {
    end = OrDie(JoinMesh(transport, rank, exchange, options));
    if (rank == 0 && !end.explanation.empty()) {
      std::fprintf(stderr, "# %s\n", end.explanation.c_str());
    }
    return MakeMusterRank(OrDie(Communicator::Create(std::move(end.transport),
                                                     CommunicatorOptionsOf(options, ranks))),
                          registered ? end.arena : nullptr, options);
  });
}

}  // namespace muster::bench
