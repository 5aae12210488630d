#include "collectives/engine/call.h"

#include <cstddef>
#include <cstdint>

#include "base/status_macros.h"

namespace muster {
namespace {

bool Overlap(const void* a, int64_t a_bytes, const void* b, int64_t b_bytes) {
  const auto first = reinterpret_cast<uintptr_t>(a);
  const auto second = reinterpret_cast<uintptr_t>(b);
  return a_bytes > 0 && b_bytes > 0 && first < second + static_cast<uintptr_t>(b_bytes) &&
         second < first + static_cast<uintptr_t>(a_bytes);
}

}  // namespace

absl::Status CheckCall(Call& call) {
  ScheduleRequest& request = call.request;
  const Algorithm algorithm = request.algorithm;
  // The direct one exists for every collective; windows have no schedule of messages.
  if (algorithm == Algorithm::kAuto || algorithm == Algorithm::kWindow) {
    request.algorithm = Algorithm::kDirect;
  }
  const absl::Status valid = ValidateRequest(request);
  request.algorithm = algorithm;
  MUSTER_RETURN_IF_ERROR(valid);
  return CheckBuffers(call);
}

absl::Status CheckBuffers(Call& call) {
  ScheduleRequest& request = call.request;
  const auto size = static_cast<int64_t>(SizeOf(call.dtype));
  const int64_t input_bytes = InputCount(request) * size;
  const int64_t output_bytes = OutputCount(request) * size;
  if ((input_bytes > 0 && call.input == nullptr) || (output_bytes > 0 && call.output == nullptr)) {
    return absl::InvalidArgumentError("a buffer is null");
  }
  if (!Overlap(call.input, input_bytes, call.output, output_bytes)) return absl::OkStatus();
  const auto* const input = static_cast<const std::byte*>(call.input);
  const auto* const output = static_cast<const std::byte*>(call.output);
  bool in_place = false;
  switch (request.collective) {
    case Collective::kAllReduce:
    case Collective::kBroadcast:
    case Collective::kReduce:
      in_place = input == output;
      break;
    case Collective::kReduceScatter:
    case Collective::kScatter:
    case Collective::kPush:
      in_place = output == input + OwnOffset(request) * size;
      break;
    case Collective::kAllGather:
    case Collective::kGather:
    case Collective::kPull:
      in_place = input == output + OwnOffset(request) * size;
      break;
    case Collective::kAllToAll:
    case Collective::kSendReceive:
    case Collective::kBarrier:
      break;
  }
  if (!in_place) {
    return absl::InvalidArgumentError(
        "input and output overlap otherwise than in place (communicator.h says how they may)");
  }
  request.in_place = true;
  return absl::OkStatus();
}

}  // namespace muster
