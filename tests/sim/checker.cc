#include "tests/sim/checker.h"

#include <algorithm>
#include <limits>
#include <set>

#include "absl/strings/str_format.h"
#include "base/control/placement.h"

namespace muster::sim {
namespace {

std::string Show(const StateTag& tag) {
  return absl::StrFormat("(branch %d, step %d, epoch %d)", tag.branch, tag.step, tag.epoch);
}

}  // namespace

uint64_t Mix(uint64_t a, uint64_t b) {
  uint64_t x = a ^ (b + 0x9e3779b97f4a7c15u + (a << 6) + (a >> 2));
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

ModelState InitialState() {
  ModelState state;
  state.chain = 1;
  state.samples = 1;
  return state;
}

uint64_t PlannedSamples(Step step) {
  uint64_t samples = InitialState().samples;
  for (Step k = 1; k <= step; ++k) samples = Mix(samples, static_cast<uint64_t>(k));
  return samples;
}

void Checker::Fail(std::string what) {
  if (failure_.empty()) failure_ = std::move(what);
}

void Checker::Connecting(const View& view) {
  Digest digest;
  digest.Add(view);
  const auto [it, is_new] = views_.emplace(view.epoch, digest.low());
  if (!is_new && it->second != digest.low()) {
    Fail(absl::StrFormat("(a) two members act in different views of epoch %d", view.epoch));
  }
}

void Checker::Holds(const ModelState& state) {
  const auto [it, is_new] = chains_.emplace(std::make_pair(state.job, state.tag), state.chain);
  if (!is_new && it->second != state.chain) {
    Fail(absl::StrFormat("(b) two different states are named %s", Show(state.tag)));
  }
}

void Checker::Running(const View& view, const ModelState& state) {
  if (state.tag != view.resume) {
    Fail(absl::StrFormat("(b) view %d starts from %s, a member holds %s", view.epoch,
                         Show(view.resume), Show(state.tag)));
  }
  Holds(state);
  const auto it = visible_.find({state.job, state.tag.branch});
  if (it == visible_.end()) return;
  const std::vector<Epoch>& visible = it->second;
  for (size_t i = 0; i < visible.size(); ++i) {
    // A worker that slept may still start an old view, in which later steps are not yet done.
    const bool missing =
        i >= state.history.size() ? visible[i] < view.epoch : visible[i] != state.history[i];
    if (missing) {
      Fail(absl::StrFormat("(b) view %d starts from %s without the visible step %d", view.epoch,
                           Show(state.tag), i + 1));
    }
  }
}

void Checker::Mixed(Epoch epoch, Step step) {
  Fail(absl::StrFormat("(b) step %d of view %d is computed from different states", step, epoch));
}

void Checker::Applied(const ModelState& before, const CommitRecord& record) {
  if (before.tag.step + 1 != record.step) {
    Fail(absl::StrFormat("(b) step %d is applied to %s", record.step, Show(before.tag)));
  }
}

void Checker::AppliedAfterAnswer(Epoch record_epoch, Epoch answered_epoch) {
  Fail(absl::StrFormat("(c) a record of epoch %d was applied after the answer to proposal %d",
                       record_epoch, answered_epoch));
}

void Checker::Visible(const JobId& job, const StateTag& tag, const std::vector<Epoch>& history) {
  if (tag.branch == 0) return;  // no state
  std::vector<Epoch>& visible = visible_[{job, tag.branch}];
  std::vector<Epoch> shown(history.begin(),
                           history.begin() + std::min<ptrdiff_t>(tag.step, std::ssize(history)));
  // The record may be held while its step is still being applied.
  if (std::ssize(shown) + 1 == tag.step) shown.push_back(tag.epoch);
  const size_t common = std::min(shown.size(), visible.size());
  if (!std::equal(shown.begin(), shown.begin() + static_cast<ptrdiff_t>(common), visible.begin())) {
    Fail(absl::StrFormat("(b) a visible step changed: a worker shows %s", Show(tag)));
  }
  if (shown.size() > visible.size()) visible = std::move(shown);
}

void Checker::Decided(const View& view) {
  const Branch branch{view.job, view.resume.branch};
  // The first tag of a branch names a checkpoint's state, whose last step an older epoch reduced.
  const StateTag base = bases_.emplace(branch, view.resume).first->second;
  const auto it = visible_.find(branch);
  if (it == visible_.end()) return;
  const auto step = static_cast<size_t>(view.resume.step);
  if (step < it->second.size()) {
    Fail(absl::StrFormat("(b) view %d goes back to %s, step %d was visible", view.epoch,
                         Show(view.resume), it->second.size()));
  } else if (step > 0 && step == it->second.size() && view.resume != base &&
             it->second.back() != view.resume.epoch) {
    Fail(absl::StrFormat("(b) view %d goes on from %s, visible was the step of epoch %d",
                         view.epoch, Show(view.resume), it->second.back()));
  }
}

void Checker::Settled(const View& view) {
  if (view.epoch <= settled_.epoch) return;
  settled_ = view;
}

void Checker::GivenUp(const ViewDissolved& dissolved) {
  if (dissolved.left.empty() || settled_.job != dissolved.job) return;
  const std::vector<Incarnation>& left = dissolved.left;
  std::set<Rank> holders;
  auto replicas = std::numeric_limits<ptrdiff_t>::max();
  for (const std::vector<Rank>& of_shard : ShardHolders(settled_)) {
    holders.insert(of_shard.begin(), of_shard.end());
    replicas = std::min(replicas, std::ssize(of_shard) - 1);
  }
  const auto gone = std::count_if(holders.begin(), holders.end(), [&](Rank rank) {
    const Incarnation holder = settled_.members[static_cast<size_t>(rank)].incarnation;
    return std::find(left.begin(), left.end(), holder) == left.end();
  });
  if (gone > replicas) return;
  Fail(absl::StrFormat("(f) the state of view %d was given up with %d of its %d holders gone",
                       settled_.epoch, gone, holders.size()));
}

void Checker::Finished(const ModelState& state, Step total_steps) {
  if (state.tag.step != total_steps || std::ssize(state.history) != total_steps) {
    Fail(absl::StrFormat("(e) the job ended at %s of %d steps", Show(state.tag), total_steps));
  }
  if (state.samples != PlannedSamples(total_steps)) {
    Fail("(e) the samples of the surviving history are not the planned ones");
  }
}

void Checker::ForgetStates() {
  views_.clear();
  chains_.clear();
}

void Checker::AppendTo(Digest* digest) const {
  for (const auto& [branch, visible] : visible_) {
    digest->Add(branch.second);
    digest->Add(visible.size());
    for (Epoch epoch : visible) digest->Add(epoch);
  }
  digest->Add(settled_.epoch);
}

}  // namespace muster::sim
