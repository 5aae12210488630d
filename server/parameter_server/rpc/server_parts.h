// What the calls of a parameter server share.
#ifndef MUSTER_SERVER_PARAMETER_SERVER_RPC_SERVER_PARTS_H_
#define MUSTER_SERVER_PARAMETER_SERVER_RPC_SERVER_PARTS_H_

#include <memory>

#include "server/parameter_server/rpc/client_limit.h"
#include "server/parameter_server/rpc/in_flight.h"
#include "server/parameter_server/rpc/shared_account.h"
#include "server/parameter_server/rpc/table_registry.h"
#include "server/parameter_server/rpc/work_pool.h"

namespace muster {

// Each is thread-safe. Outlives all calls.
struct ServerParts {
  std::shared_ptr<WorkPool> pool;
  std::shared_ptr<SharedAccount> account;
  TableRegistry& tables;
  InFlight& in_flight;
  ClientLimit& clients;
};

}  // namespace muster

#endif  // MUSTER_SERVER_PARAMETER_SERVER_RPC_SERVER_PARTS_H_
