#include "worker/runtime/connect_mesh.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "collectives/transport/grpc/grpc_transport.h"
#include "collectives/transport/ofi/ofi_transport.h"
#include "collectives/transport/shm/host_mesh.h"

namespace muster {
namespace {

absl::Status CannotHave(absl::string_view field, absl::string_view why) {
  return absl::UnimplementedError(absl::StrCat("communication.", field, ": ", why));
}

absl::StatusOr<ConnectedMesh> ConnectByLibfabric(const std::string& provider, TcpListener& listener,
                                                 MeshSpec spec, absl::Time deadline) {
  OfiOptions options;
  if (!provider.empty()) options.provider = provider;
  auto transport = OfiTransport::Connect(listener, std::move(spec), std::move(options), deadline);
  // What this host lacks, it lacks in the next view as well.
  if (absl::IsNotFound(transport.status()) || absl::IsResourceExhausted(transport.status())) {
    return CannotHave(provider.empty() ? "transport" : "provider", transport.status().message());
  }
  MUSTER_RETURN_IF_ERROR(transport.status());
  ConnectedMesh mesh;
  mesh.why = (*transport)->explanation();
  mesh.provider = mesh.why.substr(0, mesh.why.find(' '));  // it begins with the provider's name
  mesh.transport = *std::move(transport);
  return mesh;
}

// In shared memory, or if `required` is not set over TCP where that is not possible.
absl::StatusOr<ConnectedMesh> ConnectOnHost(bool required, TcpListener& listener, MeshSpec spec,
                                            std::shared_ptr<SharedArena> arena,
                                            const std::string& no_arena, absl::Time deadline) {
  const std::string lack = arena == nullptr ? absl::StrCat(": ", no_arena) : "";
  absl::StatusOr<HostMesh> host_mesh =
      ConnectHostMesh(required ? HostMeshKind::kSharedMemory : HostMeshKind::kBest, listener,
                      std::move(spec), std::move(arena), deadline);
  if (absl::IsUnimplemented(host_mesh.status())) {
    return CannotHave("transport", absl::StrCat(std::string(host_mesh.status().message()), lack));
  }
  MUSTER_RETURN_IF_ERROR(host_mesh.status());
  ConnectedMesh mesh;
  mesh.transport = std::move(host_mesh->transport);
  mesh.why = absl::StrCat(required ? "asked for; " : "auto: ", host_mesh->why, lack);
  return mesh;
}

absl::StatusOr<ConnectedMesh> Connect(const CommunicationSpec& communication, TcpListener& listener,
                                      GrpcListener* servers, MeshSpec spec,
                                      std::shared_ptr<SharedArena> arena,
                                      const std::string& no_arena, absl::Time deadline) {
  using enum CommunicationSpec::Transport;
  switch (communication.transport) {
    case kAutomatic:
    case kSharedMemory:
      return ConnectOnHost(communication.transport == kSharedMemory, listener, std::move(spec),
                           std::move(arena), no_arena, deadline);
    case kLibfabric:
      return ConnectByLibfabric(communication.provider, listener, std::move(spec), deadline);
    case kTcp:
    case kGrpc:
      break;
  }
  ConnectedMesh mesh;
  mesh.why = "asked for";
  if (MeetsAtServers(communication)) {
    MUSTER_CHECK(servers != nullptr);
    MUSTER_ASSIGN_OR_RETURN(mesh.transport,
                            GrpcTransport::Connect(*servers, std::move(spec), deadline));
    return mesh;
  }
  MUSTER_ASSIGN_OR_RETURN(mesh.transport,
                          TcpTransport::Connect(listener, std::move(spec), deadline));
  return mesh;
}

}  // namespace

CommunicationSpec CommunicationIn(const View& view, const JobSpec& job) {
  CommunicationSpec communication = job.communication;
  communication.algorithm = view.strategy.algorithm;
  communication.transport = view.strategy.transport;
  return communication;
}

bool MeetsAtServers(const CommunicationSpec& communication) {
  return communication.transport == CommunicationSpec::Transport::kGrpc;
}

Algorithm AlgorithmOf(const CommunicationSpec& spec) {
  using enum CommunicationSpec::Algorithm;
  switch (spec.algorithm) {
    case kAutomatic:
      return Algorithm::kAuto;
    case kRing:
      return Algorithm::kRing;
    case kDirect:
      return Algorithm::kDirect;
    case kRecursiveDoubling:
      return Algorithm::kRecursiveDoubling;
    case kHalvingDoubling:
      return Algorithm::kHalvingDoubling;
    case kDoubleTree:
      return Algorithm::kDoubleTree;
    case kHierarchical:
      return Algorithm::kHierarchical;
    case kStar:
      return Algorithm::kStar;
    case kWindow:
      return Algorithm::kWindow;
    case kOneShot:
      return Algorithm::kOneShot;
  }
  return Algorithm::kAuto;
}

absl::StatusOr<ConnectedMesh> ConnectMesh(const CommunicationSpec& communication,
                                          TcpListener& listener, GrpcListener* servers,
                                          MeshSpec spec, std::shared_ptr<SharedArena> arena,
                                          const std::string& no_arena, absl::Time deadline) {
  MUSTER_ASSIGN_OR_RETURN(ConnectedMesh mesh, Connect(communication, listener, servers,
                                                      std::move(spec), arena, no_arena, deadline));
  // Those who are no members any more may have ended.
  if (arena != nullptr) arena->others().DropUnused();
  if (communication.algorithm == CommunicationSpec::Algorithm::kWindow &&
      mesh.transport->window() == nullptr) {
    return CannotHave("algorithm",
                      absl::StrCat("WINDOW needs workers that share memory; these use ",
                                   std::string(mesh.transport->name()), " (", mesh.why, ")"));
  }
  return mesh;
}

}  // namespace muster
