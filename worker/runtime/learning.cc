#include "worker/runtime/learning.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace muster {
namespace {

std::string Describe(const StateTag& tag) {
  return absl::StrCat("(branch ", tag.branch, ", step ", tag.step, ", epoch ", tag.epoch, ")");
}

}  // namespace

Learning::Learning(uint64_t attempt, const std::string& source_address, const LearnRequest& request,
                   Replica& replica, LearningObserver& observer)
    : attempt_(attempt), replica_(replica), observer_(observer) {
  StateLearnerOptions options;
  options.source_address = source_address;
  options.request = request;
  options.expected_array_count = replica.rule().state_slots() + 1;
  options.expected_array_elements = replica.layout().padded_count();
  StateSink& sink = *this;  // a private base, which make_unique could not reach
  learner_ = std::make_unique<StateLearner>(std::move(options), sink);
}

Learning::~Learning() { Stop(); }

void Learning::Stop() {
  {
    MutexLock lock(&mutex_);
    stopped_ = true;
  }
  learner_.reset();
}

absl::Status Learning::LearnUpTo(const StateTag& tag) {
  {
    MutexLock lock(&mutex_);
    if (!complete_) return absl::FailedPreconditionError("the snapshot is not complete");
    while (!buffered_.empty() && buffered_.front().tag.step <= tag.step) ApplyFront();
    const StateTag reached = replica_.counters().tag;
    if (reached != tag) {
      return absl::FailedPreconditionError(absl::StrCat("learned state is ", Describe(reached),
                                                        ", the fleet resumes at ", Describe(tag)));
    }
    buffered_.clear();
  }
  Report();
  return absl::OkStatus();
}

absl::Status Learning::OnHeader(const SnapshotHeader& header) {
  MutexLock lock(&mutex_);
  header_ = header;
  arrays_.assign(header.array_count, std::vector<float>(header.array_elements));
  return absl::OkStatus();
}

absl::Status Learning::OnSnapshotChunk(int array, int64_t offset, absl::Span<const float> values) {
  MutexLock lock(&mutex_);
  std::copy(values.begin(), values.end(), arrays_[array].begin() + offset);
  return absl::OkStatus();
}

absl::Status Learning::OnSnapshotDone() {
  {
    MutexLock lock(&mutex_);
    MUSTER_RETURN_IF_ERROR(replica_.Fill(
        [this](absl::Span<float> parameters, absl::Span<const absl::Span<float>> slots)
            ABSL_NO_THREAD_SAFETY_ANALYSIS -> absl::StatusOr<ReplicaCounters> {
              std::copy(arrays_[0].begin(), arrays_[0].end(), parameters.begin());
              for (size_t i = 0; i < slots.size(); ++i) {
                std::copy(arrays_[i + 1].begin(), arrays_[i + 1].end(), slots[i].begin());
              }
              return ReplicaCounters{.tag = header_.tag,
                                     .update_count = header_.update_count,
                                     .nonfinite_in_row = header_.nonfinite_in_row,
                                     .skipped_steps = header_.skipped_steps};
            }));
    arrays_.clear();
    complete_ = true;
  }
  Report();
  return absl::OkStatus();
}

absl::Status Learning::OnStep(StepItem item) {
  MUSTER_RETURN_IF_ERROR(replica_.CheckRecord(item.record));
  {
    MutexLock lock(&mutex_);
    stable_ = item.stable;
    buffered_.push_back(std::move(item));
    ApplyStable();
  }
  Report();
  return absl::OkStatus();
}

absl::Status Learning::OnStable(const StateTag& stable) {
  {
    MutexLock lock(&mutex_);
    stable_ = stable;
    ApplyStable();
  }
  Report();
  return absl::OkStatus();
}

void Learning::OnEnded(const absl::Status& reason) {
  {
    MutexLock lock(&mutex_);
    if (stopped_) return;
  }
  observer_.OnLearningFailed(attempt_, reason);
}

void Learning::ApplyFront() {
  const StepItem& item = buffered_.front();
  replica_.Apply(item.record, *item.gradient);
  buffered_.pop_front();
}

void Learning::ApplyStable() {
  while (complete_ && !buffered_.empty() && buffered_.front().tag.branch == stable_.branch &&
         buffered_.front().tag.step <= stable_.step) {
    ApplyFront();
  }
}

void Learning::Report() {
  std::optional<StateTag> applied, learned;
  bool caught_up = false;
  {
    MutexLock lock(&mutex_);
    if (!complete_) return;
    applied = replica_.counters().tag;
    learned = buffered_.empty() ? applied : buffered_.back().tag;
    caught_up = learned->step + kCaughtUp >= stable_.step;
  }
  observer_.OnLearned(attempt_, applied, learned, caught_up);
}

}  // namespace muster
