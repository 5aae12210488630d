#include "collectives/engine/window_execution.h"

#include <algorithm>
#include <cstring>
#include <type_traits>
#include <utility>

#include "base/check.h"
#include "base/status_macros.h"
#include "collectives/reduce/reduce.h"

namespace muster {
namespace {

// Others' registered memory is written in pieces of this size, between which a rank that closes
// takes it back.
constexpr int64_t kTouchBytes = 256 << 10;

}  // namespace

WindowExecution::WindowExecution(std::shared_ptr<Operation> operation, Window& window, Rank rank,
                                 uint64_t number, uint64_t token)
    : operation_(std::move(operation)),
      plan_(*operation_->window_plan),
      window_(window),
      rank_(rank),
      token_(token),
      parity_(static_cast<int>(number % 2)),
      element_bytes_(static_cast<int64_t>(SizeOf(plan_.dtype))) {}

absl::Status WindowExecution::Begin() {
  MUSTER_CHECK(!begun_);
  begun_ = true;
  WindowCall call;
  call.fingerprint = EncodeFingerprint(operation_->fingerprint);
  static_assert(
      std::is_same_v<decltype(call.fingerprint), std::array<std::byte, kFingerprintBytes>>);
  if (plan_.small) {
    steps_ = &plan_.small_steps[parity_];
  } else {
    // An empty buffer is as good as registered.
    const auto place = [this](const std::byte* data, int64_t count) {
      if (count == 0) return int64_t{0};
      return window_.PlaceOf(data, count * element_bytes_).value_or(-1);
    };
    call.input = place(operation_->input, InputCount(plan_.request));
    call.output = place(operation_->output, OutputCount(plan_.request));
  }
  window_.Publish(call);
  return RunInterval();
}

void WindowExecution::FetchSources() const {
  for (const WindowStep& step : (*steps_)[interval_]) {
    for (const WindowSlice& slice : step.sources) __builtin_prefetch(Address(slice));
  }
}

absl::Status WindowExecution::Met() {
  if (interval_ == 1) {
    // The other ranks' memory comes while their calls are compared.
    if (plan_.small) FetchSources();
    MUSTER_RETURN_IF_ERROR(Compare());
    if (plan_.small) {
      // Goes on as it began.
    } else if (AllRegistered()) {
      steps_ = &plan_.direct_steps;
    } else {
      staged_.emplace(plan_.request, WindowMode::kStaged, plan_.half_elements, parity_);
    }
  }
  return RunInterval();
}

absl::Status WindowExecution::Compare() const {
  const auto& ours = window_.Published(rank_).fingerprint;
  for (Rank r = 0; r < plan_.request.size; ++r) {
    const auto& theirs = window_.Published(r).fingerprint;
    if (std::memcmp(ours.data(), theirs.data(), ours.size()) == 0) continue;
    return MismatchedCalls(operation_->fingerprint, rank_, DecodeFingerprint(theirs), r);
  }
  return absl::OkStatus();
}

bool WindowExecution::AllRegistered() const {
  for (Rank r = 0; r < plan_.request.size; ++r) {
    const WindowCall& call = window_.Published(r);
    const bool is_read =
        plan_.request.collective != Collective::kBroadcast || r == plan_.request.root;
    const bool is_written = plan_.request.collective == Collective::kAllReduce;
    if ((is_read && call.input < 0) || (is_written && call.output < 0)) return false;
  }
  return true;
}

absl::Status WindowExecution::RunInterval() {
  const int64_t interval = interval_++;
  int64_t intervals = 2;
  if (steps_ != nullptr) {
    intervals = static_cast<int64_t>(steps_->size());
    for (const WindowStep& step : (*steps_)[interval]) MUSTER_RETURN_IF_ERROR(Run(step));
  } else if (staged_.has_value()) {
    intervals = staged_->intervals();
    for (const WindowStep& step : staged_->Steps(interval)) MUSTER_RETURN_IF_ERROR(Run(step));
  }  // Else the first interval of one or the other, which is empty.
  if (interval + 1 == intervals) {
    done_ = true;
  } else {
    window_.Arrive(token_);
  }
  return absl::OkStatus();
}

std::byte* WindowExecution::Address(const WindowSlice& slice) const {
  const int64_t offset = slice.offset * element_bytes_;
  const bool own = slice.rank == rank_;
  const int64_t half = window_.stage_bytes() / 4;
  switch (slice.buffer) {
    case WindowBuffer::kInput:
      return (own ? const_cast<std::byte*>(operation_->input)
                  : window_.At(slice.rank, window_.Published(slice.rank).input)) +
             offset;
    case WindowBuffer::kOutput:
      return (own ? operation_->output
                  : window_.At(slice.rank, window_.Published(slice.rank).output)) +
             offset;
    case WindowBuffer::kStageIn:
      return window_.Stage(slice.rank) + slice.half * half + offset;
    case WindowBuffer::kStageOut:
      return window_.Stage(slice.rank) + (2 + slice.half) * half + offset;
  }
  return nullptr;
}

absl::Status WindowExecution::Run(const WindowStep& step) {
  sources_.clear();
  targets_.clear();
  bool touches = false;
  for (const WindowSlice& slice : step.sources) sources_.push_back(Address(slice));
  for (const WindowSlice& slice : step.targets) {
    targets_.push_back(Address(slice));
    touches = touches || (slice.buffer == WindowBuffer::kOutput && slice.rank != rank_);
  }
  if (step.sources.size() == 1 && step.targets.size() == 1 && !step.completes_sum) {
    MUSTER_CHECK(!touches);
    std::memmove(targets_[0], sources_[0], static_cast<size_t>(step.count * element_bytes_));
    return absl::OkStatus();
  }
  const bool average = step.completes_sum && operation_->op == ReduceOp::kAverage;
  const int64_t piece = touches ? kTouchBytes / element_bytes_ : step.count;
  for (int64_t begin = 0; begin < step.count; begin += piece) {
    if (touches && !window_.BeginTouch()) {
      return absl::UnavailableError("a rank is gone: it left while its memory was needed");
    }
    const int64_t count = std::min(piece, step.count - begin);
    ReduceManyInto(plan_.dtype, operation_->op, targets_, sources_, count,
                   average ? plan_.request.size : 1, plan_.past_caches && touches);
    if (touches) window_.EndTouch();
    for (const void*& source : sources_) {
      source = static_cast<const std::byte*>(source) + count * element_bytes_;
    }
    for (void*& target : targets_) {
      target = static_cast<std::byte*>(target) + count * element_bytes_;
    }
  }
  return absl::OkStatus();
}

}  // namespace muster
