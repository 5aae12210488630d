#include "state/move_state.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "base/check.h"
#include "base/crc32c.h"
#include "base/status_macros.h"
#include "collectives/transport/transport.h"
#include "collectives/transport/wire.h"
#include "state/move_chunks.h"

namespace muster {
namespace {

// After the payload: the plan's fingerprint, and the checksum of the payload and that.
constexpr int64_t kTrailerBytes = 12;
// Slots of one staging memory begin at cache lines.
constexpr int64_t kSlotAlignment = 64;

uint32_t ChecksumOf(absl::Span<const std::byte> bytes) {
  return Crc32c(absl::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
}

// Sorted, neighbours merged.
std::vector<Range> Merged(std::vector<Range> ranges) {
  std::sort(ranges.begin(), ranges.end(), [](Range a, Range b) { return a.offset < b.offset; });
  std::vector<Range> merged;
  for (const Range range : ranges) {
    if (!merged.empty() && merged.back().end() == range.offset) {
      merged.back().count += range.count;
    } else {
      merged.push_back(range);
    }
  }
  return merged;
}

class Move {
 public:
  Move(Communicator& communicator, const ReshardPlan& plan, MovableState& state,
       const MoveOptions& options)
      : communicator_(communicator),
        plan_(plan),
        state_(state),
        options_(options),
        element_bytes_(state.element_bytes()),
        chunk_elements_(std::max<int64_t>(1, options.chunk_bytes / element_bytes_)),
        deadline_(absl::Now() + options.timeout) {}

  MoveOutcome Run() {
    outcome_.status = RunAll();
    if (!outcome_.status.ok()) {
      // Nothing touches staging memory once this has returned.
      communicator_.Abort(outcome_.status, outcome_.culprit);
    }
    outcome_.arrived = Merged(std::move(outcome_.arrived));
    return std::move(outcome_);
  }

 private:
  // Staging memory of one chunk on its way.
  struct Slot {
    std::vector<std::byte> own;        // empty where staging memory was given
    absl::Span<std::byte> bytes;       // of either
    const MoveChunk* chunk = nullptr;  // null: free
    Work work;
  };

  absl::Status RunAll() {
    MUSTER_RETURN_IF_ERROR(CheckOptions());
    const std::vector<MoveChunk> chunks = ChunksOf(plan_, communicator_.rank(), chunk_elements_);
    const int64_t chunk_bytes = chunk_elements_ * element_bytes_;
    const int64_t fit = std::max<int64_t>(2, options_.window_bytes / (chunk_bytes + kTrailerBytes));
    slots_.resize(std::min(static_cast<size_t>(fit), chunks.size()));
    if (!options_.staging.empty()) {
      const size_t slot_bytes = SlotBytes();
      slots_.resize(std::min(slots_.size(), options_.staging.size() / slot_bytes));
      for (size_t i = 0; i < slots_.size(); ++i) {
        slots_[i].bytes = options_.staging.subspan(i * slot_bytes, slot_bytes);
      }
      outcome_.staging_bytes = static_cast<int64_t>(slots_.size() * slot_bytes);
    }
    // Slots are taken in turn, and operations finish in order: the slot needed next is the one that
    // is free first.
    for (size_t i = 0; i < chunks.size(); ++i) {
      Slot& slot = slots_[i % slots_.size()];
      MUSTER_RETURN_IF_ERROR(Finish(slot));
      MUSTER_RETURN_IF_ERROR(Start(chunks[i], slot));
    }
    for (size_t i = 0; i < slots_.size(); ++i) {
      MUSTER_RETURN_IF_ERROR(Finish(slots_[(chunks.size() + i) % slots_.size()]));
    }
    return absl::OkStatus();
  }

  absl::Status CheckOptions() const {
    if (options_.chunk_bytes < 1 || options_.window_bytes < 2 * options_.chunk_bytes) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "move: chunks of %d bytes in a window of %d; expected at least 1, and a window of two "
          "chunks or more",
          options_.chunk_bytes, options_.window_bytes));
    }
    if (!options_.staging.empty() && options_.staging.size() < 2 * SlotBytes()) {
      return absl::InvalidArgumentError(
          absl::StrFormat("move: staging memory of %d bytes; expected at least %d",
                          options_.staging.size(), 2 * SlotBytes()));
    }
    if (chunk_elements_ * element_bytes_ > kMaxMessageBytes - kTrailerBytes) {
      return absl::InvalidArgumentError(
          absl::StrFormat("move: chunks of %d bytes; expected at most %d",
                          chunk_elements_ * element_bytes_, kMaxMessageBytes - kTrailerBytes));
    }
    return absl::OkStatus();
  }

  // What a chunk takes of staging memory that was given.
  size_t SlotBytes() const {
    const int64_t bytes = chunk_elements_ * element_bytes_ + kTrailerBytes;
    return static_cast<size_t>((bytes + kSlotAlignment - 1) / kSlotAlignment * kSlotAlignment);
  }
  int64_t PayloadOf(const MoveChunk& chunk) const { return chunk.element_count * element_bytes_; }

