#include "collectives/schedule/window_schedule.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace muster {
namespace {

// Pieces start at multiples of this many elements, so that vectors stay aligned.
constexpr int64_t kPieceUnit = 64;

// A broadcast's root owns everything.
std::vector<int64_t> OwnedCounts(const ScheduleRequest& request) {
  if (request.collective != Collective::kBroadcast) return ChunkCounts(request);
  std::vector<int64_t> counts(request.size);
  counts[request.root] = request.count;
  return counts;
}

}  // namespace

bool WindowSchedule::Supports(Collective collective) {
  switch (collective) {
    case Collective::kAllReduce:
    case Collective::kReduceScatter:
    case Collective::kAllGather:
    case Collective::kBroadcast:
    case Collective::kBarrier:
      return true;
    default:
      return false;
  }
}

bool WindowSchedule::FitsSmall(const ScheduleRequest& request, int64_t half_elements) {
  int64_t most = request.count;
  for (int64_t count : request.counts) {
    if (request.collective == Collective::kReduceScatter ||
        request.collective == Collective::kAllReduce) {
      most += count;
    } else {
      most = std::max(most, count);
    }
  }
  return most <= half_elements;
}

WindowSchedule::WindowSchedule(ScheduleRequest request, WindowMode mode, int64_t half_elements,
                               int parity)
    : request_(std::move(request)),
      mode_(mode),
      parity_(parity),
      rank_(request_.rank),
      size_(request_.size) {
  MUSTER_CHECK(Supports(request_.collective));
  MUSTER_CHECK_GE(half_elements, kPieceUnit * size_);
  offsets_.push_back(0);
  int64_t longest = 0;
  for (const int64_t count : OwnedCounts(request_)) {
    longest = std::max(longest, count);
    offsets_.push_back(offsets_.back() + count);
  }
  if (mode == WindowMode::kSmall) {
    MUSTER_CHECK(FitsSmall(request_, half_elements));
  } else if (mode == WindowMode::kDirect) {
    intervals_ = 3;
  } else {
    // Reductions stage a piece of every chunk, the others one of the rank's own.
    piece_ = half_elements / (reduces() ? size_ : 1) / kPieceUnit * kPieceUnit;
    const int64_t pieces = (longest + piece_ - 1) / piece_;
    intervals_ = 1 + pieces + 2;
  }
}

bool WindowSchedule::reduces() const {
  return request_.collective == Collective::kAllReduce ||
         request_.collective == Collective::kReduceScatter;
}

int64_t WindowSchedule::PieceCount(Rank chunk, int64_t piece) const {
  return std::clamp<int64_t>(Count(chunk) - piece * piece_, 0, piece_);
}

WindowSlice WindowSchedule::Input(Rank rank, Rank chunk, int64_t at) const {
  switch (request_.collective) {
    case Collective::kAllGather:  // The input is the rank's own chunk only.
    case Collective::kBroadcast:
      return {rank, WindowBuffer::kInput, 0, at};
    default:
      return {rank, WindowBuffer::kInput, 0, Offset(chunk) + at};
  }
}

WindowSlice WindowSchedule::Output(Rank rank, Rank chunk, int64_t at) const {
  if (request_.collective == Collective::kReduceScatter) {
    return {rank, WindowBuffer::kOutput, 0, at};
  }
  return {rank, WindowBuffer::kOutput, 0, Offset(chunk) + at};
}

WindowSlice WindowSchedule::Staged(Rank rank, WindowBuffer buffer, Rank chunk,
                                   int64_t piece) const {
  return {rank, buffer, HalfOf(piece), reduces() ? chunk * piece_ : 0};
}

void WindowSchedule::AddCopy(WindowSlice source, WindowSlice target, int64_t count,
                             std::vector<WindowStep>* steps) const {
  if (count > 0) steps->push_back({{source}, {target}, count, false});
}

void WindowSchedule::AddSmall(int64_t interval, std::vector<WindowStep>* steps) const {
  const auto staged = [this](Rank rank, int64_t offset) {
    return WindowSlice{rank, WindowBuffer::kStageIn, HalfOf(0), offset};
  };
  if (interval == 0) {
    // What others need of this rank's input.
    const int64_t whole = reduces() ? offsets_.back() : Count(rank_);
    AddCopy({rank_, WindowBuffer::kInput, 0, 0}, staged(rank_, 0), whole, steps);
    return;
  }
  for (Rank chunk = 0; chunk < size_; ++chunk) {
    if (Count(chunk) == 0) continue;
    if (!reduces()) {
      if (chunk == rank_) {
        if (!request_.in_place)
          AddCopy(Input(rank_, chunk, 0), Output(rank_, chunk, 0), Count(chunk), steps);
      } else {
        AddCopy(staged(chunk, 0), Output(rank_, chunk, 0), Count(chunk), steps);
      }
      continue;
    }
    if (request_.collective == Collective::kReduceScatter && chunk != rank_) continue;
    WindowStep step;
    for (int k = 1; k <= size_; ++k) {
      const Rank from = (chunk + k) % size_;
      step.sources.push_back(from == rank_ ? Input(rank_, chunk, 0) : staged(from, Offset(chunk)));
    }
    step.targets.push_back(Output(rank_, chunk, 0));
    step.count = Count(chunk);
    step.completes_sum = true;
    steps->push_back(std::move(step));
  }
}

