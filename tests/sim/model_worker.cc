#include "tests/sim/model_worker.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "absl/strings/str_format.h"
#include "base/check.h"

namespace muster::sim {
namespace {

constexpr int kMicroBatches = 12;

// The micro-batches that the members of a view compute of one step, as worker/core/batch_plan deals
// them: every one exactly once, whoever they are.
uint64_t SamplesOf(const View& view, Step step) {
  std::vector<int> seen(kMicroBatches, 0);
  const int size = view.workers();
  for (int rank = 0; rank < size; ++rank) {
    for (int m = rank; m < kMicroBatches; m += size) ++seen[static_cast<size_t>(m)];
  }
  const bool once = std::all_of(seen.begin(), seen.end(), [](int n) { return n == 1; });
  return once ? static_cast<uint64_t>(step) : 0;
}

}  // namespace

const char* Name(OpKind kind) {
  switch (kind) {
    case OpKind::kQuiesce:
      return "quiesce";
    case OpKind::kConnect:
      return "connect";
    case OpKind::kBreak:
      return "break";
    case OpKind::kMakeState:
      return "make-state";
    case OpKind::kMove:
      return "move";
    case OpKind::kSealMove:
      return "seal-move";
    case OpKind::kPrepare:
      return "prepare";
    case OpKind::kForm:
      return "form-record";
    case OpKind::kApply:
      return "apply";
    case OpKind::kFinalWork:
      return "final-work";
    case OpKind::kLearn:
      return "learn";
    case OpKind::kLearnUpTo:
      return "learn-up-to";
    case OpKind::kLearnBreak:
      return "learn-break";
    case OpKind::kSeal:
      return "seal";
    case OpKind::kKeep:
      return "keep";
    case OpKind::kDurable:
      return "durable";
    case OpKind::kName:
      return "name";
  }
  return "unknown";
}

ModelWorker::ModelWorker(WorkerOptions worker_options, ModelOptions options)
    : incarnation_(worker_options.self.incarnation),
      options_(options),
      core_(std::move(worker_options)) {}

worker::Actions ModelWorker::Feed(const worker::Event& event, absl::Time now, Fleet& fleet) {
  worker::Actions out;
  Absorb(core_.Handle(event, now), fleet, &out);
  return out;
}

void ModelWorker::Absorb(worker::Actions actions, Fleet& fleet, worker::Actions* out) {
  for (worker::Action& action : actions) {
    if (const auto* status = std::get_if<worker::SendStatus>(&action)) {
      if (status->status.has_state) {
        fleet.checker.Visible(status->status.job, status->status.stable,
                              state_.has_value() ? state_->history : std::vector<Epoch>{});
        CheckHoldings(status->status, fleet);
      }
    }
    if (!Begin(action, fleet)) out->push_back(std::move(action));
  }
}

// Returns false for actions that concern the outside.
bool ModelWorker::Begin(const worker::Action& action, Fleet& fleet) {
  if (const auto* quiesce = std::get_if<worker::Quiesce>(&action)) {
    quiesce_ = quiesce->epoch;
  } else if (const auto* start = std::get_if<worker::StartLearning>(&action)) {
    learning_ = *start;
    learned_reported_ = false;
    learn_up_to_.reset();
  } else if (std::holds_alternative<worker::StopLearning>(action)) {
    learning_.reset();
    learned_.reset();
    learn_up_to_.reset();
  } else if (const auto* up_to = std::get_if<worker::LearnUpTo>(&action)) {
    learn_up_to_ = up_to->tag;
  } else if (const auto* fresh = std::get_if<worker::StartFresh>(&action)) {
    state_.reset();
    whole_ = false;
    shards_.clear();
    prepared_.reset();
    fresh_ = *fresh;
  } else if (const auto* roll = std::get_if<worker::RollForward>(&action)) {
    roll_ = *roll;
  } else if (const auto* move = std::get_if<worker::MoveRanges>(&action)) {
    BeginMove(*move, fleet);
  } else if (const auto* seal_move = std::get_if<worker::SealMove>(&action)) {
    move_seal_ = seal_move->epoch;
    Mesh& mesh = *fleet.plane.Find(seal_move->epoch);
    mesh.ends[static_cast<size_t>(mesh.view.RankOf(incarnation_))].moved = true;
  } else if (const auto* adopt = std::get_if<worker::AdoptPart>(&action)) {
    const View& view = mesh_->view;
    if (view.epoch != adopt->epoch) fleet.checker.Fail("a part is adopted of another view");
    whole_ = whole_ && !view.strategy.sharded();
    std::erase_if(shards_, [&](const auto& entry) { return whole_ || entry.first != view.epoch; });
  } else if (std::holds_alternative<worker::DiscardPrepared>(action)) {
    prepared_.reset();
  } else if (const auto* connect = std::get_if<worker::ConnectMesh>(&action)) {
    fleet.checker.Connecting(connect->view);
    if (mesh_.has_value()) old_mesh_ = std::move(mesh_);
    mesh_ = OwnMesh{connect->view};
    Mesh& mesh = fleet.plane.Open(connect->view);
    mesh.ends[static_cast<size_t>(connect->view.RankOf(incarnation_))].open = true;
  } else if (const auto* run = std::get_if<worker::RunSteps>(&action)) {
    fleet.checker.Running(run->view, *state_);
    if (!HasPart(run->view)) fleet.checker.Fail("(f) a member runs without its part");
    mesh_->running = true;
    Enter(*mesh_, run->first_step, fleet);
  } else if (const auto* contribute = std::get_if<worker::ContributeCommit>(&action)) {
    Mesh& mesh = *fleet.plane.Find(contribute->epoch);
    MeshEnd& end = mesh.ends[static_cast<size_t>(mesh.view.RankOf(incarnation_))];
    end.contributed = contribute->step;
    end.pause =
        contribute->pause || contribute->step == options_.total_steps ||
        std::count(options_.pause_after.begin(), options_.pause_after.end(), contribute->step) > 0;
  } else if (const auto* apply = std::get_if<worker::ApplyStep>(&action)) {
    const Epoch answered = core_.Status().answered_epoch;
    if (apply->record.epoch < answered) {
      fleet.checker.AppliedAfterAnswer(apply->record.epoch, answered);
    }
    applying_ = *apply;
  } else if (const auto* final_work = std::get_if<worker::DoFinalWork>(&action)) {
    final_work_ = *final_work;
  } else if (const auto* seal = std::get_if<worker::SealAmongMembers>(&action)) {
    sealing_ = *seal;
    Mesh& mesh = *fleet.plane.Find(seal->epoch);
    mesh.ends[static_cast<size_t>(mesh.view.RankOf(incarnation_))].resting = true;
  } else if (const auto* keep = std::get_if<worker::KeepState>(&action)) {
    keeping_ = *keep;
  } else if (std::holds_alternative<worker::StartDrainCheckpoint>(action)) {
    writing_ = Writing{.state = *state_, .publisher = incarnation_};
  } else if (const auto* commit = std::get_if<worker::CommitCheckpointFiles>(&action)) {
    naming_ = commit->tag;
  } else if (std::holds_alternative<worker::BecomeIdle>(action)) {
    Stop(std::numeric_limits<Epoch>::max(), fleet);
    applying_.reset();
    roll_.reset();
    quiesce_.reset();
    state_.reset();
    whole_ = false;
    shards_.clear();
    prepared_.reset();
    learned_.reset();
    keeping_.reset();
    writing_.reset();
    naming_.reset();
  } else {
    return false;
  }
  return true;
}

void ModelWorker::Stop(Epoch before, Fleet& fleet) {
  fleet.plane.Close(incarnation_, before);
  if (mesh_.has_value() && mesh_->view.epoch < before) mesh_.reset();
  if (old_mesh_.has_value() && old_mesh_->view.epoch < before) old_mesh_.reset();
  if (fresh_.has_value() && fresh_->epoch < before) fresh_.reset();
  if (move_.has_value() && move_->view.epoch < before) move_.reset();
  if (move_seal_.has_value() && *move_seal_ < before) move_seal_.reset();
  if (final_work_.has_value() && final_work_->epoch < before) final_work_.reset();
  if (sealing_.has_value() && sealing_->epoch < before) sealing_.reset();
  learning_.reset();
  learn_up_to_.reset();
}

void ModelWorker::Enter(OwnMesh& own, Step step, Fleet& fleet) {
  own.at = step;
  own.prepared = false;
  own.formed = false;
  Mesh& mesh = *fleet.plane.Find(own.view.epoch);
  MeshEnd& end = mesh.ends[static_cast<size_t>(own.view.RankOf(incarnation_))];
  end.entered = step;
  end.entered_chain = state_->chain;
}

void ModelWorker::Apply(const CommitRecord& record, const StateTag& tag, Fleet& fleet) {
  fleet.checker.Applied(*state_, record);
  state_->tag = tag;
  state_->chain = Mix(state_->chain, prepared_->value);
  // What of the whole step an update needs comes with the record, and is part of the bits.
  for (const double factor : record.tensor_factors) {
    state_->chain = Mix(state_->chain, std::bit_cast<uint64_t>(factor));
  }
  state_->samples = Mix(state_->samples, prepared_->samples);
  state_->history.push_back(record.epoch);
  prepared_.reset();
  fleet.checker.Holds(*state_);
}

void ModelWorker::AddMeshOps(const OwnMesh& own, const Fleet& fleet, std::vector<Op>* ops) const {
  const Epoch epoch = own.view.epoch;
  const Mesh* mesh = fleet.plane.Find(epoch);
  if (mesh == nullptr) return;
  const Rank self = own.view.RankOf(incarnation_);
  const auto all = [&](auto predicate) {
    return std::all_of(mesh->ends.begin(), mesh->ends.end(), predicate);
  };
  const bool broken = fleet.plane.BrokenRank(*mesh, self) >= 0;
  if (!own.connected && !broken && all([](const MeshEnd& end) { return end.open; })) {
    ops->push_back({OpKind::kConnect, epoch, 0});
  }
  if (!own.broken && broken) ops->push_back({OpKind::kBreak, epoch, 0});
  if (sealing_.has_value() && sealing_->epoch == epoch &&
      all([](const MeshEnd& end) { return end.resting; })) {
    ops->push_back({OpKind::kSeal, epoch, sealing_->tag.step});
  }
  if (move_.has_value() && move_->view.epoch == epoch &&
      std::all_of(move_->source.givers.begin(), move_->source.givers.end(), [&](Incarnation giver) {
        const Rank rank = own.view.RankOf(giver);
        return rank >= 0 && mesh->ends[static_cast<size_t>(rank)].moving;
      })) {
    ops->push_back({OpKind::kMove, epoch, 0});
  }
  if (move_seal_ == epoch && all([](const MeshEnd& end) { return end.moved; })) {
    ops->push_back({OpKind::kSealMove, epoch, 0});
  }
  if (!own.running || applying_.has_value()) return;
  const Step step = own.at;
  if (!own.prepared) {
    if (all([step](const MeshEnd& end) { return end.entered >= step; })) {
      ops->push_back({OpKind::kPrepare, epoch, step});
    }
  } else if (!own.formed && all([step](const MeshEnd& end) { return end.contributed >= step; })) {
    ops->push_back({OpKind::kForm, epoch, step});
  }
}

std::vector<Op> ModelWorker::Enabled(const Fleet& fleet) const {
  std::vector<Op> ops;
  // Apply and roll-forward come to their end before anything else is stopped.
  if (applying_.has_value()) {
    ops.push_back({OpKind::kApply, applying_->record.epoch, applying_->record.step});
  } else if (roll_.has_value()) {
    ops.push_back({OpKind::kMakeState, roll_->epoch, roll_->tag.step});
  } else if (quiesce_.has_value()) {
    ops.push_back({OpKind::kQuiesce, *quiesce_, 0});
  }
  if (fresh_.has_value()) ops.push_back({OpKind::kMakeState, fresh_->epoch, fresh_->tag.step});
  if (mesh_.has_value()) AddMeshOps(*mesh_, fleet, &ops);
  if (old_mesh_.has_value()) AddMeshOps(*old_mesh_, fleet, &ops);
  if (final_work_.has_value()) ops.push_back({OpKind::kFinalWork, final_work_->epoch, 0});
  if (learning_.has_value()) {
    const ModelWorker* source = fleet.Find(learning_->source.incarnation);
    const Step attempt = static_cast<Step>(learning_->attempt);
    if (learn_up_to_.has_value()) {
      ops.push_back({OpKind::kLearnUpTo, 0, attempt});
    } else if (learning_->sharded) {
      if (!learned_reported_) ops.push_back({OpKind::kLearn, 0, attempt});
    } else if (source == nullptr || !source->state_.has_value() ||
               source->state_->job != learning_->job) {
      ops.push_back({OpKind::kLearnBreak, 0, attempt});
    } else if (!learned_reported_ || !learned_.has_value() ||
               learned_->tag != source->state_->tag) {
      ops.push_back({OpKind::kLearn, source->state_->tag.epoch, source->state_->tag.step});
    }
  }
  if (keeping_.has_value()) ops.push_back({OpKind::kKeep, 0, keeping_->tag.step});
  if (writing_.has_value()) ops.push_back({OpKind::kDurable, 0, writing_->state.tag.step});
  if (naming_.has_value()) ops.push_back({OpKind::kName, 0, naming_->step});
  return ops;
}

worker::Actions ModelWorker::Execute(const Op& op, absl::Time now, Fleet& fleet) {
  worker::Actions out;
  if (const std::optional<worker::Event> told = TellResources(op)) {
    Absorb(core_.Handle(*told, now), fleet, &out);
  }
  std::optional<worker::Event> event = Finish(op, fleet);
  if (event.has_value()) Absorb(core_.Handle(*event, now), fleet, &out);
  if (options_.atomic_apply && applying_.has_value()) {
    event = Finish({OpKind::kApply, applying_->record.epoch, applying_->record.step}, fleet);
    Absorb(core_.Handle(*event, now), fleet, &out);
  }
  return out;
}

worker::Actions ModelWorker::BreakMesh(Epoch epoch, std::optional<Rank> culprit, absl::Time now,
                                       Fleet& fleet) {
  if (!mesh_.has_value() || mesh_->view.epoch != epoch || mesh_->broken) return {};
  mesh_->broken = true;
  return Feed(worker::MeshFailed{epoch, culprit, "deadline"}, now, fleet);
}

// Does the work of `op` and says which event the shell reports.
std::optional<worker::Event> ModelWorker::Finish(const Op& op, Fleet& fleet) {
  OwnMesh* own = nullptr;
  if (mesh_.has_value() && mesh_->view.epoch == op.epoch) own = &*mesh_;
  if (old_mesh_.has_value() && old_mesh_->view.epoch == op.epoch) own = &*old_mesh_;
  const Mesh* mesh = own == nullptr ? nullptr : fleet.plane.Find(op.epoch);
  switch (op.kind) {
    case OpKind::kQuiesce:
      Stop(op.epoch, fleet);
      quiesce_.reset();
      return worker::Quiesced{op.epoch};
    case OpKind::kConnect:
      own->connected = true;
      return worker::MeshConnected{op.epoch};
    case OpKind::kBreak:
      own->broken = true;
      return worker::MeshFailed{
          op.epoch, fleet.plane.BrokenRank(*mesh, own->view.RankOf(incarnation_)), "closed"};
    case OpKind::kMakeState: {
      if (roll_.has_value()) {
        const worker::RollForward roll = *std::exchange(roll_, std::nullopt);
        if (!prepared_.has_value() || !state_.has_value()) {
          fleet.checker.Fail("roll-forward without a prepared step");
          return std::nullopt;
        }
        Apply(roll.record, roll.tag, fleet);
        return worker::StateReady{roll.epoch, roll.tag};
      }
      const worker::StartFresh fresh = *std::exchange(fresh_, std::nullopt);
      state_ = InitialState();
      if (!fresh.fresh.checkpoint.empty()) {
        const auto file = fleet.disk.files.find(fresh.fresh.checkpoint);
        if (file == fleet.disk.files.end() || !fleet.disk.named[fresh.fresh.checkpoint]) {
          fleet.checker.Fail("a restart from a checkpoint that has no name");
          return std::nullopt;
        }
        state_ = file->second;
      }
      state_->job = fresh.job;
      state_->tag = fresh.tag;
      HoldPart(fresh.view);
      return worker::StateReady{fresh.epoch, fresh.tag};
    }
    case OpKind::kMove: {
      const worker::MoveRanges move = *std::exchange(move_, std::nullopt);
      FinishMove(move, fleet);
      return worker::RangesMoved{op.epoch};
    }
    case OpKind::kSealMove:
      move_seal_.reset();
      fleet.checker.Settled(own->view);
      return worker::MoveSealed{op.epoch};
    case OpKind::kPrepare: {
      fleet.checker.Settled(own->view);
      uint64_t value = Mix(static_cast<uint64_t>(op.step), op.epoch);
      for (const MeshEnd& end : mesh->ends) {
        value = Mix(value, end.entered_chain);
        if (end.entered == op.step && end.entered_chain != mesh->ends[0].entered_chain &&
            mesh->ends[0].entered == op.step) {
          fleet.checker.Mixed(op.epoch, op.step);
        }
      }
      own->prepared = true;
      prepared_ = Gradient{op.step, op.epoch, value, SamplesOf(own->view, op.step)};
      return worker::StepPrepared{op.epoch, op.step};
    }
    case OpKind::kForm: {
      CommitRecord record;
      record.step = op.step;
      record.epoch = op.epoch;
      for (const MeshEnd& end : mesh->ends) record.pause = record.pause || end.pause;
      record.tensor_factors = {1 + static_cast<double>(prepared_->value >> 12)};
      own->formed = true;
      return worker::RecordFormed{op.epoch, record};
    }
    case OpKind::kApply: {
      const worker::ApplyStep apply = *std::exchange(applying_, std::nullopt);
      Apply(apply.record, apply.tag, fleet);
      if (own != nullptr && !apply.record.pause) Enter(*own, apply.tag.step + 1, fleet);
      if (own != nullptr && apply.record.pause) own->running = false;
      if (options_.checkpoint_every > 0 && apply.tag.step % options_.checkpoint_every == 0 &&
          own != nullptr) {
        WritePart(own->view);
      }
      return worker::StepApplied{op.epoch, apply.tag};
    }
    case OpKind::kFinalWork: {
      final_work_.reset();
      FinalReport report;
      report.parameters_sha256 = absl::StrFormat("%x", state_->chain);
      return worker::FinalWorkDone{op.epoch, report};
    }
    case OpKind::kLearn:
      return FinishLearning(fleet);
    case OpKind::kLearnUpTo: {
      const StateTag tag = *std::exchange(learn_up_to_, std::nullopt);
      const bool agrees =
          learned_.has_value() &&
          (options_.rules.state_is_tagged ? learned_->tag == tag : learned_->tag.step == tag.step);
      if (!agrees) return worker::LearnFailed{learning_->attempt, "not buffered"};
      state_ = learned_;
      state_->tag = tag;
      whole_ = true;
      fleet.checker.Holds(*state_);
      return worker::LearnProgress{learning_->attempt, tag, tag, true};
    }
    case OpKind::kLearnBreak: {
      const uint64_t attempt = learning_->attempt;
      learning_.reset();
      return worker::LearnFailed{attempt, "the source is gone"};
    }
    case OpKind::kSeal: {
      const worker::SealAmongMembers seal = *std::exchange(sealing_, std::nullopt);
      return worker::MembersSealed{seal.epoch, seal.tag};
    }
    case OpKind::kKeep: {
      const worker::KeepState keep = *std::exchange(keeping_, std::nullopt);
      // Whoever finds it on the disk takes the step for done.
      if (keep.sealed) fleet.checker.Visible(state_->job, keep.tag, state_->history);
      ++fleet.kept[keep.sealed ? 1 : 0];
      return worker::StateKept{keep.tag};
    }
    case OpKind::kDurable:
      return FinishPart(fleet);
    case OpKind::kName:
      return FinishNaming(fleet);
  }
  return std::nullopt;
}

void ModelWorker::AppendTo(Digest* digest) const {
  core_.AppendTo(digest);
  const auto add_state = [digest](const std::optional<ModelState>& state) {
    digest->Add(state.has_value());
    if (!state.has_value()) return;
    digest->Add(state->tag);
    digest->Add(state->chain);
    digest->Add(state->history.size());
  };
  add_state(state_);
  digest->Add(static_cast<uint64_t>(whole_ | move_.has_value() << 1 | move_seal_.has_value() << 2));
  for (const auto& [epoch, shards] : shards_) {
    digest->Add(epoch);
    for (size_t shard : shards) digest->Add(shard);
  }
  add_state(learned_);
  add_state(writing_.has_value() ? std::optional(writing_->state) : std::nullopt);
  digest->Add(written_.path);
  digest->Add(prepared_.has_value());
  if (prepared_.has_value()) digest->Add(prepared_->value);
  for (const std::optional<OwnMesh>* mesh : {&mesh_, &old_mesh_}) {
    digest->Add(mesh->has_value());
    if (!mesh->has_value()) continue;
    const OwnMesh& own = **mesh;
    digest->Add(own.view.epoch);
    digest->Add(static_cast<uint64_t>(own.at) << 8 | own.connected | own.broken << 1 |
                own.running << 2 | own.prepared << 3 | own.formed << 4);
  }
  digest->Add(quiesce_.value_or(0));
  digest->Add(static_cast<uint64_t>(fresh_.has_value() | roll_.has_value() << 1 |
                                    applying_.has_value() << 2 | final_work_.has_value() << 3 |
                                    learning_.has_value() << 4 | learned_reported_ << 5));
  if (learning_.has_value()) digest->Add(learning_->source.incarnation);
  digest->Add(static_cast<uint64_t>(sealing_.has_value() | keeping_.has_value() << 1));
  digest->Add(learn_up_to_);
  digest->Add(naming_);
}

}  // namespace muster::sim
