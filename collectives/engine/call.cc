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

// Elements before this rank's part.
int64_t PartOffset(const ScheduleRequest& request) {
  int64_t offset = 0;
  for (Rank r = 0; r < request.rank; ++r) offset += request.counts[r];
  return offset;
}

}  // namespace

absl::Status CheckCall(Call& call) {
  ScheduleRequest& request = call.request;
  const Algorithm algorithm = request.algorithm;
  if (algorithm == Algorithm::kAuto) request.algorithm = Algorithm::kDirect;
  const absl::Status valid = ValidateRequest(request);
  request.algorithm = algorithm;
  MUSTER_RETURN_IF_ERROR(valid);

  const auto size = static_cast<int64_t>(SizeOf(call.dtype));
  const bool ignores_input =
      request.collective == Collective::kBroadcast && request.rank != request.root;
  const int64_t input_bytes = ignores_input ? 0 : InputCount(request) * size;
  const int64_t output_bytes = OutputCount(request) * size;
  if ((input_bytes > 0 && call.input == nullptr) || (output_bytes > 0 && call.output == nullptr)) {
    return absl::InvalidArgumentError("a buffer is null");
  }
  if (!Overlap(call.input, input_bytes, call.output, output_bytes)) return absl::OkStatus();
  const auto* const input = static_cast<const std::byte*>(call.input);
  const auto* const output = static_cast<const std::byte*>(call.output);
  bool in_place = input == output;
  if (request.collective == Collective::kReduceScatter) {
    in_place = output == input + PartOffset(request) * size;
  } else if (request.collective == Collective::kAllGather) {
    in_place = input == output + PartOffset(request) * size;
  }
  if (!in_place) {
    return absl::InvalidArgumentError(
        "input and output overlap otherwise than in place (communicator.h says how they may)");
  }
  request.in_place = true;
  return absl::OkStatus();
}

}  // namespace muster
