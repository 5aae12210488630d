// Schedules of collectives among ranks that see each other's memory (transport/window.h).
//
// Where schedule.h moves messages, these read and write the memory of all ranks in place. Time is
// cut into intervals; between two of them all ranks meet. Within an interval no rank writes what
// another reads or writes, and neither do the last interval of one collective and the first of the
// next, since nobody waits between those.
//
// Three ways, by what the memory allows:
//   small   each rank copies its input to its stage, all meet, each computes all of its output:
//           one meet;
//   direct  inputs and outputs are registered: between two meets, the owner of a chunk reduces it
//           from all inputs into all outputs in one pass. Bytes read and written: the least there
//           can be. In an all-reduce any rank can do it in the owner's stead (SharedStep);
//   staged  pieces go through the stages: copied in, reduced, copied out, three pieces under way at
//           a time, one meet for each.
// Of the last two the first interval is empty, so that ranks may find out which it is at its end.
// Sums are in canonical order in all of them: bit-identical to the ring and direct algorithms.
//
// Pure functions.
#ifndef MUSTER_COLLECTIVES_SCHEDULE_WINDOW_SCHEDULE_H_
#define MUSTER_COLLECTIVES_SCHEDULE_WINDOW_SCHEDULE_H_

#include <cstdint>
#include <vector>

#include "base/ids.h"
#include "collectives/schedule/schedule_request.h"

namespace muster {

enum class WindowMode : uint8_t { kSmall, kDirect, kStaged };

enum class WindowBuffer : uint8_t {
  kInput,    // of the caller
  kOutput,   // of the caller
  kStageIn,  // one of the two halves of each of the stage's parts
  kStageOut,
};

// Elements from `offset` on of a buffer of a rank; stages have two halves.
struct WindowSlice {
  Rank rank = 0;
  WindowBuffer buffer = WindowBuffer::kInput;
  int half = 0;
  int64_t offset = 0;
  bool operator==(const WindowSlice&) const = default;
};

// Every target = sources[0] (+) sources[1] (+) ..., `count` elements of each.
struct WindowStep {
  std::vector<WindowSlice> sources;
  std::vector<WindowSlice> targets;
  int64_t count = 0;
  bool completes_sum = false;  // as in ScheduleStep
};

class WindowSchedule {
 public:
  // `half_elements`: of each half of a stage's parts. `parity` is that of the number of the
  // collective among those of the window: halves are taken in turns. Requires: Supports(request);
  // for kSmall: FitsSmall(request, half_elements).
  WindowSchedule(ScheduleRequest request, WindowMode mode, int64_t half_elements, int parity);

  // There is a schedule for this collective.
  static bool Supports(Collective collective);
  // What a rank stages fits one half.
  static bool FitsSmall(const ScheduleRequest& request, int64_t half_elements);

  // How many intervals there are, at least 2. All ranks have as many.
  int64_t intervals() const { return intervals_; }
  // What this rank does in one.
  std::vector<WindowStep> Steps(int64_t interval) const;
  // The step of the second interval of a direct all-reduce that `owner` does, or another rank in
  // its stead, as a whole or in parts: it names the same memory on all ranks, and no two owners'
  // touch a place in common. Its count may be 0.
  WindowStep SharedStep(Rank owner) const;

 private:
  int64_t Offset(Rank chunk) const { return offsets_[chunk]; }
  int64_t Count(Rank chunk) const { return offsets_[chunk + 1] - offsets_[chunk]; }
  int HalfOf(int64_t piece) const { return static_cast<int>((parity_ + piece) % 2); }
  // Elements of piece number `piece` of a chunk.
  int64_t PieceCount(Rank chunk, int64_t piece) const;
  bool reduces() const;
  // Where elements of chunk `chunk` lie in an input or output, from `at` within the chunk on.
  WindowSlice Input(Rank rank, Rank chunk, int64_t at) const;
  WindowSlice Output(Rank rank, Rank chunk, int64_t at) const;
  WindowSlice Staged(Rank rank, WindowBuffer buffer, Rank chunk, int64_t piece) const;
  void AddCopy(WindowSlice source, WindowSlice target, int64_t count,
               std::vector<WindowStep>* steps) const;
  void AddSmall(int64_t interval, std::vector<WindowStep>* steps) const;
  void AddDirect(std::vector<WindowStep>* steps) const;
  void AddStaged(int64_t interval, std::vector<WindowStep>* steps) const;

  const ScheduleRequest request_;
  const WindowMode mode_;
  const int parity_;
  const Rank rank_;
  const int size_;
  std::vector<int64_t> offsets_;  // of the chunks in the whole vector, and its end
  int64_t piece_ = 1;             // staged: elements of a piece of a chunk
  int64_t intervals_ = 2;
};

}  // namespace muster

#endif  // MUSTER_COLLECTIVES_SCHEDULE_WINDOW_SCHEDULE_H_
