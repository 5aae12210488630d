// Measures what a mesh is capable of, all ranks together.
#ifndef MUSTER_COLLECTIVES_TUNER_MEASURE_H_
#define MUSTER_COLLECTIVES_TUNER_MEASURE_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "collectives/engine/communicator.h"
#include "collectives/model/link_model.h"
#include "collectives/schedule/schedule.h"

namespace muster {

struct MeasureOptions {
  // What is not measured by then, on rank 0's clock, is not measured: the largest vectors come
  // last. No single probe begins that is expected to end later.
  absl::Duration budget = absl::Milliseconds(600);
  // How far algorithms are from the formula is measured for these.
  std::vector<Collective> collectives = {Collective::kAllReduce};
  int64_t largest_bytes = 4 << 20;
};

// All ranks call it with equal options, nothing else outstanding, and wait. All get the same model,
// of times on the slowest rank. Each collective has the communicator's default timeout. Errors are
// those of Work::Wait.
absl::StatusOr<LinkModel> MeasureLinks(Communicator& communicator, const MeasureOptions& options);

// The text of `from` reaches all ranks. All call it and wait; the others' text is ignored. At most
// 1 MiB.
absl::StatusOr<std::string> BroadcastText(Communicator& communicator, Rank from,
                                          const std::string& text);

// `collective` over `count` f32 elements in all, root 0. The buffers hold `count` elements.
absl::Status RunCollective(Communicator& communicator, Collective collective, int64_t count,
                           Algorithm algorithm, const float* input, float* output);

}  // namespace muster

#endif  // MUSTER_COLLECTIVES_TUNER_MEASURE_H_
