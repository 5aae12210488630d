// The part of the job runner that takes and gives parts of the state when the view changes.
#include <array>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "state/move_state.h"
#include "state/view_map.h"
#include "worker/compression/gradient_codec.h"
#include "worker/runtime/job_runner.h"

namespace muster {
namespace {

// A replica as the mover sees it.
class MovableReplica : public MovableState {
 public:
  explicit MovableReplica(Replica& replica) : replica_(replica) {}

  int64_t element_bytes() const override {
    return Replica::FloatsPerElement(replica_.rule()) * static_cast<int64_t>(sizeof(float));
  }
  absl::Status Read(Range range, absl::Span<std::byte> bytes) override {
    replica_.PackRange(range, bytes);
    return absl::OkStatus();
  }
  absl::Status Write(Range range, absl::Span<const std::byte> bytes) override {
    replica_.UnpackRange(range, bytes);
    return absl::OkStatus();
  }

 private:
  Replica& replica_;
};

constexpr size_t kCounterWords = 6;
using CounterWords = std::array<int64_t, kCounterWords>;

CounterWords Encode(const ReplicaCounters& counters) {
  return {static_cast<int64_t>(counters.tag.branch),
          counters.tag.step,
          static_cast<int64_t>(counters.tag.epoch),
          counters.update_count,
          counters.nonfinite_in_row,
          counters.skipped_steps};
}

ReplicaCounters Decode(const CounterWords& words) {
  return {.tag = {static_cast<uint64_t>(words[0]), words[1], static_cast<Epoch>(words[2])},
          .update_count = words[3],
          .nonfinite_in_row = words[4],
          .skipped_steps = words[5]};
}

}  // namespace

std::shared_ptr<Communicator> JobRunner::MeshOf(Epoch epoch) {
  MutexLock lock(&mutex_);
  return communicator_epoch_ == epoch ? communicator_ : nullptr;
}

std::vector<Range> JobRunner::RangesIn(const View& view) const {
  if (!view.strategy.sharded()) return {{0, context_->layout().padded_count()}};
  Incarnation self;
  {
    MutexLock lock(&mutex_);
    self = self_;
  }
  return MapOf(view, context_->layout()).value().map.RangesHeldBy(view.RankOf(self));
}

// Learners copy the whole state from one member; where nobody has it, it comes with the view.
void JobRunner::OfferState(const View& view) {
  if (view.strategy.sharded() || !replica_->whole()) return source_.Withdraw();
  MutexLock lock(&mutex_);
  source_.Offer(view.job, fleet_id_, self_, replica_.get());
}

void JobRunner::MoveRanges(const worker::MoveRanges& order) {
  Add({.mesh_epoch = order.view.epoch, .run = [this, order] { DoMove(order); }});
}

// Of the parts of the state that are here after moves that were not sealed, only the one that is
// given from is of use.
void JobRunner::KeepPartOf(const View& source) {
  const bool newest = coming_epoch_.has_value() &&
                      (source.strategy.sharded() ? *coming_epoch_ == source.epoch : coming_whole_);
  replica_->KeepOnly(newest);
  coming_epoch_.reset();
}

void JobRunner::TakeResiduals(const View& view, const std::vector<ResidualsGiven>& given) {
  if (!Carries(context_->spec().communication.compression)) return;
  Residuals& residuals = replica_->buffers().residuals();
  Incarnation self;
  {
    MutexLock lock(&mutex_);
    self = self_;
  }
  for (const ResidualsGiven& each : given) {
    // What a move that was not sealed everywhere has brought may come once more.
    if (residuals_handed_on_.contains(each.from)) continue;
    residuals.Equip(context_->layout().padded_count());
    residuals.Take(each.values);
    logger_.Info("residuals_taken", "carries what the gradients of a worker that leaves lacked",
                 {{"worker", view.members[static_cast<size_t>(view.RankOf(each.from))].name}});
  }
  for (const Incarnation& leaves : view.leaving) {
    residuals_handed_on_.insert(leaves);
    if (leaves == self) residuals.Clear();
  }
}

// What dies with a contributor is gone: the loss, for its part, of some steps' smallest gradients.
void JobRunner::NoteContributors(const View& view) {
  if (!Carries(context_->spec().communication.compression)) return;
  for (const Member& member : contributors_) {
    if (view.RankOf(member.incarnation) >= 0) continue;
    if (residuals_handed_on_.contains(member.incarnation)) continue;
    logger_.Warning("residuals_dropped",
                    "what the gradients of a worker lacked so far is lost with it",
                    {{"worker", member.name}});
  }
  contributors_.assign(view.members.begin(), view.members.begin() + view.workers());
  residuals_handed_on_.clear();
}

void JobRunner::DoMove(const worker::MoveRanges& order) {
  const View& view = order.view;
  const std::shared_ptr<Communicator> communicator = MeshOf(view.epoch);
  if (communicator == nullptr) return;
  const absl::Time start = absl::Now();
  const auto fail = [&](const absl::Status& status, std::optional<Rank> culprit) {
    communicator->Abort(status, culprit);
    ReportMeshFailure(view.epoch, status, culprit);
  };
  const absl::StatusOr<ReshardPlan> plan =
      PlanMove(Activate{.view = view, .move = order.source}, context_->layout());
  if (!plan.ok()) return fail(plan.status(), std::nullopt);
  source_.Withdraw();
  if (order.gives) KeepPartOf(order.source.view);
  coming_epoch_.reset();
  replica_->BeginMove(RangesIn(view), /*receives_all=*/!order.gives);

  // Who comes without state learns its counters from one that has it.
  CollectiveOptions options;
  options.timeout = absl::Milliseconds(context_->spec().communication.timeout_ms);
  options.label = "counters";
  options.step = view.resume.step;
  CounterWords words = Encode(replica_->counters());
  Work broadcast = communicator->Broadcast(words.data(), words.data(), kCounterWords, DType::kI64,
                                           view.RankOf(order.source.givers.front()), options);
  if (absl::Status status = broadcast.Wait(); !status.ok()) {
    return fail(status, broadcast.culprit());
  }
  MovableReplica movable(*replica_);
  MoveOptions move_options = {.timeout = options_.move_timeout};
  SharedBuffer staging;
  if (options_.arena != nullptr) {
    absl::StatusOr<SharedBuffer> allocated = options_.arena->Allocate(move_options.window_bytes);
    if (!allocated.ok()) return fail(allocated.status(), std::nullopt);
    staging = *std::move(allocated);
    move_options.staging = {staging.data(), static_cast<size_t>(staging.size())};
  }
  const MoveOutcome moved = MoveState(*communicator, *plan, movable, move_options);
  if (!moved.status.ok()) return fail(moved.status, moved.culprit);
  std::vector<ResidualsGiven> residuals;
  if (Carries(context_->spec().communication.compression)) {
    std::optional<Rank> culprit;
    auto given =
        HandOverResiduals(*communicator, view, replica_->buffers().residuals().carried(),
                          context_->layout().padded_count(), options_.move_timeout, &culprit);
    if (!given.ok()) return fail(given.status(), culprit);
    residuals = *std::move(given);
  }
  const ReplicaCounters counters = Decode(words);
  MUSTER_CHECK(counters.tag == view.resume) << "the state that moved is of another step";
  replica_->FinishMove(counters);
  coming_epoch_ = view.epoch;
  coming_whole_ = !view.strategy.sharded();

  if (!core_.Dispatch(worker::RangesMoved{view.epoch}).seal_move.has_value()) return;
  options.label = "move";
  options.caller_waits = true;
  Work barrier = communicator->Barrier(options);
  if (absl::Status status = barrier.Wait(); !status.ok()) return fail(status, barrier.culprit());
  if (!core_.Dispatch(worker::MoveSealed{view.epoch}).adopt_part.has_value()) return;
  replica_->KeepOnly(/*newest=*/true);
  coming_epoch_.reset();
  TakeResiduals(view, residuals);
  OfferState(view);
  logger_.Info("state_moved", "this worker holds its part of the state",
               {{"strategy", ToString(view.strategy)},
                {"elements", replica_->part().element_count()},
                {"received_bytes", moved.bytes_received},
                {"sent_bytes", moved.bytes_sent},
                {"ms", absl::ToDoubleMilliseconds(absl::Now() - start)}});
}

}  // namespace muster
