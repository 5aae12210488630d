#include "client/tune/local_mesh.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/status_macros.h"
#include "collectives/transport/in_process_transport.h"
#include "collectives/transport/ofi/ofi_transport.h"
#include "collectives/transport/shm/host_mesh.h"
#include "collectives/transport/tcp_transport.h"

namespace muster {
namespace {

constexpr absl::Duration kConnectTimeout = absl::Seconds(20);
// Address space of a process that arenas may take: each of its ranks maps those of all.
constexpr int64_t kAddressSpace = int64_t{1} << 46;
constexpr int64_t kArenaMost = int64_t{64} << 30;

// The error of the lowest rank that has one.
absl::Status OnRanks(int ranks, const std::function<absl::Status(Rank)>& body) {
  std::vector<absl::Status> statuses(static_cast<size_t>(ranks));
  std::vector<std::thread> threads;
  for (Rank r = 0; r < ranks; ++r) {
    threads.emplace_back([&, r] { statuses[static_cast<size_t>(r)] = body(r); });
  }
  for (std::thread& thread : threads) thread.join();
  for (Rank r = 0; r < ranks; ++r) {
    const absl::Status& status = statuses[static_cast<size_t>(r)];
    if (!status.ok()) return Annotate(status, absl::StrCat("rank ", r));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Transport>> Connect(const std::string& transport,
                                                   TcpListener& listener, MeshSpec spec,
                                                   std::shared_ptr<SharedArena> arena) {
  const absl::Time deadline = absl::Now() + kConnectTimeout;
  if (transport == "tcp") return TcpTransport::Connect(listener, std::move(spec), deadline);
  if (transport == "ofi") {
    return OfiTransport::Connect(listener, std::move(spec), OfiOptions(), deadline);
  }
  MUSTER_ASSIGN_OR_RETURN(HostMesh mesh,
                          ConnectHostMesh(HostMeshKind::kSharedMemory, listener, std::move(spec),
                                          std::move(arena), deadline));
  return std::move(mesh.transport);
}

}  // namespace

absl::StatusOr<std::unique_ptr<LocalMesh>> LocalMesh::Create(const std::string& transport,
                                                             int ranks,
                                                             const CommunicatorOptions& options) {
  auto mesh = absl::WrapUnique(new LocalMesh);
  const auto count = static_cast<size_t>(ranks);
  mesh->shares_memory_ = transport == "shm";
  mesh->shared_.resize(count);
  mesh->own_.resize(count);
  std::vector<std::unique_ptr<Transport>> ends(count);
  if (transport == "inproc") {
    ends = MakeInProcessMesh(ranks);
  } else if (transport == "shm" || transport == "tcp" || transport == "ofi") {
    MeshSpec spec;
    spec.token = "muster-tune";
    spec.epoch = 1;
    for (size_t r = 0; r < count; ++r) {
      MUSTER_ASSIGN_OR_RETURN(auto listener, TcpListener::Create());
      spec.members.push_back({Incarnation{r + 1}, listener->address()});
      mesh->listeners_.push_back(std::move(listener));
      if (!mesh->shares_memory_) continue;
      SharedArena::Options arena_options;
      arena_options.capacity_bytes = std::min(kArenaMost, kAddressSpace / ranks / ranks);
      MUSTER_ASSIGN_OR_RETURN(mesh->arenas_.emplace_back(), SharedArena::Create(arena_options));
    }
    MUSTER_RETURN_IF_ERROR(OnRanks(ranks, [&](Rank r) -> absl::Status {
      const auto at = static_cast<size_t>(r);
      MeshSpec own = spec;
      own.rank = r;
      MUSTER_ASSIGN_OR_RETURN(ends[at],
                              Connect(transport, *mesh->listeners_[at], std::move(own),
                                      mesh->shares_memory_ ? mesh->arenas_[at] : nullptr));
      return absl::OkStatus();
    }));
  } else {
    return absl::InvalidArgumentError(
        absl::StrCat("expected the transport inproc, shm, tcp or ofi, got \"", transport, "\""));
  }
  for (auto& end : ends) {
    MUSTER_ASSIGN_OR_RETURN(auto communicator, Communicator::Create(std::move(end), options));
    mesh->communicators_.push_back(std::move(communicator));
  }
  return mesh;
}

absl::StatusOr<float*> LocalMesh::Allocate(Rank rank, int64_t count) {
  const auto at = static_cast<size_t>(rank);
  if (!shares_memory_) {
    own_[at].push_back(std::make_unique<float[]>(static_cast<size_t>(count)));
    return own_[at].back().get();
  }
  MUSTER_ASSIGN_OR_RETURN(SharedBuffer buffer,
                          arenas_[at]->Allocate(count * static_cast<int64_t>(sizeof(float))));
  shared_[at].push_back(std::move(buffer));
  return reinterpret_cast<float*>(shared_[at].back().data());
}

absl::Status LocalMesh::OnAllRanks(const std::function<absl::Status(Communicator&)>& body) {
  return OnRanks(size(), [&](Rank r) {
    absl::Status status = body(At(r));
    if (!status.ok()) At(r).Abort(status);
    return status;
  });
}

}  // namespace muster
