#include "worker/runtime/state_feed.h"

#include <deque>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace muster {

// Lock order: source, then replica, then feed.
class ReplicaFeed : public StateFeed, public ReplicaListener {
 public:
  ReplicaFeed(ReplicaStateSource& source, int64_t max_buffered_bytes)
      : source_(source), max_buffered_bytes_(max_buffered_bytes) {}
  ~ReplicaFeed() override { source_.Closed(this); }

  void Begin(std::shared_ptr<const ReplicaSnapshot> snapshot, const StateTag& stable) {
    snapshot_ = std::move(snapshot);
    const ReplicaCounters& counters = snapshot_->counters;
    header_ = {.tag = counters.tag,
               .update_count = counters.update_count,
               .nonfinite_in_row = static_cast<int32_t>(counters.nonfinite_in_row),
               .skipped_steps = counters.skipped_steps,
               .array_count = static_cast<int32_t>(snapshot_->arrays.size()),
               .array_elements = static_cast<int64_t>(snapshot_->arrays[0].size())};
    SetStable(stable);
  }

  const SnapshotHeader& header() const override { return header_; }
  absl::Span<const float> Array(int index) const override { return snapshot_->arrays[index]; }

  absl::StatusOr<std::optional<FeedItem>> Next(absl::Time deadline) override {
    MutexLock lock(&mutex_);
    const auto ready = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return !ended_.ok() || !steps_.empty() || stable_moved_;
    };
    mutex_.AwaitWithDeadline(Condition(&ready), deadline);
    if (!ended_.ok()) return ended_;
    if (!steps_.empty()) {
      StepItem item = std::move(steps_.front());
      steps_.pop_front();
      buffered_bytes_ -= Bytes(item);
      item.stable = stable_;
      return FeedItem(std::move(item));
    }
    if (stable_moved_) {
      stable_moved_ = false;
      return FeedItem(StableItem{stable_});
    }
    return std::optional<FeedItem>();
  }

  void OnApplied(const CommitRecord& record, const StateTag& tag,
                 std::shared_ptr<const std::vector<float>> gradient) override {
    MutexLock lock(&mutex_);
    if (!ended_.ok()) return;
    StepItem item{.record = record, .tag = tag, .gradient = std::move(gradient)};
    buffered_bytes_ += Bytes(item);
    if (buffered_bytes_ > max_buffered_bytes_) {
      steps_.clear();
      ended_ = absl::ResourceExhaustedError(
          absl::StrCat("the learner is ", max_buffered_bytes_ >> 20,
                       " MiB of gradients behind; it must start again"));
      return;
    }
    steps_.push_back(std::move(item));
  }

  void SetStable(const StateTag& stable) {
    MutexLock lock(&mutex_);
    stable_moved_ = stable_moved_ || stable != stable_;
    stable_ = stable;
  }

  void End(const absl::Status& reason) {
    MutexLock lock(&mutex_);
    if (ended_.ok()) ended_ = reason;
    steps_.clear();
  }

 private:
  static int64_t Bytes(const StepItem& item) {
    return static_cast<int64_t>(item.gradient->size() * sizeof(float));
  }

  ReplicaStateSource& source_;
  const int64_t max_buffered_bytes_;
  std::shared_ptr<const ReplicaSnapshot> snapshot_;
  SnapshotHeader header_;

  Mutex mutex_;
  std::deque<StepItem> steps_ ABSL_GUARDED_BY(mutex_);
  int64_t buffered_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  StateTag stable_ ABSL_GUARDED_BY(mutex_);
  bool stable_moved_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status ended_ ABSL_GUARDED_BY(mutex_);
};

void ReplicaStateSource::Offer(const JobId& job, const std::string& fleet_id, Incarnation self,
                               Replica* replica) {
  MutexLock lock(&mutex_);
  MUSTER_CHECK(replica_ == nullptr || replica_ == replica) << "another replica is on offer";
  if (replica_ == replica && job_ == job && fleet_id_ == fleet_id && self_ == self) return;
  job_ = job;
  fleet_id_ = fleet_id;
  self_ = self;
  replica_ = replica;
  stable_ = StateTag{};
}

void ReplicaStateSource::Withdraw() {
  MutexLock lock(&mutex_);
  if (replica_ == nullptr) return;
  for (ReplicaFeed* feed : feeds_) {
    replica_->StopListening(feed);
    feed->End(absl::UnavailableError("this worker has stopped serving the job's state"));
  }
  replica_ = nullptr;
}

void ReplicaStateSource::SetStable(const StateTag& stable) {
  MutexLock lock(&mutex_);
  if (stable == stable_) return;
  stable_ = stable;
  for (ReplicaFeed* feed : feeds_) feed->SetStable(stable);
}

absl::StatusOr<std::unique_ptr<StateFeed>> ReplicaStateSource::Open(const LearnRequest& request) {
  MutexLock lock(&mutex_);
  const auto refuse = [](absl::string_view what) {
    return absl::FailedPreconditionError(absl::StrCat("cannot serve state: ", what));
  };
  if (replica_ == nullptr) return refuse("this worker holds no job's state");
  if (request.job != job_) return refuse(absl::StrCat("job is ", job_, ", not ", request.job));
  if (request.fleet_id != fleet_id_) return refuse("the learner belongs to another fleet");
  if (request.source != self_) {
    return refuse(
        absl::StrCat("incarnation is ", self_.ToString(), ", not ", request.source.ToString()));
  }
  if (request.layout_fingerprint != replica_->layout().fingerprint()) {
    return refuse("the learner's model has another layout");
  }
  auto feed = std::make_unique<ReplicaFeed>(*this, max_buffered_bytes_);
  feed->Begin(replica_->SnapshotAndListen(feed.get()), stable_);
  feeds_.insert(feed.get());
  return feed;
}

void ReplicaStateSource::Closed(ReplicaFeed* feed) {
  MutexLock lock(&mutex_);
  feeds_.erase(feed);
  if (replica_ != nullptr) replica_->StopListening(feed);
}

}  // namespace muster
