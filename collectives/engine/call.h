// One collective as a caller asks for it, and the check of its arguments. Pure.
#ifndef MUSTER_COLLECTIVES_ENGINE_CALL_H_
#define MUSTER_COLLECTIVES_ENGINE_CALL_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "base/dtype.h"
#include "collectives/reduce/reduce_op.h"
#include "collectives/schedule/schedule_request.h"

namespace muster {

// Some of the ranks of a mesh, as a communicator of their own. A communicator of all has none.
struct RankGroup {
  uint64_t scope = 0;         // who counts its calls (fingerprint.h), the same on its ranks
  std::vector<Rank> members;  // ranks of the mesh, in the group's order
  Rank rank = 0;              // this one, within the group
};

struct Call {
  ScheduleRequest request;  // its algorithm may be kAuto; its ranks are the group's
  std::shared_ptr<const RankGroup> group;
  std::vector<int32_t> hosts;  // of the group's ranks, if kAuto may depend on them
  DType dtype = DType::kU8;
  std::optional<ReduceOp> op;
  const void* input = nullptr;
  void* output = nullptr;
};

// Finds out whether the call is in place and says so in its request. INVALID_ARGUMENT: the request
// is wrong (ValidateRequest), a buffer is null, or buffers overlap otherwise than in place.
absl::Status CheckCall(Call& call);
// The part of it that depends on the buffers. Requires: the request is right.
absl::Status CheckBuffers(Call& call);

}  // namespace muster

#endif  // MUSTER_COLLECTIVES_ENGINE_CALL_H_
