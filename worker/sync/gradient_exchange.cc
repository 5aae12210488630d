#include "worker/sync/gradient_exchange.h"

#include <algorithm>
#include <array>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/check.h"
#include "base/control/placement.h"
#include "base/status_macros.h"
#include "state/bucket_order.h"

namespace muster {

GradientExchange::GradientExchange(const ShardMesh& mesh, const Layout& layout, const View& view,
                                   const GradientExchangeOptions& options)
    : mesh_(mesh),
      communicator_(mesh.all()),
      layout_(layout),
      options_(options),
      map_(MapOf(view, layout).value()),
      strategy_(view.strategy),
      computes_(communicator_.rank() < view.workers()),
      place_(mesh_.within().rank()) {
  const Rank self = communicator_.rank();
  MUSTER_CHECK_EQ(map_.slices.owners(), mesh_.within().world_size());
  if (options.compression.kind != GradientCompression::Kind::kNone) {
    MUSTER_CHECK(options.dtype == DType::kBF16) << Name(options.dtype);
    MUSTER_CHECK(mesh_.across() == nullptr) << "compressed gradients in several groups";
    compressed_.emplace(communicator_, layout, map_, /*shared=*/!strategy_.sharded(),
                        options.compression);
  }
  started_.reserve(layout.buckets().size());
  if (!strategy_.sharded()) {
    const Chunk chunk = ChunkOf(layout.padded_count(), communicator_.world_size(), self);
    norm_ranges_.push_back({chunk.offset, chunk.count});
    return;
  }
  norm_ranges_ = map_.map.RangesOwnedBy(self);
  if (mesh_.across() != nullptr) return;
  // Every shard has as many holders, and the k-th replicas lie one stride from their owners, so
  // each owner gives to one and takes from one.
  const std::vector<std::vector<Rank>> holders = ShardHolders(view);
  for (size_t k = 1; k < holders[0].size(); ++k) {
    Rank to = -1;
    Rank from = -1;
    for (const std::vector<Rank>& shard : holders) {
      if (shard[0] == self) to = shard[k];
      if (shard[k] == self) from = shard[0];
    }
    if (to >= 0) replicas_.emplace_back(to, from);
  }
}

CollectiveOptions GradientExchange::OptionsOf(std::string label) const {
  CollectiveOptions options;
  options.timeout = options_.timeout;
  options.label = std::move(label);
  options.step = step_;
  options.algorithm = options_.algorithm;
  return options;
}

void GradientExchange::Start(Step step, int block, void* gradients, float* contribution) {
  step_ = step;
  const int64_t begin = layout_.RangeOfBlock(block).offset;
  Started started{.block = block, .gradients = static_cast<std::byte*>(gradients)};
  for (const int i : BucketsAsCompleted(layout_, block)) {
    if (layout_.buckets()[i].frozen) continue;  // on every rank: the layout is the same
    started.buckets.push_back(i);
    if (!compressed_.has_value()) {
      started.sums.push_back(Sum(started, i));
      continue;
    }
    CollectiveOptions options = OptionsOf(absl::StrCat("codes of bucket ", i));
    options.algorithm = Algorithm::kAuto;  // what the job names is of sums
    float* const from =
        contribution == nullptr ? nullptr : contribution + layout_.buckets()[i].offset - begin;
    started.codes.push_back(compressed_->Start(i, from, options));
    started.sums.push_back(started.codes.back().work);
  }
  started_.push_back(std::move(started));
  // Of the block before, whose sums had the time of a backward pass: what is to follow them should
  // be on its way while the next block is computed. On every rank at the same place in the order of
  // operations.
  if (mesh_.across() != nullptr && started_.size() > 1 && status_.ok()) {
    status_ = FinishSums(started_[started_.size() - 2]);
  }
}

std::byte* GradientExchange::At(const Started& started, int64_t element) const {
  const int64_t from = element - layout_.RangeOfBlock(started.block).offset;
  return started.gradients + from * static_cast<int64_t>(SizeOf(options_.dtype));
}

Work GradientExchange::Sum(const Started& started, int bucket) {
  const CollectiveOptions options = OptionsOf(absl::StrCat("bucket ", bucket));
  std::byte* const data = At(started, layout_.buckets()[bucket].offset);
  std::byte* const mine = At(started, map_.slices.SliceOf(bucket, place_).offset);
  const absl::Span<const int64_t> order = map_.order.CountsOf(bucket);
  if (strategy_.serves()) {
    return communicator_.Push(computes_ ? data : nullptr, mine, map_.slices.CountsOf(bucket), order,
                              options_.dtype, ReduceOp::kSum, options);
  }
  if (strategy_.sharded()) {
    return mesh_.within().ReduceScatter(data, mine, order, options_.dtype, ReduceOp::kSum, options);
  }
  return communicator_.AllReduceV(data, data, order, options_.dtype, ReduceOp::kSum, options);
}

// What this rank sums of the bucket, and where others need it, starts to hand it to them.
absl::Status GradientExchange::SumCodes(size_t index, Started& started) {
  const int bucket = started.buckets[index];
  std::byte* const data = At(started, layout_.buckets()[bucket].offset);
  const absl::Status summed =
      compressed_->Sum(std::move(started.codes[index]), reinterpret_cast<uint16_t*>(data));
  if (!summed.ok()) culprit_ = compressed_->culprit();
  MUSTER_RETURN_IF_ERROR(summed);
  if (strategy_.sharded() || compressed_->EverybodySums(bucket)) return summed;
  const Range mine = compressed_->SummedHere(bucket);
  started.copies.push_back(
      communicator_.AllGather(At(started, mine.offset), data, map_.slices.CountsOf(bucket),
                              options_.dtype, OptionsOf(absl::StrCat("sums of bucket ", bucket))));
  return summed;
}

// The owner's sum of its slice goes to those who hold copies of the shard, so that they can apply
// the step as well and one death loses nothing (docs/protocol.md, rule 11).
void GradientExchange::HandToReplicas(int bucket, Started& started) {
  CollectiveOptions options = OptionsOf(absl::StrCat("replica of bucket ", bucket));
  options.algorithm = Algorithm::kAuto;
  const Range mine = map_.slices.SliceOf(bucket, place_);
  for (const auto& [to, from] : replicas_) {
    const Range theirs = map_.slices.SliceOf(bucket, from);
    started.copies.push_back(
        communicator_.Send(At(started, mine.offset), mine.count, options_.dtype, to, options));
    started.copies.push_back(communicator_.Receive(At(started, theirs.offset), theirs.count,
                                                   options_.dtype, from, options));
  }
}

// The same elements of a bucket have as many holders in each group.
void GradientExchange::SumAcross(int bucket, Started& started) {
  const Range mine = map_.slices.SliceOf(bucket, place_);
  if (mine.count == 0) return;  // in the other groups as well
  std::byte* const sums = At(started, mine.offset);
  started.copies.push_back(
      mesh_.across()->AllReduce(sums, sums, mine.count, options_.dtype, ReduceOp::kSum,
                                OptionsOf(absl::StrCat("shards of bucket ", bucket))));
}

void GradientExchange::HandOn(int bucket, Started& started) {
  if (mesh_.across() != nullptr) return SumAcross(bucket, started);
  HandToReplicas(bucket, started);
}

absl::Status GradientExchange::FinishSums(Started& started) {
  MUSTER_RETURN_IF_ERROR(status_);
  if (started.summed) return absl::OkStatus();
  started.summed = true;
  for (size_t i = 0; i < started.sums.size(); ++i) {
    MUSTER_RETURN_IF_ERROR(WaitFor(started.sums[i]));
    if (compressed_.has_value()) MUSTER_RETURN_IF_ERROR(SumCodes(i, started));
    HandOn(started.buckets[i], started);
  }
  return absl::OkStatus();
}

absl::Status GradientExchange::FinishCopies(Started& started) {
  for (Work& work : started.copies) MUSTER_RETURN_IF_ERROR(WaitFor(work));
  return absl::OkStatus();
}

absl::Status GradientExchange::FinishBlock(int block) {
  const auto started = std::find_if(started_.begin(), started_.end(),
                                    [block](const Started& s) { return s.block == block; });
  MUSTER_CHECK(started != started_.end()) << "block " << block << " was not started";
  MUSTER_RETURN_IF_ERROR(FinishSums(*started));
  MUSTER_RETURN_IF_ERROR(FinishCopies(*started));
  started_.erase(started);
  return absl::OkStatus();
}

absl::Status GradientExchange::Finish() {
  absl::Status status;
  // All sums first: copies of one block overlap the sums of the next.
  for (Started& started : started_) {
    if (status.ok()) status = FinishSums(started);
  }
  for (Started& started : started_) {
    if (status.ok()) status = FinishCopies(started);
  }
  started_.clear();
  return status;
}

absl::Status GradientExchange::SumWords(Step step, const char* label, absl::Span<int64_t> words) {
  CollectiveOptions options;
  options.timeout = options_.timeout;
  options.label = label;
  options.step = step;
  options.caller_waits = true;
  Work work =
      communicator_.AllReduce(words.data(), words.data(), static_cast<int64_t>(words.size()),
                              DType::kI64, ReduceOp::kSum, options);
  return WaitFor(work);
}

absl::StatusOr<SquaredSum> GradientExchange::SumSquares(Step step, const SquaredSum& mine) {
  SquaredSum::Words words = mine.ToWords();
  MUSTER_RETURN_IF_ERROR(SumWords(step, "gradient norm", absl::MakeSpan(words)));
  return SquaredSum::FromWords(words);
}

absl::StatusOr<CommitRecord> GradientExchange::Commit(Step step, Epoch epoch,
                                                      const CommitContribution& contribution) {
  std::vector<int64_t> words = EncodeCommit(contribution);
  MUSTER_RETURN_IF_ERROR(SumWords(step, "commit", absl::MakeSpan(words)));
  return DecodeCommit(words, step, epoch, contribution.tensor_sums.count());
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
