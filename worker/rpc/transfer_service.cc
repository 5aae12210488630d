#include "worker/rpc/transfer_service.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "base/crc32c.h"
#include "base/status_macros.h"
#include "proto/convert/control.h"
#include "proto/rpc/status.h"
#include "worker/rpc/transfer_convert.h"

namespace muster {
namespace {

// How often a call that waits for the next step looks whether its learner has gone.
constexpr absl::Duration kLook = absl::Milliseconds(100);

absl::Status LearnerGone() { return absl::CancelledError("the learner has gone"); }

class LearnerCall {
 public:
  LearnerCall(grpc::ServerContext& context, const std::atomic<bool>& stopping,
              grpc::ServerWriter<v1::LearnResponse>& writer, int chunk_elements)
      : context_(context), stopping_(stopping), writer_(writer), chunk_elements_(chunk_elements) {}

  // Never OK: a feed has no end of its own.
  absl::Status Run(StateFeed& feed) {
    MUSTER_RETURN_IF_ERROR(SendSnapshot(feed));
    while (true) {
      if (context_.IsCancelled()) return LearnerGone();
      if (stopping_.load(std::memory_order_relaxed)) {
        return absl::UnavailableError("the source is shutting down");
      }
      MUSTER_ASSIGN_OR_RETURN(std::optional<FeedItem> item, feed.Next(absl::Now() + kLook));
      if (item) MUSTER_RETURN_IF_ERROR(SendItem(*item));
    }
  }

 private:
  absl::Status Write() {
    if (stopping_.load(std::memory_order_relaxed)) {
      return absl::UnavailableError("the source is shutting down");
    }
    return writer_.Write(response_) ? absl::OkStatus() : LearnerGone();
  }

  absl::Status SendSnapshot(StateFeed& feed) {
    const SnapshotHeader& header = feed.header();
    *response_.mutable_header() = ToProto(header);
    MUSTER_RETURN_IF_ERROR(Write());
    for (int array = 0; array < header.array_count; ++array) {
      const absl::Span<const float> elements = feed.Array(array);
      for (size_t offset = 0; offset < elements.size(); offset += chunk_elements_) {
        v1::SnapshotChunk& chunk = *response_.mutable_snapshot();
        chunk.set_array(array);
        Fill(elements, offset, chunk);
        MUSTER_RETURN_IF_ERROR(Write());
      }
    }
    return absl::OkStatus();
  }

  absl::Status SendItem(const FeedItem& item) {
    if (const auto* stable = std::get_if<StableItem>(&item)) {
      *response_.mutable_stable() = ToProto(stable->stable);
      return Write();
    }
    const StepItem& step = std::get<StepItem>(item);
    for (size_t offset = 0; offset < step.gradient->size(); offset += chunk_elements_) {
      v1::GradientChunk& chunk = *response_.mutable_gradient();
      chunk.set_step(step.record.step);
      Fill(*step.gradient, offset, chunk);
      MUSTER_RETURN_IF_ERROR(Write());
    }
    *response_.mutable_record() = ToProto(step);
    return Write();
  }

  template <typename Chunk>
  void Fill(absl::Span<const float> elements, size_t offset, Chunk& chunk) {
    const absl::Span<const float> part = elements.subspan(offset, chunk_elements_);
    chunk.set_offset(static_cast<int64_t>(offset));
    chunk.set_data(EncodeElements(part));
    chunk.set_crc32c(Crc32c(chunk.data()));
  }

  grpc::ServerContext& context_;
  const std::atomic<bool>& stopping_;
  grpc::ServerWriter<v1::LearnResponse>& writer_;
  const size_t chunk_elements_;
  v1::LearnResponse response_;
};

// Counts a learner for as long as it lives.
class Place {
 public:
  Place(std::atomic<int>& taken, int limit) : taken_(taken), got_(taken.fetch_add(1) < limit) {}
  ~Place() { taken_.fetch_sub(1); }
  bool got() const { return got_; }

 private:
  std::atomic<int>& taken_;
  const bool got_;
};

}  // namespace

TransferService::TransferService(StateSource& source, int max_learners, int chunk_elements)
    : source_(source), max_learners_(max_learners), chunk_elements_(chunk_elements) {}

grpc::Status TransferService::Learn(grpc::ServerContext* context, const v1::LearnRequest* request,
                                    grpc::ServerWriter<v1::LearnResponse>* writer) {
  const Place place(learners_, max_learners_);
  if (!place.got()) {
    return ToGrpcStatus(absl::ResourceExhaustedError(absl::StrFormat(
        "this worker serves %d learners already, which is its limit", max_learners_)));
  }
  const absl::StatusOr<LearnRequest> learn = FromProto(*request);
  if (!learn.ok()) return ToGrpcStatus(learn.status());
  absl::StatusOr<std::unique_ptr<StateFeed>> feed = source_.Open(*learn);
  if (!feed.ok()) return ToGrpcStatus(feed.status());
  return ToGrpcStatus(LearnerCall(*context, stopping_, *writer, chunk_elements_).Run(**feed));
}

}  // namespace muster
