// How a modelled worker comes to hold state: it learns it, or ranges move to it.
#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"
#include "base/control/placement.h"
#include "tests/sim/model_worker.h"

namespace muster::sim {

std::set<size_t> ModelWorker::PartOf(const View& view) const {
  std::set<size_t> part;
  const std::vector<std::vector<Rank>> holders = ShardHolders(view);
  for (size_t shard = 0; shard < holders.size(); ++shard) {
    for (Rank rank : holders[shard]) {
      if (view.members[static_cast<size_t>(rank)].incarnation == incarnation_) part.insert(shard);
    }
  }
  return part;
}

void ModelWorker::HoldPart(const View& view) {
  if (view.strategy.sharded()) {
    shards_[view.epoch] = PartOf(view);
  } else {
    whole_ = true;
  }
}

bool ModelWorker::HasPart(const View& view) const {
  if (!view.strategy.sharded()) return whole_;
  const auto held = shards_.find(view.epoch);
  return held != shards_.end() && held->second == PartOf(view);
}

void ModelWorker::CheckHoldings(const WorkerStatus& status, Fleet& fleet) const {
  const Holdings& says = status.holdings;
  for (Epoch epoch : {says.map, says.next}) {
    if (epoch != 0 && !shards_.contains(epoch)) {
      fleet.checker.Fail(absl::StrFormat("(f) a worker claims a part of view %d", epoch));
    }
  }
  if (says.whole && !whole_) fleet.checker.Fail("(f) a worker claims the whole state");
}

void ModelWorker::BeginMove(const worker::MoveRanges& move, Fleet& fleet) {
  const View& source = move.source.view;
  Mesh& mesh = *fleet.plane.Find(move.view.epoch);
  MeshEnd& end = mesh.ends[static_cast<size_t>(mesh.view.RankOf(incarnation_))];
  end.moving = true;
  move_ = move;
  if (!move.gives) {
    state_.reset();
    whole_ = false;
    shards_.clear();
    prepared_.reset();
    return;
  }
  if (!HasPart(source)) return fleet.checker.Fail("(f) a member gives what it does not hold");
  if (state_->tag != move.view.resume) fleet.checker.Fail("(f) a member gives another state");
  whole_ = whole_ && !source.strategy.sharded();
  std::erase_if(shards_, [&](const auto& entry) { return whole_ || entry.first != source.epoch; });
  end.gift = state_;
  end.gift_shards = PartOf(source);
}

void ModelWorker::FinishMove(const worker::MoveRanges& move, Fleet& fleet) {
  const Mesh& mesh = *fleet.plane.Find(move.view.epoch);
  std::set<size_t> given;
  for (const MeshEnd& end : mesh.ends) {
    if (!end.gift.has_value()) continue;
    if (!state_.has_value()) state_ = end.gift;
    if (end.gift->chain != state_->chain || end.gift->tag != state_->tag) {
      fleet.checker.Fail("(f) ranges of different states are put together");
    }
    given.insert(end.gift_shards.begin(), end.gift_shards.end());
  }
  if (given.size() != ShardHolders(move.source.view).size()) {
    fleet.checker.Fail("(f) nobody gives some shard");
  }
  HoldPart(move.view);
  if (state_.has_value()) fleet.checker.Holds(*state_);
}

// One piece from the source: its newest state goes into the buffer; what was buffered before and is
// now stable there is applied. Without rule 3 a buffer that is as many steps old counts as the
// same.
worker::Event ModelWorker::FinishLearning(Fleet& fleet) {
  if (learning_->sharded) {
    learned_reported_ = true;
    return worker::LearnProgress{learning_->attempt, std::nullopt, std::nullopt, true};
  }
  const ModelWorker& source = *fleet.Find(learning_->source.incarnation);
  const ModelState& theirs = *source.state_;
  const StateTag stable = source.core_.Status().stable;
  if (learned_.has_value() && learned_->tag == stable && stable.branch == theirs.tag.branch) {
    state_ = learned_;
    whole_ = true;
    fleet.checker.Holds(*state_);
  } else if (state_.has_value() && state_->tag.branch != theirs.tag.branch) {
    state_.reset();  // older branch (rule 3); reported as nothing applied until something is
  }
  const bool keep = !options_.rules.state_is_tagged && learned_.has_value() &&
                    learned_->tag.step == theirs.tag.step;
  if (!keep) learned_ = theirs;
  learned_reported_ = true;
  worker::LearnProgress progress;
  progress.attempt = learning_->attempt;
  if (state_.has_value()) progress.applied = state_->tag;
  progress.learned = learned_->tag;
  progress.caught_up = true;
  return progress;
}

void ModelWorker::WritePart(const View& view) {
  const std::vector<Rank> writers = ShardOwners(view);
  const auto own = std::find(writers.begin(), writers.end(), view.RankOf(incarnation_));
  if (own == writers.end()) return;
  writing_ = Writing{.state = *state_,
                     .publisher = view.members[static_cast<size_t>(writers.front())].incarnation,
                     .view = view.epoch,
                     .part = static_cast<int32_t>(own - writers.begin()),
                     .parts = static_cast<int32_t>(writers.size())};
}

worker::Event ModelWorker::FinishPart(Fleet& fleet) {
  const Writing writing = *std::exchange(writing_, std::nullopt);
  const StateTag& tag = writing.state.tag;
  written_ = {tag,
              absl::StrFormat("b%d-s%d-e%d-v%d-%x", tag.branch, tag.step, tag.epoch, writing.view,
                              writing.publisher.value),
              writing.parts};
  fleet.disk.files[written_.path] = writing.state;
  fleet.disk.parts[written_.path].insert(writing.part);
  return worker::CheckpointDurable{
      {tag, written_.path, absl::StrFormat("%x", writing.state.chain), writing.part, writing.parts},
      writing.state.job};
}

std::optional<worker::Event> ModelWorker::FinishNaming(Fleet& fleet) {
  const StateTag tag = *std::exchange(naming_, std::nullopt);
  if (written_.tag != tag) return std::nullopt;  // given up for a newer one
  if (static_cast<int32_t>(fleet.disk.parts[written_.path].size()) != written_.parts) {
    fleet.checker.Fail("(15) a checkpoint gets its name before all its parts are durable");
  }
  fleet.disk.named[written_.path] = true;
  const ModelState& state = fleet.disk.files[written_.path];
  return worker::CheckpointCommitted{
      {tag, written_.path, absl::StrFormat("%x", state.chain), 0, written_.parts}, state.job};
}

}  // namespace muster::sim
