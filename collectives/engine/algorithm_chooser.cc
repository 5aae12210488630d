#include "collectives/engine/algorithm_chooser.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "collectives/schedule/make_schedule.h"
#include "collectives/schedule/window_schedule.h"

namespace muster {
namespace {

// Different calls whose choice is kept.
constexpr size_t kMaxChosen = 1024;

std::string WhyByRule(Algorithm algorithm, int64_t direct_limit_bytes) {
  switch (algorithm) {
    case Algorithm::kOneShot:
      return "one hop; so short that it counts more than the bytes";
    case Algorithm::kDirect:
    case Algorithm::kBinomialTree:
      return absl::StrCat("fewest messages in a row; for up to ", direct_limit_bytes, " bytes");
    case Algorithm::kRing:
      return absl::StrCat("least on each link; for more than ", direct_limit_bytes, " bytes");
    default:
      return "";
  }
}

bool MayUseWindow(const ChoiceRequest& request) {
  return request.window.has_value() && WindowSchedule::Supports(request.collective);
}

}  // namespace

ChoiceRequest AlgorithmChooser::RequestFor(Collective collective, int64_t count, DType dtype,
                                           int size) const {
  ChoiceRequest request;
  request.collective = collective;
  request.count = count;
  request.dtype = dtype;
  request.size = size;
  request.any_order = options_.any_order;
  request.segment_bytes = options_.segment_bytes;
  request.window = window_;
  return request;
}

const AlgorithmChooser::Chosen& AlgorithmChooser::Choose(const ChoiceRequest& request) {
  Key key = {request.collective, request.dtype, request.window.has_value(),
             request.size,       request.root,  request.contributors,
             request.count,      request.hosts};
  auto it = chosen_.find(key);
  if (it == chosen_.end()) {
    if (chosen_.size() >= kMaxChosen) chosen_.clear();
    it = chosen_.emplace(std::move(key), Decide(request)).first;
  }
  return it->second;
}

AlgorithmExplanation AlgorithmChooser::Explain(const ChoiceRequest& request) {
  if (model_ != nullptr) {
    const AlgorithmChoice choice = muster::Choose(*model_, request);
    return {choice.algorithm, choice.segment_bytes, muster::Explain(*model_, request, choice)};
  }
  const Chosen chosen = Decide(request);
  return {chosen.algorithm, chosen.segment_bytes,
          absl::StrCat(Name(chosen.algorithm), ": ", chosen.why, "; the mesh was not measured")};
}

AlgorithmChooser::Chosen AlgorithmChooser::Decide(const ChoiceRequest& request) const {
  if (model_ != nullptr) {
    const AlgorithmChoice choice = muster::Choose(*model_, request);
    return {choice.algorithm, choice.segment_bytes, Comparison(choice)};
  }
  Chosen chosen{.segment_bytes = options_.segment_bytes};
  if (MayUseWindow(request)) {
    chosen.algorithm = Algorithm::kWindow;
    chosen.why = "the ranks share memory";
    return chosen;
  }
  const bool half_precision = Reduces(request.collective) && IsHalfPrecision(request.dtype);
  chosen.algorithm = ChooseAlgorithm(request.collective, half_precision,
                                     request.count * static_cast<int64_t>(SizeOf(request.dtype)),
                                     request.size, options_.direct_limit_bytes);
  chosen.why = WhyByRule(chosen.algorithm, options_.direct_limit_bytes);
  return chosen;
}

}  // namespace muster