  absl::Status Start(const MoveChunk& chunk, Slot& slot) {
    const absl::Duration left = deadline_ - absl::Now();
    if (left <= absl::ZeroDuration()) {
      return absl::DeadlineExceededError(
          absl::StrFormat("move: not done after %s", absl::FormatDuration(options_.timeout)));
    }
    const auto payload = static_cast<size_t>(PayloadOf(chunk));
    if (slot.bytes.size() < payload + kTrailerBytes) {
      outcome_.staging_bytes += static_cast<int64_t>(payload + kTrailerBytes - slot.bytes.size());
      slot.own.resize(payload + kTrailerBytes);
      slot.bytes = absl::MakeSpan(slot.own);
    }
    const auto count = static_cast<int64_t>(payload + kTrailerBytes);
    CollectiveOptions options;
    options.timeout = left;
    options.step = plan_.tag.step;
    options.label = absl::StrCat("state from element ", chunk.ranges[0].offset, " on");
    slot.chunk = &chunk;
    if (!chunk.is_sent) {
      slot.work = communicator_.Receive(slot.bytes.data(), count, DType::kU8, chunk.peer, options);
      return absl::OkStatus();
    }
    size_t at = 0;
    for (const Range range : chunk.ranges) {
      const auto size = static_cast<size_t>(range.count * element_bytes_);
      MUSTER_RETURN_IF_ERROR(state_.Read(range, slot.bytes.subspan(at, size)));
      at += size;
    }
    std::byte* const trailer = PutInteger(slot.bytes.data() + payload, plan_.fingerprint);
    PutInteger(trailer, ChecksumOf(absl::MakeConstSpan(slot.bytes.data(), trailer)));
    slot.work = communicator_.Send(slot.bytes.data(), count, DType::kU8, chunk.peer, options);
    return absl::OkStatus();
  }

  absl::Status Finish(Slot& slot) {
    if (slot.chunk == nullptr) return absl::OkStatus();
    const MoveChunk& chunk = *std::exchange(slot.chunk, nullptr);
    if (absl::Status status = slot.work.Wait(); !status.ok()) {
      outcome_.culprit = slot.work.culprit();
      return status;
    }
    const int64_t payload = PayloadOf(chunk);
    if (chunk.is_sent) {
      outcome_.bytes_sent += payload;
      return absl::OkStatus();
    }
    MUSTER_RETURN_IF_ERROR(Verify(chunk, slot.bytes));
    size_t at = 0;
    for (const Range range : chunk.ranges) {
      const auto size = static_cast<size_t>(range.count * element_bytes_);
      MUSTER_RETURN_IF_ERROR(
          state_.Write(range, absl::Span<const std::byte>(slot.bytes).subspan(at, size)));
      at += size;
      outcome_.arrived.push_back(range);
    }
    outcome_.bytes_received += payload;
    return absl::OkStatus();
  }

  absl::Status Verify(const MoveChunk& chunk, absl::Span<const std::byte> bytes) const {
    const std::byte* const payload_end = bytes.data() + PayloadOf(chunk);
    uint64_t fingerprint = 0;
    uint32_t checksum = 0;
    const std::byte* const covered_end = GetInteger(payload_end, &fingerprint);
    GetInteger(covered_end, &checksum);
    const uint32_t actual = ChecksumOf(absl::MakeConstSpan(bytes.data(), covered_end));
    if (actual != checksum) {
      return absl::DataLossError(absl::StrFormat(
          "move: %d elements from %d on arrived damaged from participant %d: their checksum is "
          "%08x instead of %08x",
          chunk.element_count, chunk.ranges[0].offset, chunk.peer, actual, checksum));
    }
    if (fingerprint != plan_.fingerprint) {
      return absl::FailedPreconditionError(absl::StrFormat(
          "move: participant %d moves by plan %016x, this one by %016x (%d transfers, for step %d "
          "of branch %d); all must have the same",
          chunk.peer, fingerprint, plan_.fingerprint, plan_.transfers.size(), plan_.tag.step,
          plan_.tag.branch));
    }
    return absl::OkStatus();
  }

  Communicator& communicator_;
  const ReshardPlan& plan_;
  MovableState& state_;
  const MoveOptions& options_;
  const int64_t element_bytes_;
  const int64_t chunk_elements_;
  const absl::Time deadline_;
  std::vector<Slot> slots_;
  MoveOutcome outcome_;
};

}  // namespace

MoveOutcome MoveState(Communicator& communicator, const ReshardPlan& plan, MovableState& state,
                      const MoveOptions& options) {
  MUSTER_CHECK_EQ(plan.participants, communicator.world_size());
  MUSTER_CHECK_GE(state.element_bytes(), 1);
  return Move(communicator, plan, state, options).Run();
}

}  // namespace muster
