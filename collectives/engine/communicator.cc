#include "collectives/engine/communicator.h"

#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "collectives/engine/communicator_impl.h"

namespace muster {

Work::Work(std::shared_ptr<CommunicatorImpl> owner, std::shared_ptr<Operation> operation)
    : owner_(std::move(owner)), operation_(std::move(operation)) {}

absl::Status Work::Wait() {
  return operation_ == nullptr ? absl::OkStatus() : owner_->Wait(*operation_);
}

bool Work::Done() const { return operation_ == nullptr || operation_->done; }

absl::Status Work::status() const {
  MUSTER_CHECK(Done()) << "the operation is not done";
  return operation_ == nullptr ? absl::OkStatus() : operation_->status;
}

std::optional<Rank> Work::culprit() const {
  MUSTER_CHECK(Done()) << "the operation is not done";
  return operation_ == nullptr ? std::nullopt : operation_->culprit;
}

Communicator::Communicator(std::shared_ptr<CommunicatorImpl> impl) : impl_(std::move(impl)) {}

Communicator::~Communicator() { Close(); }

absl::StatusOr<std::unique_ptr<Communicator>> Communicator::Create(
    std::unique_ptr<Transport> transport, CommunicatorOptions options) {
  if (options.segment_bytes < 64 || options.segment_bytes > kMaxMessageBytes) {
    return absl::InvalidArgumentError(absl::StrCat("segment_bytes is ", options.segment_bytes,
                                                   "; expected 64 to ", kMaxMessageBytes));
  }
  if (options.max_outstanding < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("max_outstanding is ", options.max_outstanding, "; expected at least 1"));
  }
  return absl::WrapUnique(new Communicator(
      std::make_shared<CommunicatorImpl>(std::move(transport), std::move(options))));
}

Rank Communicator::rank() const { return impl_->rank(); }
int Communicator::world_size() const { return impl_->world_size(); }

Work Communicator::Issue(Call call, const CollectiveOptions& options) {
  call.request.algorithm = options.algorithm;
  call.request.rank = rank();
  call.request.size = world_size();
  call.request.half_precision = call.op.has_value() && IsHalfPrecision(call.dtype);
  return Work(impl_, impl_->Issue(std::move(call), options));
}

Work Communicator::AllReduce(const void* input, void* output, int64_t count, DType dtype,
                             ReduceOp op, const CollectiveOptions& options) {
  Call call;
  call.request.collective = Collective::kAllReduce;
  call.request.count = count;
  call.dtype = dtype;
  call.op = op;
  call.input = input;
  call.output = output;
  return Issue(std::move(call), options);
}

Work Communicator::ReduceScatter(const void* input, void* output, absl::Span<const int64_t> counts,
                                 DType dtype, ReduceOp op, const CollectiveOptions& options) {
  Call call;
  call.request.collective = Collective::kReduceScatter;
  call.request.counts.assign(counts.begin(), counts.end());
  call.dtype = dtype;
  call.op = op;
  call.input = input;
  call.output = output;
  return Issue(std::move(call), options);
}

Work Communicator::AllGather(const void* input, void* output, absl::Span<const int64_t> counts,
                             DType dtype, const CollectiveOptions& options) {
  Call call;
  call.request.collective = Collective::kAllGather;
  call.request.counts.assign(counts.begin(), counts.end());
  call.dtype = dtype;
  call.input = input;
  call.output = output;
  return Issue(std::move(call), options);
}

Work Communicator::Broadcast(const void* input, void* output, int64_t count, DType dtype, Rank root,
                             const CollectiveOptions& options) {
  Call call;
  call.request.collective = Collective::kBroadcast;
  call.request.count = count;
  call.request.root = root;
  call.dtype = dtype;
  call.input = input;
  call.output = output;
  return Issue(std::move(call), options);
}

Work Communicator::Barrier(const CollectiveOptions& options) {
  Call call;
  call.request.collective = Collective::kBarrier;
  return Issue(std::move(call), options);
}

void Communicator::Abort(const absl::Status& reason, std::optional<Rank> culprit) {
  MUSTER_CHECK(!reason.ok()) << "an abort needs a reason";
  impl_->Shut(reason, culprit, /*goodbye=*/false);
}

void Communicator::Close() {
  impl_->Shut(absl::CancelledError("the communicator is closed"), std::nullopt, /*goodbye=*/true);
}

std::optional<MeshFailure> Communicator::failure() const { return impl_->failure(); }

}  // namespace muster
