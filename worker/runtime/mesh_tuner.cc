#include "worker/runtime/mesh_tuner.h"

#include <algorithm>
#include <map>
#include <utility>

#include "base/status_macros.h"
#include "base/version.h"
#include "worker/sync/commit_exchange.h"

namespace muster {
namespace {

// A first view waits for this; later ones rarely measure.
constexpr absl::Duration kBudget = absl::Milliseconds(400);

}  // namespace

std::vector<int32_t> HostsOf(const View& view) {
  std::map<std::string, int32_t> numbers;
  std::vector<int32_t> hosts;
  for (const Member& member : view.members) {
    hosts.push_back(
        numbers.emplace(member.host, static_cast<int32_t>(numbers.size())).first->second);
  }
  return hosts;
}

absl::Status MeshTuner::Tune(Communicator& communicator, const View& view,
                             const CommunicationSpec& spec, const std::string& provider) {
  in_use_ = nullptr;
  if (spec.algorithm != CommunicationSpec::Algorithm::kAutomatic) return absl::OkStatus();
  if (communicator.world_size() == 1) return absl::OkStatus();
  TuneOptions options;
  options.identity.transport = communicator.transport_name();
  options.identity.provider = provider;
  for (const Member& member : view.members) options.identity.hosts.push_back(member.host);
  options.identity.any_order = spec.summation_order == CommunicationSpec::SummationOrder::kAny;
  options.identity.software_version = kSoftwareVersion;
  options.measure.budget = kBudget;
  options.cache_directory = cache_directory_;
  MUSTER_ASSIGN_OR_RETURN(
      const Tuned tuned,
      TuneCommunicator(communicator, files_, options, known_.has_value() ? &*known_ : nullptr));
  in_use_ = tuned.model;
  // The model of a larger mesh is not that of this one, and one without numbers is none.
  if (tuned.model->ranks == communicator.world_size() && CheckMeasured(*tuned.model).ok()) {
    known_ = KnownModel{options.identity, tuned.model};
  }
  for (const std::string& warning : tuned.warnings) {
    logger_.Warning("model_file_unusable", "a model of the mesh cannot be taken or kept",
                    {{"error", warning}});
  }
  const AlgorithmExplanation bucket = communicator.ExplainChoice(
      Collective::kAllReduce, spec.bucket_bytes / static_cast<int64_t>(sizeof(float)), DType::kF32);
  const AlgorithmExplanation commit =
      communicator.ExplainChoice(Collective::kAllReduce, kCommitWords, DType::kI64);
  logger_.Info("algorithms_chosen", "what auto stands for in this view",
               {{"epoch", view.epoch},
                {"model", tuned.source},
                {"bucket", bucket.why},
                {"commit", commit.why}});
  return absl::OkStatus();
}

std::optional<LinkSpeeds> MeshTuner::SpeedsFor(int64_t bytes) const {
  if (in_use_ == nullptr || in_use_->wire.empty()) return std::nullopt;
  const double wire = RateOf(in_use_->wire, bytes);
  return LinkSpeeds{.ranks = in_use_->ranks,
                    .latency_seconds = in_use_->latency_seconds,
                    .message_seconds = in_use_->message_seconds,
                    .wire_seconds = wire,
                    // What noise brings beyond what it can be would make servers look free.
                    .one_way_seconds = std::clamp(RateOf(in_use_->one_way, bytes), wire / 2, wire),
                    .reduce_seconds = RateOf(in_use_->reduce, bytes),
                    .meet_seconds = in_use_->meet_seconds,
                    .shared_seconds = RateOf(in_use_->shared, bytes)};
}

}  // namespace muster
