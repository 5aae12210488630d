#include "worker/rpc/state_learner.h"

#include <grpcpp/client_context.h>

#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/synchronization/mutex.h"
#include "base/status_macros.h"
#include "muster/v1/worker.grpc.pb.h"
#include "proto/convert/control.h"
#include "proto/rpc/address.h"
#include "proto/rpc/channel.h"
#include "proto/rpc/status.h"
#include "worker/rpc/transfer_convert.h"

namespace muster {
namespace {

// Checks the order of what arrives and hands it to the sink. One thread.
class Receiver {
 public:
  Receiver(const StateLearnerOptions& options, StateSink& sink) : options_(options), sink_(sink) {}

  absl::Status Take(const v1::LearnResponse& response) {
    switch (response.message_case()) {
      case v1::LearnResponse::kHeader:
        return TakeHeader(response.header());
      case v1::LearnResponse::kSnapshot:
        return TakeSnapshot(response.snapshot());
      case v1::LearnResponse::kGradient:
        return TakeGradient(response.gradient());
      case v1::LearnResponse::kRecord:
        return TakeRecord(response.record());
      case v1::LearnResponse::kStable:
        return TakeStable(response.stable());
      case v1::LearnResponse::MESSAGE_NOT_SET:
        break;
    }
    return absl::DataLossError("the source sent an empty message, or one not known here");
  }

  bool snapshot_done() const { return snapshot_done_; }

 private:
  int64_t elements() const { return options_.expected_array_elements; }

  absl::Status TakeHeader(const v1::SnapshotHeader& proto) {
    if (has_header_) return absl::DataLossError("the source sent a second header");
    MUSTER_ASSIGN_OR_RETURN(const SnapshotHeader header, FromProto(proto));
    if (header.array_count != options_.expected_array_count ||
        header.array_elements != elements()) {
      return absl::DataLossError(absl::StrFormat(
          "expected %d arrays of %d elements, the source has %d of %d",
          options_.expected_array_count, elements(), header.array_count, header.array_elements));
    }
    has_header_ = true;
    next_step_ = header.tag.step + 1;
    MUSTER_RETURN_IF_ERROR(sink_.OnHeader(header));
    return FinishSnapshotIfComplete();
  }

  absl::Status TakeSnapshot(const v1::SnapshotChunk& chunk) {
    if (!has_header_ || snapshot_done_) {
      return absl::DataLossError("a chunk of the snapshot came before the header or after the end");
    }
    if (chunk.array() != array_ || chunk.offset() != offset_) {
      return absl::DataLossError(
          absl::StrFormat("expected element %d of array %d, got a chunk at %d of array %d", offset_,
                          array_, chunk.offset(), chunk.array()));
    }
    MUSTER_ASSIGN_OR_RETURN(const int64_t count, CheckElements(chunk.data(), chunk.crc32c()));
    if (count > elements() - offset_) return TooMuch(count);
    values_.resize(static_cast<size_t>(count));
    DecodeElements(chunk.data(), absl::MakeSpan(values_));
    MUSTER_RETURN_IF_ERROR(sink_.OnSnapshotChunk(array_, offset_, values_));
    offset_ += count;
    if (offset_ == elements()) {
      offset_ = 0;
      ++array_;
    }
    return FinishSnapshotIfComplete();
  }

  absl::Status FinishSnapshotIfComplete() {
    if (array_ < options_.expected_array_count && elements() > 0) return absl::OkStatus();
    snapshot_done_ = true;
    offset_ = 0;
    values_ = std::vector<float>();
    return sink_.OnSnapshotDone();
  }

  absl::Status TakeGradient(const v1::GradientChunk& chunk) {
    if (!snapshot_done_)
      return absl::DataLossError("a gradient came before the end of the snapshot");
    if (chunk.step() != next_step_ || chunk.offset() != offset_) {
      return absl::DataLossError(
          absl::StrFormat("expected element %d of the gradient of step %d, got a chunk at %d of "
                          "step %d",
                          offset_, next_step_, chunk.offset(), chunk.step()));
    }
    MUSTER_ASSIGN_OR_RETURN(const int64_t count, CheckElements(chunk.data(), chunk.crc32c()));
    if (count > elements() - offset_) return TooMuch(count);
    if (offset_ == 0) gradient_ = std::make_shared<std::vector<float>>(elements());
    DecodeElements(chunk.data(), absl::MakeSpan(*gradient_).subspan(offset_, count));
    offset_ += count;
    return absl::OkStatus();
  }

