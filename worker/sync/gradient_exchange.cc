#include "worker/sync/gradient_exchange.h"

#include <array>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/status_macros.h"
#include "state/bucket_order.h"

namespace muster {

GradientExchange::GradientExchange(Communicator& communicator, const Layout& layout,
                                   const GradientExchangeOptions& options)
    : communicator_(communicator),
      layout_(layout),
      options_(options),
      slices_(BucketSlices::Even(layout, communicator.world_size()).value()) {
  works_.reserve(layout.buckets().size());
}

void GradientExchange::Start(Step step, int block, absl::Span<float> gradients) {
  for (const int i : BucketsAsCompleted(layout_, block)) {
    const Bucket& bucket = layout_.buckets()[i];
    if (bucket.frozen) continue;  // on every rank: the layout is the same
    CollectiveOptions options;
    options.timeout = options_.timeout;
    options.label = absl::StrCat("bucket ", i);
    options.step = step;
    options.algorithm = options_.algorithm;
    float* const data = gradients.data() + bucket.offset;
    works_.push_back(communicator_.AllReduceV(data, data, slices_.CountsOf(i), DType::kF32,
                                              ReduceOp::kSum, options));
  }
}

absl::Status GradientExchange::Finish() {
  absl::Status status;
  for (Work& work : works_) {
    status = WaitFor(work);
    if (!status.ok()) break;
  }
  works_.clear();
  return status;
}

absl::StatusOr<CommitRecord> GradientExchange::Commit(Step step, Epoch epoch,
                                                      const CommitContribution& contribution) {
  CommitWords words = EncodeCommit(contribution);
  CollectiveOptions options;
  options.timeout = options_.timeout;
  options.label = "commit";
  options.step = step;
  options.caller_waits = true;
  Work work = communicator_.AllReduce(words.data(), words.data(), kCommitWords, DType::kI64,
                                      ReduceOp::kSum, options);
  MUSTER_RETURN_IF_ERROR(WaitFor(work));
  return DecodeCommit(words, step, epoch);
}

absl::StatusOr<GradientExchange::Evaluation> GradientExchange::SumEvaluation(
    Step step, const Evaluation& mine) {
  std::array<double, 3> sums = {mine.loss_sum, static_cast<double>(mine.correct),
                                static_cast<double>(mine.samples)};
  CollectiveOptions options;
  options.timeout = options_.timeout;
  options.label = "evaluation";
  options.step = step;
  options.caller_waits = true;
  Work work = communicator_.AllReduce(sums.data(), sums.data(), sums.size(), DType::kF64,
                                      ReduceOp::kSum, options);
  MUSTER_RETURN_IF_ERROR(WaitFor(work));
  return Evaluation{sums[0], static_cast<int64_t>(sums[1]), static_cast<int64_t>(sums[2])};
}

Range GradientExchange::NormRange() const {
  const Chunk chunk =
      ChunkOf(layout_.padded_count(), communicator_.world_size(), communicator_.rank());
  return {chunk.offset, chunk.count};
}

absl::Duration GradientExchange::TakeWaited() {
  const absl::Duration waited = waited_;
  waited_ = absl::ZeroDuration();
  return waited;
}

absl::Status GradientExchange::WaitFor(Work& work) {
  const absl::Time start = absl::Now();
  absl::Status status = work.Wait();
  waited_ += absl::Now() - start;
  if (!status.ok()) culprit_ = work.culprit();
  return status;
}

}  // namespace muster
