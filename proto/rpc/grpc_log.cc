#include "proto/rpc/grpc_log.h"

#include <grpc/support/log.h>

#include <atomic>

namespace muster {
namespace {

// gRPC's hook takes a plain function, so its target has to be reachable from one.
std::atomic<Logger*> target = nullptr;

void Forward(gpr_log_func_args* line) {
  if (Logger* logger = target.load(std::memory_order_acquire)) {
    logger->Debug("grpc", line->message, {{"file", line->file}, {"line", line->line}});
  }
}

}  // namespace

void RouteGrpcLogTo(Logger& logger) {
  target.store(&logger, std::memory_order_release);
  gpr_set_log_function(&Forward);
}

}  // namespace muster
