#include "worker/runtime/residual_handover.h"

#include <algorithm>

#include "base/check.h"
#include "base/status_macros.h"

namespace muster {

std::vector<std::pair<Rank, Rank>> ResidualHandovers(const View& view) {
  std::vector<Rank> leaving;
  std::vector<Rank> staying;
  for (Rank rank = 0; rank < view.workers(); ++rank) {
    const Incarnation member = view.members[static_cast<size_t>(rank)].incarnation;
    const bool leaves =
        std::find(view.leaving.begin(), view.leaving.end(), member) != view.leaving.end();
    (leaves ? leaving : staying).push_back(rank);
  }
  std::vector<std::pair<Rank, Rank>> pairs;
  if (staying.empty()) return pairs;
  for (size_t i = 0; i < leaving.size(); ++i) {
    pairs.emplace_back(leaving[i], staying[i % staying.size()]);
  }
  return pairs;
}

absl::StatusOr<std::vector<ResidualsGiven>> HandOverResiduals(Communicator& communicator,
                                                              const View& view,
                                                              absl::Span<const float> carried,
                                                              int64_t count, absl::Duration timeout,
                                                              std::optional<Rank>* culprit) {
  CollectiveOptions options;
  options.timeout = timeout;
  options.label = "residuals";
  options.step = view.resume.step;
  const std::vector<float> zeros(carried.empty() ? static_cast<size_t>(count) : 0);
  if (carried.empty()) carried = zeros;
  MUSTER_CHECK_EQ(static_cast<int64_t>(carried.size()), count);
  std::vector<ResidualsGiven> given;
  std::vector<Work> works;
  for (const auto& [from, to] : ResidualHandovers(view)) {
    if (communicator.rank() == from) {
      works.push_back(communicator.Send(carried.data(), count, DType::kF32, to, options));
    } else if (communicator.rank() == to) {
      given.push_back({view.members[static_cast<size_t>(from)].incarnation,
                       std::vector<float>(static_cast<size_t>(count))});
      works.push_back(
          communicator.Receive(given.back().values.data(), count, DType::kF32, from, options));
    }
  }
  absl::Status status;
  for (Work& work : works) {
    const absl::Status done = work.Wait();
    if (!done.ok() && status.ok()) *culprit = work.culprit();
    status.Update(done);
  }
  if (!status.ok()) {
    // Nothing may write to what is about to go.
    communicator.Abort(status, *culprit);
    return status;
  }
  return given;
}

}  // namespace muster
