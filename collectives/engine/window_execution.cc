#include "collectives/engine/window_execution.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <tuple>
#include <utility>

#include "base/check.h"
#include "base/status_macros.h"
#include "collectives/reduce/reduce.h"

namespace muster {
namespace {

// Of shorter vectors a rank soon has touched all pages.
constexpr int64_t kMinMappedBytes = 256 << 10;
// In one collective: some milliseconds. Of longer vectors the others come later.
constexpr int64_t kMostMappedBytes = 64 << 20;

// Only calls of all ranks come to the window: their scope, which a fingerprint has last, is 0.
using Shown = decltype(WindowCall::fingerprint);
static_assert(std::tuple_size_v<Shown> == kFingerprintBytes - sizeof(Fingerprint::scope));

Shown WithoutScope(const Fingerprint& fingerprint) {
  MUSTER_CHECK_EQ(fingerprint.scope, 0u);
  const auto bytes = EncodeFingerprint(fingerprint);
  Shown shown;
  std::copy_n(bytes.begin(), shown.size(), shown.begin());
  return shown;
}

Fingerprint OfAllRanks(const Shown& shown) {
  std::array<std::byte, kFingerprintBytes> bytes = {};
  std::copy_n(shown.begin(), shown.size(), bytes.begin());
  return DecodeFingerprint(bytes);
}

}  // namespace

WindowExecution::WindowExecution(std::shared_ptr<Operation> operation, Window& window, Rank rank,
                                 uint64_t number, bool expected_registered, uint64_t token)
    : operation_(std::move(operation)),
      plan_(*operation_->window_plan),
      window_(window),
      rank_(rank),
      token_(token),
      parity_(static_cast<int>(number % 2)),
      element_bytes_(static_cast<int64_t>(SizeOf(plan_.dtype))),
      expected_registered_(expected_registered),
      small_(plan_.small && !(expected_registered && !plan_.shared_steps.empty())) {}

absl::Status WindowExecution::Begin() {
  MUSTER_CHECK(!begun_);
  begun_ = true;
  WindowCall call;
  call.fingerprint = WithoutScope(operation_->fingerprint);
  if (small_) steps_ = &plan_.small_steps[parity_];
  if (!small_ || !plan_.shared_steps.empty()) {
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
  if (shared_) {
    done_ = true;
    return absl::OkStatus();
  }
  if (interval_ == 1) {
    // The other ranks' memory comes while their calls are compared.
    if (small_) FetchSources();
    MUSTER_RETURN_IF_ERROR(Compare());
    registered_ = AllRegistered();
    if (small_) {
      // Goes on as it began.
    } else if (!registered_) {
      staged_.emplace(plan_.request, WindowMode::kStaged, plan_.half_elements, parity_);
    } else if (!plan_.shared_steps.empty()) {
      return RunShared();
    } else {
      steps_ = &plan_.direct_steps;
    }
  }
  return RunInterval();
}

absl::Status WindowExecution::Compare() const {
  const auto& ours = window_.Published(rank_).fingerprint;
  for (Rank r = 0; r < plan_.request.size; ++r) {
    const auto& theirs = window_.Published(r).fingerprint;
    if (std::memcmp(ours.data(), theirs.data(), ours.size()) == 0) continue;
    return MismatchedCalls(operation_->fingerprint, rank_, OfAllRanks(theirs), r);
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
    for (const WindowStep& step : (*steps_)[interval]) {
      MUSTER_RETURN_IF_ERROR(Run(step, 0, step.count));
    }
  } else if (staged_.has_value()) {
    intervals = staged_->intervals();
    for (const WindowStep& step : staged_->Steps(interval)) {
      MUSTER_RETURN_IF_ERROR(Run(step, 0, step.count));
    }
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

void WindowExecution::MapOthersPages() {
  const int64_t bytes = OutputCount(plan_.request) * element_bytes_;
  if (bytes < kMinMappedBytes) return;
  int64_t left = kMostMappedBytes;
  for (Rank r = 0; r < plan_.request.size; ++r) {
    if (r == rank_) continue;
    const WindowCall& call = window_.Published(r);
    left -= window_.MapPages(r, call.output, bytes, left);
    left -= window_.MapPages(r, call.input, bytes, left);
  }
}

absl::Status WindowExecution::RunShared() {
  shared_ = true;
  // A line that is read here is written without being fetched once more: past the caches it would
  // be fetched again for the next collective.
  streams_ = plan_.past_caches && !AnyInPlace();
  window_.OfferPieces(plan_.shared_pieces);
  const Rank size = plan_.request.size;
  const bool helps = window_.ranks_share_cores();
  if (helps) MapOthersPages();
  int64_t finished = 0;
  for (Rank k = 0; k < (helps ? size : 1); ++k) {
    const Rank owner = (rank_ + k) % size;
    const WindowStep& step = plan_.shared_steps[owner];
    while (true) {
      const Window::Pieces pieces = window_.TakePieces(owner, helps ? 1 : plan_.touch_pieces);
      if (pieces.count == 0) break;
      const int64_t begin = pieces.first * plan_.piece_elements;
      const int64_t count = pieces.count * plan_.piece_elements;
      MUSTER_RETURN_IF_ERROR(Run(step, begin, std::min(count, step.count - begin)));
      finished += pieces.count;
    }
  }
  window_.FinishPieces(finished, token_);
  done_ = window_.TakeMet();
  return absl::OkStatus();
}

bool WindowExecution::AnyInPlace() const {
  for (Rank r = 0; r < plan_.request.size; ++r) {
    const WindowCall& call = window_.Published(r);
    if (call.input == call.output) return true;
  }
  return false;
}

absl::Status WindowExecution::Run(const WindowStep& step, int64_t begin, int64_t count) {
  sources_.clear();
  targets_.clear();
  bool touches = false;
  const int64_t offset = begin * element_bytes_;
  for (const WindowSlice& slice : step.sources) sources_.push_back(Address(slice) + offset);
  for (const WindowSlice& slice : step.targets) {
    targets_.push_back(Address(slice) + offset);
    touches = touches || (slice.buffer == WindowBuffer::kOutput && slice.rank != rank_);
  }
  if (step.sources.size() == 1 && step.targets.size() == 1 && !step.completes_sum) {
    MUSTER_CHECK(!touches);
    std::memmove(targets_[0], sources_[0], static_cast<size_t>(count * element_bytes_));
    return absl::OkStatus();
  }
  if (touches && !window_.BeginTouch()) {
    return absl::UnavailableError("a rank is gone: it left while its memory was needed");
  }
  const bool average = step.completes_sum && operation_->op == ReduceOp::kAverage;
  ReduceManyInto(plan_.dtype, operation_->op, targets_, sources_, count,
                 average ? plan_.request.size : 1, streams_);
  if (touches) window_.EndTouch();
  return absl::OkStatus();
}

}  // namespace muster
