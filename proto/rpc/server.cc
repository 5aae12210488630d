#include "proto/rpc/server.h"

#include <grpc/grpc.h>
#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/resource_quota.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server_builder.h>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "base/status_macros.h"
#include "proto/rpc/address.h"
#include "proto/rpc/bulk.h"
#include "proto/rpc/limits.h"

namespace muster {
namespace {

// Both switches are global to the process in gRPC, and not thread-safe there.
void EnableHealthAndReflectionOnce() {
  static const bool done = [] {
    grpc::EnableDefaultHealthCheckService(true);
    grpc::reflection::InitProtoReflectionServerBuilderPlugin();
    return true;
  }();
  (void)done;
}

}  // namespace

absl::StatusOr<RunningServer> StartServer(const ServerOptions& options) {
  MUSTER_ASSIGN_OR_RETURN(HostPort address, ParseHostPort(options.listen_address));
  // gRPC is content if one of a name's addresses can be bound; a daemon is not.
  MUSTER_RETURN_IF_ERROR(ProbeListen(address));
  EnableHealthAndReflectionOnce();

  RunningServer result;
  grpc::ServerBuilder builder;
  builder.AddListeningPort(ToString(address), grpc::InsecureServerCredentials(), &result.port);
  for (const ServedService& served : options.services) builder.RegisterService(served.service);
  // On by default: two daemons would share one port, and clients would meet either.
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveIntervalMs);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeoutMs);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
                             kKeepaliveLeastIntervalMs);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, options.max_concurrent_streams);
  builder.SetMaxReceiveMessageSize(kMaxMessageBytes);
  builder.SetMaxSendMessageSize(kMaxMessageBytes);
  if (options.bulk) SetBulkArguments(builder);
  grpc::ResourceQuota quota("muster");
  quota.SetMaxThreads(options.max_threads);
  if (options.memory_bytes > 0) quota.Resize(static_cast<size_t>(options.memory_bytes));
  builder.SetResourceQuota(quota);

  if (options.add) options.add(builder);
  result.server = builder.BuildAndStart();
  if (result.server == nullptr || result.port == 0) {
    // Somebody was quicker than this process between the probe and now.
    MUSTER_RETURN_IF_ERROR(ProbeListen(address));
    return absl::UnavailableError(
        absl::StrFormat("cannot listen on %s: the server could not start", ToString(address)));
  }
  address.port = result.port;
  result.address = ToString(address);
  grpc::HealthCheckServiceInterface* health = result.server->GetHealthCheckService();
  health->SetServingStatus("", true);
  for (const ServedService& served : options.services) {
    if (!served.name.empty()) health->SetServingStatus(served.name, true);
  }
  return result;
}

void ShutdownServer(grpc::Server& server, absl::Duration grace) {
  server.GetHealthCheckService()->Shutdown();
  server.Shutdown(absl::ToChronoTime(absl::Now() + grace));
  server.Wait();
}

}  // namespace muster
