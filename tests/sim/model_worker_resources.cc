// What a modelled worker tells of its links and of the job's size.
#include "tests/sim/model_worker.h"

namespace muster::sim {

LinkSpeeds LinksOf(uint64_t link_seed, const View& view) {
  const uint64_t bits = link_seed == 0 ? 0 : Mix(link_seed, view.epoch);
  LinkSpeeds links;
  links.ranks = static_cast<int32_t>(view.members.size());
  links.latency_seconds = 1e-6 * static_cast<double>(1 + bits % 100);
  links.wire_seconds = 1e-9 * static_cast<double>(1 + bits / 100 % 100);
  // Every other mesh gains by parameter servers.
  links.one_way_seconds = links.wire_seconds * (bits / 10000 % 2 == 0 ? 0.5 : 1);
  return links;
}

// What the shell finds out while it does `op`.
std::optional<worker::Event> ModelWorker::TellResources(const Op& op) const {
  if (op.kind == OpKind::kConnect && options_.link_seed.has_value() &&
      mesh_->view.members.size() > 1) {
    return worker::LinksMeasured{op.epoch, LinksOf(*options_.link_seed, mesh_->view)};
  }
  const bool ready = op.kind == OpKind::kQuiesce || op.kind == OpKind::kLearn;
  const JobId job = core_.Status().job;
  if (!ready || job.empty() || !options_.state_size.has_value()) return std::nullopt;
  return worker::StateSized{job, *options_.state_size};
}

}  // namespace muster::sim