void WindowSchedule::AddDirect(std::vector<WindowStep>* steps) const {
  if (!reduces()) {
    for (int k = 0; k < size_; ++k) {
      // Everybody starts elsewhere.
      const Rank chunk = (rank_ + k) % size_;
      if (chunk == rank_ && request_.in_place) continue;
      AddCopy(Input(chunk, chunk, 0), Output(rank_, chunk, 0), Count(chunk), steps);
    }
    return;
  }
  if (Count(rank_) == 0) return;
  WindowStep step = SharedStep(rank_);
  if (request_.collective == Collective::kReduceScatter) step.targets = {Output(rank_, rank_, 0)};
  steps->push_back(std::move(step));
}

WindowStep WindowSchedule::SharedStep(Rank owner) const {
  WindowStep step;
  for (int k = 1; k <= size_; ++k) step.sources.push_back(Input((owner + k) % size_, owner, 0));
  for (Rank r = 0; r < size_; ++r) step.targets.push_back(Output(r, owner, 0));
  step.count = Count(owner);
  step.completes_sum = true;
  return step;
}

void WindowSchedule::AddStaged(int64_t interval, std::vector<WindowStep>* steps) const {
  // Copies piece `interval` in, works on the one before, copies the one before that out. A result
  // stays in its owner's stage, where the others read it: written to theirs, each line would go
  // from core to core twice.
  for (int k = 0; k < size_; ++k) {
    const Rank chunk = (rank_ + k) % size_;
    // What this rank reduces it reads from its own input; a gather stages its own chunk only.
    if (reduces() == (chunk == rank_)) continue;
    AddCopy(Input(rank_, chunk, interval * piece_),
            Staged(rank_, WindowBuffer::kStageIn, chunk, interval), PieceCount(chunk, interval),
            steps);
  }
  const int64_t piece = interval - 1;
  if (piece >= 0 && !reduces()) {
    for (int k = 0; k < size_; ++k) {
      const Rank chunk = (rank_ + k) % size_;
      const WindowSlice target = Output(rank_, chunk, piece * piece_);
      if (chunk != rank_) {
        AddCopy(Staged(chunk, WindowBuffer::kStageIn, chunk, piece), target,
                PieceCount(chunk, piece), steps);
      } else if (!request_.in_place) {
        AddCopy(Input(rank_, chunk, piece * piece_), target, PieceCount(chunk, piece), steps);
      }
    }
  } else if (piece >= 0 && PieceCount(rank_, piece) > 0) {
    WindowStep step;
    for (int k = 1; k <= size_; ++k) {
      const Rank from = (rank_ + k) % size_;
      step.sources.push_back(from == rank_ ? Input(rank_, rank_, piece * piece_)
                                           : Staged(from, WindowBuffer::kStageIn, rank_, piece));
    }
    step.targets.push_back(Output(rank_, rank_, piece * piece_));
    if (request_.collective == Collective::kAllReduce && size_ > 1) {
      step.targets.push_back(Staged(rank_, WindowBuffer::kStageOut, rank_, piece));
    }
    step.count = PieceCount(rank_, piece);
    step.completes_sum = true;
    steps->push_back(std::move(step));
  }
  if (request_.collective != Collective::kAllReduce || interval < 2) return;
  for (int k = 1; k < size_; ++k) {
    const Rank chunk = (rank_ + k) % size_;
    AddCopy(Staged(chunk, WindowBuffer::kStageOut, chunk, interval - 2),
            Output(rank_, chunk, (interval - 2) * piece_), PieceCount(chunk, interval - 2), steps);
  }
}

std::vector<WindowStep> WindowSchedule::Steps(int64_t interval) const {
  MUSTER_CHECK(interval >= 0 && interval < intervals_);
  std::vector<WindowStep> steps;
  switch (mode_) {
    case WindowMode::kSmall:
      AddSmall(interval, &steps);
      break;
    case WindowMode::kDirect:
      if (interval == 1) AddDirect(&steps);
      break;
    case WindowMode::kStaged:
      if (interval > 0) AddStaged(interval - 1, &steps);
      break;
  }
  return steps;
}

}  // namespace muster
