// One operation under way: starts the plan's steps over the transport as what they wait for gets
// done.
//
// Driven by one thread at a time, the one that drives the transport. Completions come from
// the communicator, which polls for all executions.
#ifndef MUSTER_COLLECTIVES_ENGINE_EXECUTION_H_
#define MUSTER_COLLECTIVES_ENGINE_EXECUTION_H_

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/types/span.h"
#include "collectives/engine/operation.h"
#include "collectives/engine/scratch_pool.h"
#include "collectives/transport/transport.h"

namespace muster {

class Execution : public PieceConsumer {
 public:
  // Tokens of this execution carry `slot` (below 2^kSlotBits) in their top bits.
  static constexpr int kSlotBits = 8;
  // Tags of fingerprints: this and their number. Operations' tags leave the bit clear.
  static constexpr uint64_t kFingerprintTag = uint64_t{1} << 63;
  static int SlotOf(uint64_t token) { return static_cast<int>(token >> (64 - kSlotBits)); }

  Execution(std::shared_ptr<Operation> operation, int slot, Transport& transport,
            ScratchPool& scratch_pool);
  ~Execution() override;

  Operation& operation() { return *operation_; }
  const std::shared_ptr<Operation>& shared_operation() const { return operation_; }
  int slot() const { return slot_; }

  // Lets sends to `peer` begin; until then they wait (for the operation before to have sent all).
  // First goes the fingerprint, if the peer is to be told; it takes its number from *next_number.
  void OpenSends(Rank peer, uint64_t* next_number);
  bool SendsOpen(Rank peer) const { return peers_[peer].sends_open; }
  // Every send to `peer` has been handed to the transport.
  bool SendsPosted(Rank peer) const;
  // The peer's fingerprint, the number-th it has sent this rank, has come and matches: what it
  // sends under that number is of this operation.
  void Heard(Rank peer, uint64_t number);
  bool MustHear(Rank peer) const { return peers_[peer].must_hear; }
  bool HasHeard(Rank peer) const { return peers_[peer].heard; }

  // A transport operation with this token is complete.
  void Completed(uint64_t token);
  // Does local work that is ready: a segment, or several small ones. False: none was.
  bool RunLocal();
  bool done() const { return left_ == 0 && unheard_ == 0; }

  // Peers on which it waits now, for error messages.
  std::vector<Rank> WaitsFor() const;

  void Consume(uint64_t token, int64_t offset, absl::Span<const std::byte> piece) override;

 private:
  struct StepState {
    int32_t started = 0;  // segments
    int32_t done = 0;     // segments in front that are done
  };
  struct PeerState {
    bool sends_open = false;
    bool must_hear = false;
    bool heard = false;
    uint64_t told_number = 0;
    uint64_t heard_number = 0;
  };
  struct LaneState {
    size_t position = 0;  // in PlanLane::steps
    int32_t in_flight = 0;
    int64_t begun = 0;  // segments
  };

  std::byte* Address(const Slice& slice, int64_t element) const;
  bool Ready(const PlanStep& step, int32_t segment) const;
  void StartLane(int32_t lane);
  // Of the segments of a lane of sends, the part that is done: 0 to 1.
  double PartSent(size_t lane) const;
  // Starts the lanes of sends that waited for the one that was last, if it no longer is.
  void KeepStep();
  void Post(int32_t index, int32_t segment);
  void SegmentDone(int32_t index, int32_t segment);
  // The bytes of a segment that was ready and has been run, or 0.
  int64_t RunLocalSegment();
  void RunSegment(const PlanStep& step, int32_t segment);

  const std::shared_ptr<Operation> operation_;
  const Plan& plan_;
  const int slot_;
  Transport& transport_;
  ScratchPool& scratch_pool_;
  ScratchBuffer scratch_;
  const size_t element_bytes_;
  const std::array<std::byte, kFingerprintBytes> fingerprint_;  // as sent

  std::vector<StepState> steps_;
  std::vector<LaneState> lanes_;
  double least_sent_ = 0;                     // PartSent of the lane that is last
  std::vector<PeerState> peers_;              // by rank
  size_t first_local_ = 0;                    // local steps before it are done
  absl::flat_hash_set<uint64_t> done_early_;  // (step, segment) that overtook one before
  int64_t left_;                              // segments not done, and fingerprints not sent
  int unheard_;
};

}  // namespace muster

#endif  // MUSTER_COLLECTIVES_ENGINE_EXECUTION_H_
