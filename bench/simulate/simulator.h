// Runs collectives on a modelled network, event by event: the plans that the engine executes, with
// the engine's rules for when a segment may start.
//
// A message waits for its sender's port, occupies it for its bytes, and after the latency occupies
// the receiver's port likewise, in order of departure (cut-through; the network's core never
// blocks). Sums take a rank's memory one after the other. Nothing is random: equal input gives
// equal times. Not thread-safe.
#ifndef MUSTER_BENCH_SIMULATE_SIMULATOR_H_
#define MUSTER_BENCH_SIMULATE_SIMULATOR_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <queue>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "bench/simulate/network.h"
#include "collectives/engine/plan.h"

namespace muster {

// One collective, ready to run any number of times.
class SimulatedCollective {
 public:
  // The plan of each rank for `request`, whose rank is ignored. INVALID_ARGUMENT as MakePlan.
  static absl::StatusOr<std::shared_ptr<const SimulatedCollective>> Create(ScheduleRequest request,
                                                                           DType dtype,
                                                                           int64_t segment_bytes);

  int size() const { return static_cast<int>(plans_.size()); }
  const Plan& plan(Rank rank) const { return *plans_[rank]; }
  // The receiving lane, in the plan of the lane's peer, of what is sent in `lane` of `rank`.
  int32_t ReceivingLane(Rank rank, int32_t lane) const { return receiving_[rank][lane]; }

 private:
  std::vector<std::shared_ptr<const Plan>> plans_;
  std::vector<std::vector<int32_t>> receiving_;  // by rank and lane; -1 for what receives
};

class Simulator {
 public:
  Simulator(const NetworkModel& network, int ranks);

  // Every rank calls the collective at `start_s`. Requires: as many ranks as the simulator has.
  // Returns the number of the call.
  int Launch(std::shared_ptr<const SimulatedCollective> collective, double start_s);
  // Until everything launched is done.
  void Run();

  // When the last rank was done with this call.
  double DoneAt(int call) const { return calls_[call].done_at; }
  int64_t messages() const { return messages_; }
  // Bytes that left the card, or the rank for its own host.
  int64_t BytesBetween(int card) const { return between_[card].bytes; }
  int64_t BytesInside(Rank rank) const { return inside_[rank].bytes; }

 private:
  struct StepState {
    int32_t started = 0;  // segments
    int32_t done = 0;
  };
  struct LaneState {
    size_t position = 0;    // in PlanLane::steps
    int32_t in_flight = 0;  // sent, not yet gone; or being summed
    int64_t arrived = 0;    // messages not yet taken
  };
  struct RankState {
    bool started = false;
    std::vector<StepState> steps;
    std::vector<LaneState> lanes;
    size_t first_local = 0;  // local steps before it are wholly started
    int64_t left = 0;        // segments
  };
  struct Call {
    std::shared_ptr<const SimulatedCollective> collective;
    std::vector<RankState> ranks;
    int ranks_left = 0;
    double done_at = 0;
  };
  struct Message {
    int32_t call = 0;
    Rank from = 0;
    int32_t lane = 0;  // of the sender
    int32_t step = 0;
    int64_t bytes = 0;
  };
  struct Port {
    std::deque<Message> waiting;
    bool busy = false;
    double free_to_receive_s = 0;
    int64_t bytes = 0;  // sent
  };
  enum class Kind : uint8_t { kStart, kGone, kArrived, kSummed };
  struct Event {
    double time_s = 0;
    uint64_t number = 0;  // ties go in the order in which they came up
    Kind kind = Kind::kStart;
    Message message;  // kSummed: `from` is the rank, `lane` -1 for a local step
    bool operator>(const Event& other) const {
      return time_s != other.time_s ? time_s > other.time_s : number > other.number;
    }
  };

  void At(double time_s, Kind kind, const Message& message);
  void Handle(const Event& event);
  bool Ready(const Call& call, Rank rank, int32_t step) const;
  void StartLane(int32_t call, Rank rank, int32_t lane);
  void StartLocal(int32_t call, Rank rank);
  void Depart(Port& port);
  void Sum(int32_t call, Rank rank, int32_t step, int32_t lane, int64_t bytes_moved);
  void SegmentDone(int32_t call, Rank rank, int32_t step);
  bool IsInside(const Message& message) const;
  Port& PortOf(const Message& message);
  Rank PeerOf(const Message& message) const;
  int64_t SegmentBytes(const Plan& plan, int32_t step, int32_t segment) const;

  const NetworkModel network_;
  double now_s_ = 0;
  uint64_t next_number_ = 0;
  int64_t messages_ = 0;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::vector<Call> calls_;
  std::vector<Port> inside_;           // by rank
  std::vector<Port> between_;          // by card
  std::vector<double> memory_free_s_;  // by rank
};

}  // namespace muster

#endif  // MUSTER_BENCH_SIMULATE_SIMULATOR_H_
