#include "server/parameter_server/core/memory_account.h"

#include "base/check.h"

namespace muster {

void SimpleMemoryAccount::Return(int64_t bytes) {
  MUSTER_CHECK_LE(bytes, taken_);
  taken_ -= bytes;
}

}  // namespace muster
