#include "worker/runtime/saved_part.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/control/placement.h"
#include "base/status_macros.h"
#include "state/move_state.h"
#include "state/view_map.h"
#include "worker/checkpoint/part_plan.h"

namespace muster {
namespace {

// From what is held to what is to be written: arrays of one range.
class SavingState : public MovableState {
 public:
  SavingState(const Replica& replica, Range saved, std::vector<std::vector<float>>& arrays)
      : replica_(replica), saved_(saved), arrays_(arrays) {}

  int64_t element_bytes() const override {
    return Replica::FloatsPerElement(replica_.rule()) * static_cast<int64_t>(sizeof(float));
  }
  absl::Status Read(Range range, absl::Span<std::byte> bytes) override {
    replica_.PackRange(range, bytes);
    return absl::OkStatus();
  }
  absl::Status Write(Range range, absl::Span<const std::byte> bytes) override {
    MUSTER_CHECK(saved_.Contains(range)) << "a range came that is not saved here";
    const auto count = static_cast<size_t>(range.count) * sizeof(float);
    for (std::vector<float>& array : arrays_) {
      std::memcpy(array.data() + (range.offset - saved_.offset), bytes.data(), count);
      bytes.remove_prefix(count);
    }
    return absl::OkStatus();
  }

 private:
  const Replica& replica_;
  const Range saved_;
  std::vector<std::vector<float>>& arrays_;
};

// As if the state were to move to those that write it, beside what is held.
absl::StatusOr<ReshardPlan> PlanSave(const View& view, const Layout& layout, const StateTag& tag,
                                     absl::Span<const Rank> writers,
                                     absl::Span<const Range> ranges) {
  MUSTER_ASSIGN_OR_RETURN(const ViewMap from, MapOf(view, layout));
  const int members = static_cast<int>(view.members.size());
  std::vector<Rank> everybody(view.members.size());
  std::iota(everybody.begin(), everybody.end(), 0);
  const std::vector<std::optional<Rank>> givers(everybody.begin(), everybody.end());
  std::vector<Shard> shards;
  for (size_t part = 0; part < writers.size(); ++part) {
    shards.push_back({ranges[part], {writers[part]}});
  }
  MUSTER_ASSIGN_OR_RETURN(const ShardMap to,
                          ShardMap::Create(layout.padded_count(), members, std::move(shards)));
  return PlanReshard(tag, HoldingsOf(from.map, givers, tag), to, everybody, members);
}

}  // namespace

absl::StatusOr<std::optional<SavedPart>> CopyPartToSave(const View& view, const Replica& replica,
                                                        Communicator& communicator,
                                                        absl::Duration timeout,
                                                        std::optional<Rank>* culprit) {
  const std::vector<Rank> writers = ShardOwners(view);
  const auto writer = std::find(writers.begin(), writers.end(), communicator.rank());
  const bool writes = writer != writers.end();
  const auto part = static_cast<size_t>(writer - writers.begin());
  const std::vector<Range> ranges =
      RangesOfParts(replica.layout(), static_cast<int>(writers.size()));
  const Range mine = writes ? ranges[part] : Range();
  auto state = std::make_shared<ReplicaSnapshot>();
  state->counters = replica.counters();
  for (int array = 0; array < replica.part().array_count(); ++array) {
    std::vector<float>& saved = state->arrays.emplace_back(static_cast<size_t>(mine.count));
    replica.part().Get(array, mine.offset, absl::MakeSpan(saved));
  }
  if (view.strategy.sharded()) {
    MUSTER_ASSIGN_OR_RETURN(const ReshardPlan plan,
                            PlanSave(view, replica.layout(), state->counters.tag, writers, ranges));
    SavingState saving(replica, mine, state->arrays);
    const MoveOutcome moved = MoveState(communicator, plan, saving, {.timeout = timeout});
    *culprit = moved.culprit;
    MUSTER_RETURN_IF_ERROR(moved.status);
  }
  if (!writes) return std::nullopt;
  return SavedPart{std::move(state),
                   {.index = static_cast<int>(part),
                    .count = static_cast<int>(writers.size()),
                    .publisher = view.members[static_cast<size_t>(writers.front())].incarnation,
                    .view = view.epoch}};
}

}  // namespace muster