  absl::Status TakeRecord(const v1::StepRecord& record) {
    if (!snapshot_done_) return absl::DataLossError("a record came before the end of the snapshot");
    MUSTER_ASSIGN_OR_RETURN(StepItem item, FromProto(record));
    if (item.record.step != next_step_ || offset_ != elements()) {
      return absl::DataLossError(absl::StrFormat(
          "expected the record of step %d after %d elements, got the one of step %d after %d",
          next_step_, elements(), item.record.step, offset_));
    }
    if (gradient_ == nullptr) gradient_ = std::make_shared<std::vector<float>>();
    item.gradient = std::move(gradient_);
    gradient_.reset();
    offset_ = 0;
    ++next_step_;
    return sink_.OnStep(std::move(item));
  }

  absl::Status TakeStable(const v1::StateTag& proto) {
    if (!snapshot_done_) {
      return absl::DataLossError("a stable tag came before the end of the snapshot");
    }
    absl::StatusOr<StateTag> stable = FromProto(proto, "stable");
    if (!stable.ok()) return absl::DataLossError(stable.status().message());
    return sink_.OnStable(*stable);
  }

  absl::Status TooMuch(int64_t count) const {
    return absl::DataLossError(absl::StrFormat(
        "a chunk of %d elements at %d goes beyond the %d of an array", count, offset_, elements()));
  }

  const StateLearnerOptions& options_;
  StateSink& sink_;
  bool has_header_ = false;
  bool snapshot_done_ = false;
  int32_t array_ = 0;   // next expected
  int64_t offset_ = 0;  // next expected, in array_ or in gradient_
  Step next_step_ = 0;
  std::vector<float> values_;
  std::shared_ptr<std::vector<float>> gradient_;
};

}  // namespace

class StateLearner::Impl {
 public:
  Impl(StateLearnerOptions options, StateSink& sink) : options_(std::move(options)), sink_(sink) {
    thread_ = std::thread([this] { sink_.OnEnded(Run()); });
    watchdog_ = std::thread([this] { Watch(); });
  }

  ~Impl() {
    Cancel();
    thread_.join();
    {
      absl::MutexLock lock(&mutex_);
      ended_ = true;
    }
    watchdog_.join();
  }

  void Cancel() {
    absl::MutexLock lock(&mutex_);
    cancelled_ = true;
    context_.TryCancel();
  }

 private:
  absl::Status Run() {
    MUSTER_RETURN_IF_ERROR(ParseHostPort(options_.source_address).status());
    const std::string peer = absl::StrCat("source ", options_.source_address);
    const std::unique_ptr<v1::StateTransfer::Stub> stub =
        v1::StateTransfer::NewStub(NewChannel(options_.source_address));
    std::unique_ptr<grpc::ClientReader<v1::LearnResponse>> reader =
        stub->Learn(&context_, ToProto(options_.request));
    Receiver receiver(options_, sink_);
    v1::LearnResponse response;
    absl::Status refused;
    while (refused.ok() && reader->Read(&response)) {
      refused = receiver.Take(response);
      absl::MutexLock lock(&mutex_);
      ++messages_;
      unwatched_ = receiver.snapshot_done();
    }
    if (!refused.ok()) context_.TryCancel();
    const grpc::Status status = reader->Finish();
    absl::MutexLock lock(&mutex_);
    ended_ = true;
    if (cancelled_) return absl::CancelledError(absl::StrCat(peer, ": the transfer was cancelled"));
    if (silent_) {
      return absl::UnavailableError(absl::StrFormat(
          "%s: nothing came for %s", peer, absl::FormatDuration(options_.silence_timeout)));
    }
    if (!refused.ok()) return Annotate(refused, peer);
    if (status.ok()) return absl::UnavailableError(absl::StrCat(peer, ": ended the transfer"));
    return FromGrpcStatus(status, peer);
  }

  // Ends a transfer on which nothing moves before the snapshot is complete. Afterwards keepalive
  // finds a lost source.
  void Watch() {
    absl::MutexLock lock(&mutex_);
    while (!ended_ && !unwatched_) {
      const int64_t seen = messages_;
      const auto moved = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
        return ended_ || unwatched_ || messages_ != seen;
      };
      if (!mutex_.AwaitWithTimeout(absl::Condition(&moved), options_.silence_timeout)) {
        silent_ = true;
        context_.TryCancel();
        return;
      }
    }
  }

  const StateLearnerOptions options_;
  StateSink& sink_;
  grpc::ClientContext context_;
  absl::Mutex mutex_;
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  bool silent_ ABSL_GUARDED_BY(mutex_) = false;
  bool unwatched_ ABSL_GUARDED_BY(mutex_) = false;
  int64_t messages_ ABSL_GUARDED_BY(mutex_) = 0;
  std::thread thread_;
  std::thread watchdog_;
};

StateLearner::StateLearner(StateLearnerOptions options, StateSink& sink)
    : impl_(std::make_unique<Impl>(std::move(options), sink)) {}
StateLearner::~StateLearner() = default;
void StateLearner::Cancel() { impl_->Cancel(); }

}  // namespace muster
