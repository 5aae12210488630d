#include "collectives/engine/execution.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "collectives/reduce/reduce.h"

namespace muster {
namespace {

// A token: slot, step, segment. The fingerprint's sends use a step number no plan has.
constexpr int kStepBits = 64 - Execution::kSlotBits - kSegmentBits;
constexpr uint64_t kFingerprintStep = (uint64_t{1} << kStepBits) - 1;

// Of local steps at a time, before messages are looked after again.
constexpr int64_t kLocalBytes = 32 << 10;

uint64_t TokenOf(int slot, uint64_t step, int32_t segment) {
  return (static_cast<uint64_t>(slot) << (64 - Execution::kSlotBits)) | (step << kSegmentBits) |
         static_cast<uint64_t>(segment);
}
uint64_t StepOf(uint64_t token) {
  return (token >> kSegmentBits) & ((uint64_t{1} << kStepBits) - 1);
}
int32_t SegmentOf(uint64_t token) {
  return static_cast<int32_t>(token & ((uint64_t{1} << kSegmentBits) - 1));
}

// A message: the number of its call among those the sender has told the receiver of (as far as it
// fits), the step's place in its lane, segment. The top bit is clear: tags with it set are the
// communicator's own.
uint64_t TagOf(uint64_t number, int32_t ordinal, int32_t segment) {
  constexpr int kNumberBits = 63 - kOrdinalBits - kSegmentBits;
  return ((number & ((uint64_t{1} << kNumberBits) - 1)) << (kOrdinalBits + kSegmentBits)) |
         (static_cast<uint64_t>(ordinal) << kSegmentBits) | static_cast<uint64_t>(segment);
}

}  // namespace

Execution::Execution(std::shared_ptr<Operation> operation, int slot, Transport& transport,
                     ScratchPool& scratch_pool)
    : operation_(std::move(operation)),
      plan_(*operation_->plan),
      slot_(slot),
      transport_(transport),
      scratch_pool_(scratch_pool),
      element_bytes_(SizeOf(plan_.dtype)),
      fingerprint_(EncodeFingerprint(operation_->fingerprint)),
      steps_(plan_.steps.size()),
      lanes_(plan_.lanes.size()),
      peers_(static_cast<size_t>(transport.world_size())),
      left_(plan_.total_segments + static_cast<int64_t>(plan_.tells.size())),
      unheard_(static_cast<int>(plan_.hears.size())) {
  const size_t scratch_bytes = static_cast<size_t>(plan_.scratch_count) * element_bytes_;
  scratch_ = scratch_pool_.Take(scratch_bytes);
  if (operation_->fingerprint.collective == static_cast<uint8_t>(Collective::kBarrier)) {
    std::memset(scratch_.bytes.get(), 0, scratch_bytes);  // The rank's own token is read.
  }
  for (Rank peer : plan_.hears) {
    peers_[peer].must_hear = true;
    transport_.Expect(peer, 1);
  }
}

Execution::~Execution() { scratch_pool_.Give(std::move(scratch_)); }

std::byte* Execution::Address(const Slice& slice, int64_t element) const {
  const size_t offset = static_cast<size_t>(slice.offset + element) * element_bytes_;
  switch (slice.buffer) {
    case BufferName::kInput:
      return const_cast<std::byte*>(operation_->input) + offset;
    case BufferName::kOutput:
      return operation_->output + offset;
    case BufferName::kScratch:
      return scratch_.bytes.get() + offset;
  }
  return nullptr;
}

bool Execution::Ready(const PlanStep& step, int32_t segment) const {
  for (const PlanWait& wait : step.waits_for) {
    if (steps_[wait.step].done < plan_.SegmentsAwaited(wait, step, segment)) return false;
  }
  return true;
}

void Execution::OpenSends(Rank peer, uint64_t* next_number) {
  PeerState& state = peers_[peer];
  if (state.sends_open) return;
  state.sends_open = true;
  if (std::find(plan_.tells.begin(), plan_.tells.end(), peer) != plan_.tells.end()) {
    state.told_number = (*next_number)++;
    transport_.PostSend(peer, kFingerprintTag | state.told_number, fingerprint_,
                        TokenOf(slot_, kFingerprintStep, 0));
  }
  for (size_t lane = 0; lane < plan_.lanes.size(); ++lane) {
    if (plan_.lanes[lane].send && plan_.lanes[lane].peer == peer) {
      StartLane(static_cast<int32_t>(lane));
    }
  }
}

bool Execution::SendsPosted(Rank peer) const {
  if (!peers_[peer].sends_open) return false;
  for (size_t lane = 0; lane < plan_.lanes.size(); ++lane) {
    if (plan_.lanes[lane].send && plan_.lanes[lane].peer == peer) {
      return lanes_[lane].position == plan_.lanes[lane].steps.size();
    }
  }
  return true;
}

void Execution::Heard(Rank peer, uint64_t number) {
  PeerState& state = peers_[peer];
  MUSTER_CHECK(state.must_hear && !state.heard) << "rank " << peer << " was not to be heard";
  state.heard = true;
  state.heard_number = number;
  transport_.Expect(peer, -1);
  --unheard_;
  for (size_t lane = 0; lane < plan_.lanes.size(); ++lane) {
    if (!plan_.lanes[lane].send && plan_.lanes[lane].peer == peer) {
      StartLane(static_cast<int32_t>(lane));
    }
  }
}

void Execution::StartLane(int32_t index) {
  const PlanLane& lane = plan_.lanes[index];
  LaneState& state = lanes_[index];
  if (lane.send ? !peers_[lane.peer].sends_open : !peers_[lane.peer].heard) return;
  const bool in_step = lane.send && plan_.send_lead > 0;
  const double done_by_all = least_sent_ * static_cast<double>(lane.segments);
  while (state.position < lane.steps.size() && state.in_flight < plan_.lane_window) {
    if (in_step && static_cast<double>(state.begun) >= done_by_all + plan_.send_lead) return;
    const int32_t step = lane.steps[state.position];
    StepState& step_state = steps_[step];
    if (!Ready(plan_.steps[step], step_state.started)) return;
    ++state.begun;
    ++state.in_flight;
    Post(step, step_state.started++);
    if (step_state.started == plan_.steps[step].segments) ++state.position;
  }
}

double Execution::PartSent(size_t lane) const {
  const LaneState& state = lanes_[lane];
  return static_cast<double>(state.begun - state.in_flight) /
         static_cast<double>(plan_.lanes[lane].segments);
}

void Execution::KeepStep() {
  double least = 1;
  for (size_t lane = 0; lane < lanes_.size(); ++lane) {
    if (plan_.lanes[lane].send) least = std::min(least, PartSent(lane));
  }
  if (least <= least_sent_) return;
  least_sent_ = least;
  for (size_t lane = 0; lane < lanes_.size(); ++lane) {
    if (plan_.lanes[lane].send) StartLane(static_cast<int32_t>(lane));
  }
}

void Execution::Post(int32_t index, int32_t segment) {
  const PlanStep& step = plan_.steps[index];
  const int64_t begin = plan_.SegmentBegin(segment);
  const size_t bytes = static_cast<size_t>(plan_.SegmentSize(step, segment)) * element_bytes_;
  const PeerState& peer = peers_[step.step.peer];
  const uint64_t number = step.step.kind == StepKind::kSend ? peer.told_number : peer.heard_number;
  const uint64_t tag = TagOf(number, step.ordinal, segment);
  const uint64_t token = TokenOf(slot_, static_cast<uint64_t>(index), segment);
  switch (step.step.kind) {
    case StepKind::kSend:
      transport_.PostSend(step.step.peer, tag,
                          absl::MakeConstSpan(Address(step.step.source, begin), bytes), token);
      return;
    case StepKind::kRecv:
      transport_.PostReceive(step.step.peer, tag,
                             absl::MakeSpan(Address(step.step.target, begin), bytes), token);
      return;
    case StepKind::kRecvReduce:
      transport_.PostConsume(step.step.peer, tag, static_cast<int64_t>(bytes),
                             static_cast<int>(element_bytes_), this, token);
      return;
    case StepKind::kCopy:
    case StepKind::kReduce:
      break;
  }
  MUSTER_CHECK(false) << "a local step has no message";
}

void Execution::Consume(uint64_t token, int64_t offset, absl::Span<const std::byte> piece) {
  const ScheduleStep& step = plan_.steps[StepOf(token)].step;
  const int64_t element =
      plan_.SegmentBegin(SegmentOf(token)) + offset / static_cast<int64_t>(element_bytes_);
  const auto count = static_cast<int64_t>(piece.size() / element_bytes_);
  std::byte* const target = Address(step.target, element);
  const void* const local = Address(step.source, element);
  if (step.completes_sum && operation_->op == ReduceOp::kAverage) {
    // In one go: 16-bit floats are rounded once, after the division.
    ReduceMany(plan_.dtype, operation_->op, target, {piece.data(), local}, count, plan_.size);
  } else {
    ReduceInto(plan_.dtype, operation_->op, target, piece.data(), local, count);
  }
}

void Execution::Completed(uint64_t token) {
  const uint64_t step = StepOf(token);
  if (step == kFingerprintStep) {
    --left_;
    return;
  }
  const auto index = static_cast<int32_t>(step);
  const int32_t lane = plan_.steps[index].lane;
  const bool was_last = PartSent(lane) <= least_sent_;
  --lanes_[lane].in_flight;
  SegmentDone(index, SegmentOf(token));
  StartLane(lane);
  if (plan_.send_lead > 0 && plan_.lanes[lane].send && was_last) KeepStep();
}

void Execution::SegmentDone(int32_t index, int32_t segment) {
  --left_;
  StepState& state = steps_[index];
  const auto key = [index](int32_t s) {
    return (static_cast<uint64_t>(index) << kSegmentBits) | static_cast<uint64_t>(s);
  };
  if (segment != state.done) {
    done_early_.insert(key(segment));
    return;
  }
  ++state.done;
  while (!done_early_.empty() && done_early_.erase(key(state.done)) > 0) ++state.done;
  for (int32_t waiting : plan_.steps[index].waited_for_by) {
    if (plan_.steps[waiting].lane >= 0) StartLane(plan_.steps[waiting].lane);
  }
}

bool Execution::RunLocal() {
  int64_t bytes = 0;
  while (bytes < kLocalBytes) {
    const int64_t moved = RunLocalSegment();
    if (moved == 0) break;
    bytes += moved;
  }
  return bytes > 0;
}

int64_t Execution::RunLocalSegment() {
  const std::vector<int32_t>& local = plan_.local_steps;
  while (first_local_ < local.size() &&
         steps_[local[first_local_]].done == plan_.steps[local[first_local_]].segments) {
    ++first_local_;
  }
  for (size_t i = first_local_; i < local.size(); ++i) {
    const PlanStep& step = plan_.steps[local[i]];
    StepState& state = steps_[local[i]];
    if (state.started == step.segments || !Ready(step, state.started)) continue;
    const int32_t segment = state.started++;
    RunSegment(step, segment);
    SegmentDone(local[i], segment);
    return plan_.SegmentSize(step, segment) * static_cast<int64_t>(element_bytes_);
  }
  return 0;
}

void Execution::RunSegment(const PlanStep& step, int32_t segment) {
  const int64_t begin = plan_.SegmentBegin(segment);
  const int64_t count = plan_.SegmentSize(step, segment);
  std::byte* const target = Address(step.step.target, begin);
  if (step.step.kind == StepKind::kCopy) {
    std::memmove(target, Address(step.step.source, begin),
                 static_cast<size_t>(count) * element_bytes_);
    return;
  }
  std::vector<const void*> sources;
  sources.reserve(step.step.sources.size());
  for (const Slice& slice : step.step.sources) sources.push_back(Address(slice, begin));
  const bool average = step.step.completes_sum && operation_->op == ReduceOp::kAverage;
  ReduceMany(plan_.dtype, operation_->op, target, sources, count, average ? plan_.size : 1);
}

std::vector<Rank> Execution::WaitsFor() const {
  std::vector<Rank> ranks;
  const auto add = [&ranks](Rank rank) {
    if (std::find(ranks.begin(), ranks.end(), rank) == ranks.end()) ranks.push_back(rank);
  };
  for (Rank peer : plan_.hears) {
    if (!peers_[peer].heard) add(peer);
  }
  // Among ranks that did call, those whose data is asked for and those that take none.
  for (size_t i = 0; ranks.empty() && i < 2; ++i) {
    for (size_t lane = 0; lane < plan_.lanes.size(); ++lane) {
      if (plan_.lanes[lane].send == (i == 1) && lanes_[lane].in_flight > 0) {
        add(plan_.lanes[lane].peer);
      }
    }
  }
  return ranks;
}

}  // namespace muster
