#include "bench/simulate/simulator.h"

#include <algorithm>
#include <map>
#include <utility>

#include "base/check.h"
#include "base/status_macros.h"

namespace muster {
namespace {

// As many segments of a lane are under way at a time as in the engine.
constexpr int32_t kLaneWindow = 8;

}  // namespace

absl::StatusOr<std::shared_ptr<const SimulatedCollective>> SimulatedCollective::Create(
    ScheduleRequest request, DType dtype, int64_t segment_bytes) {
  auto collective = std::make_shared<SimulatedCollective>();
  for (Rank rank = 0; rank < request.size; ++rank) {
    request.rank = rank;
    MUSTER_ASSIGN_OR_RETURN(std::shared_ptr<const Plan> plan,
                            MakePlan(request, {}, dtype, segment_bytes));
    collective->plans_.push_back(std::move(plan));
  }
  std::map<std::pair<Rank, Rank>, int32_t> receiving;  // by receiver and sender
  for (Rank rank = 0; rank < request.size; ++rank) {
    const std::vector<PlanLane>& lanes = collective->plans_[rank]->lanes;
    for (size_t lane = 0; lane < lanes.size(); ++lane) {
      if (!lanes[lane].send) receiving[{rank, lanes[lane].peer}] = static_cast<int32_t>(lane);
    }
  }
  for (Rank rank = 0; rank < request.size; ++rank) {
    std::vector<int32_t>& its = collective->receiving_.emplace_back();
    for (const PlanLane& lane : collective->plans_[rank]->lanes) {
      its.push_back(lane.send ? receiving.at({lane.peer, rank}) : -1);
    }
  }
  return std::shared_ptr<const SimulatedCollective>(std::move(collective));
}

Simulator::Simulator(const NetworkModel& network, int ranks)
    : network_(network),
      inside_(static_cast<size_t>(ranks)),
      between_(static_cast<size_t>(network.HostOf(ranks - 1) + 1) *
               static_cast<size_t>(network.cards_per_host)),
      memory_free_s_(static_cast<size_t>(ranks), 0.0) {}

int Simulator::Launch(std::shared_ptr<const SimulatedCollective> collective, double start_s) {
  MUSTER_CHECK_EQ(collective->size(), static_cast<int>(inside_.size()));
  const auto number = static_cast<int32_t>(calls_.size());
  Call& call = calls_.emplace_back();
  call.ranks_left = collective->size();
  call.done_at = start_s;
  for (Rank rank = 0; rank < collective->size(); ++rank) {
    const Plan& plan = collective->plan(rank);
    RankState& state = call.ranks.emplace_back();
    state.steps.resize(plan.steps.size());
    state.lanes.resize(plan.lanes.size());
    state.left = plan.total_segments;
    At(start_s, Kind::kStart, {.call = number, .from = rank});
  }
  call.collective = std::move(collective);
  return number;
}

void Simulator::At(double time_s, Kind kind, const Message& message) {
  events_.push({time_s, next_number_++, kind, message});
}

void Simulator::Run() {
  while (!events_.empty()) {
    const Event event = events_.top();
    events_.pop();
    now_s_ = event.time_s;
    Handle(event);
  }
  for (const Call& call : calls_) {
    MUSTER_CHECK_EQ(call.ranks_left, 0) << "a collective did not end: its schedule deadlocks";
  }
}

void Simulator::Handle(const Event& event) {
  const Message& message = event.message;
  Call& call = calls_[message.call];
  switch (event.kind) {
    case Kind::kStart: {
      const Plan& plan = call.collective->plan(message.from);
      call.ranks[message.from].started = true;
      if (plan.total_segments == 0) --call.ranks_left;
      for (size_t lane = 0; lane < plan.lanes.size(); ++lane) {
        StartLane(message.call, message.from, static_cast<int32_t>(lane));
      }
      StartLocal(message.call, message.from);
      return;
    }
    case Kind::kGone: {
      Port& port = PortOf(message);
      port.busy = false;
      Depart(port);
      --call.ranks[message.from].lanes[message.lane].in_flight;
      SegmentDone(message.call, message.from, message.step);
      StartLane(message.call, message.from, message.lane);
      return;
    }
    case Kind::kArrived: {
      const int32_t lane = call.collective->ReceivingLane(message.from, message.lane);
      const Rank to = PeerOf(message);
      ++call.ranks[to].lanes[lane].arrived;
      StartLane(message.call, to, lane);
      return;
    }
    case Kind::kSummed:
      SegmentDone(message.call, message.from, message.step);
      if (message.lane >= 0) {
        --call.ranks[message.from].lanes[message.lane].in_flight;
        StartLane(message.call, message.from, message.lane);
      }
      return;
  }
}

bool Simulator::Ready(const Call& call, Rank rank, int32_t index) const {
  const Plan& plan = call.collective->plan(rank);
  const RankState& state = call.ranks[rank];
  const PlanStep& step = plan.steps[index];
  const int32_t segment = state.steps[index].started;
  return std::all_of(step.waits_for.begin(), step.waits_for.end(), [&](const PlanWait& wait) {
    return state.steps[wait.step].done >= plan.SegmentsAwaited(wait, step, segment);
  });
}

int64_t Simulator::SegmentBytes(const Plan& plan, int32_t step, int32_t segment) const {
  return plan.SegmentSize(plan.steps[step], segment) * static_cast<int64_t>(SizeOf(plan.dtype));
}

void Simulator::StartLane(int32_t call_number, Rank rank, int32_t lane_number) {
  Call& call = calls_[call_number];
  RankState& rank_state = call.ranks[rank];
  if (!rank_state.started) return;
  const Plan& plan = call.collective->plan(rank);
  const PlanLane& lane = plan.lanes[lane_number];
  LaneState& state = rank_state.lanes[lane_number];
  while (state.position < lane.steps.size() && state.in_flight < kLaneWindow &&
         (lane.send || state.arrived > 0)) {
    const int32_t index = lane.steps[state.position];
    if (!Ready(call, rank, index)) return;
    StepState& step = rank_state.steps[index];
    const int64_t bytes = SegmentBytes(plan, index, step.started);
    if (++step.started == plan.steps[index].segments) ++state.position;
    if (lane.send) {
      ++state.in_flight;
      ++messages_;
      const Message message = {call_number, rank, lane_number, index, bytes};
      Port& port = PortOf(message);
      port.waiting.push_back(message);
      Depart(port);
      continue;
    }
    --state.arrived;
    if (plan.steps[index].step.kind == StepKind::kRecvReduce) {
      ++state.in_flight;
      Sum(call_number, rank, index, lane_number, 3 * bytes);
    } else {
      SegmentDone(call_number, rank, index);
    }
  }
}

void Simulator::StartLocal(int32_t call_number, Rank rank) {
  Call& call = calls_[call_number];
  const Plan& plan = call.collective->plan(rank);
  RankState& state = call.ranks[rank];
  if (!state.started) return;
  for (size_t i = state.first_local; i < plan.local_steps.size(); ++i) {
    const int32_t index = plan.local_steps[i];
    const PlanStep& step = plan.steps[index];
    StepState& step_state = state.steps[index];
    while (step_state.started < step.segments && Ready(call, rank, index)) {
      const int64_t bytes = SegmentBytes(plan, index, step_state.started++);
      const auto read = static_cast<int64_t>(SlicesReadBy(step.step).size());
      Sum(call_number, rank, index, -1, (read + 1) * bytes);
    }
    if (i == state.first_local && step_state.started == step.segments) ++state.first_local;
  }
}

void Simulator::Sum(int32_t call, Rank rank, int32_t step, int32_t lane, int64_t bytes_moved) {
  double& free_s = memory_free_s_[rank];
  free_s =
      std::max(free_s, now_s_) + static_cast<double>(bytes_moved) / network_.memory_bytes_per_s;
  At(free_s, Kind::kSummed, {call, rank, lane, step, 0});
}

void Simulator::SegmentDone(int32_t call_number, Rank rank, int32_t index) {
  Call& call = calls_[call_number];
  const Plan& plan = call.collective->plan(rank);
  RankState& state = call.ranks[rank];
  ++state.steps[index].done;  // segments of a step end in order
  if (--state.left == 0 && --call.ranks_left == 0) call.done_at = now_s_;
  bool local = false;
  for (int32_t waiting : plan.steps[index].waited_for_by) {
    const int32_t lane = plan.steps[waiting].lane;
    if (lane < 0) {
      local = true;
    } else {
      StartLane(call_number, rank, lane);
    }
  }
  if (local) StartLocal(call_number, rank);
}

Rank Simulator::PeerOf(const Message& message) const {
  return calls_[message.call].collective->plan(message.from).lanes[message.lane].peer;
}

bool Simulator::IsInside(const Message& message) const {
  return network_.HostOf(message.from) == network_.HostOf(PeerOf(message));
}

Simulator::Port& Simulator::PortOf(const Message& message) {
  return IsInside(message) ? inside_[message.from] : between_[network_.CardOf(message.from)];
}

// Sends what waits at the port, if it is free.
void Simulator::Depart(Port& port) {
  if (port.busy || port.waiting.empty()) return;
  const Message message = port.waiting.front();
  port.waiting.pop_front();
  port.busy = true;
  port.bytes += message.bytes;
  const bool inside = IsInside(message);
  const Rank peer = PeerOf(message);
  const double latency_s = inside ? network_.inside_latency_s : network_.between_latency_s;
  const double occupied_s = network_.message_s + static_cast<double>(message.bytes) /
                                                     (inside ? network_.inside_bytes_per_s
                                                             : network_.between_bytes_per_s);
  At(now_s_ + occupied_s, Kind::kGone, message);
  Port& other = inside ? inside_[peer] : between_[network_.CardOf(peer)];
  other.free_to_receive_s = std::max(other.free_to_receive_s, now_s_ + latency_s) + occupied_s;
  At(other.free_to_receive_s, Kind::kArrived, message);
}

}  // namespace muster
