#include "collectives/engine/communicator.h"

#include <algorithm>
#include <array>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/random.h"
#include "base/status_macros.h"
#include "collectives/engine/communicator_impl.h"

namespace muster {
namespace {

Call MakeCall(Collective collective, const void* input, void* output, DType dtype) {
  Call call;
  call.request.collective = collective;
  call.dtype = dtype;
  call.input = input;
  call.output = output;
  return call;
}

}  // namespace

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

Communicator::Communicator(std::shared_ptr<CommunicatorImpl> impl,
                           std::shared_ptr<const RankGroup> group)
    : impl_(std::move(impl)), group_(std::move(group)) {}

Communicator::~Communicator() { Close(); }

absl::StatusOr<std::unique_ptr<Communicator>> Communicator::Create(
    std::unique_ptr<Transport> transport, CommunicatorOptions options) {
  if ((options.segment_bytes < 64 && options.segment_bytes != 0) ||
      options.segment_bytes > kMaxMessageBytes) {
    return absl::InvalidArgumentError(absl::StrCat("segment_bytes is ", options.segment_bytes,
                                                   "; expected 0 or 64 to ", kMaxMessageBytes));
  }
  if (options.max_outstanding < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("max_outstanding is ", options.max_outstanding, "; expected at least 1"));
  }
  if (!options.hosts.empty() &&
      options.hosts.size() != static_cast<size_t>(transport->world_size())) {
    return absl::InvalidArgumentError(absl::StrCat("hosts has ", options.hosts.size(),
                                                   " entries; expected none or one for each of ",
                                                   transport->world_size(), " ranks"));
  }
  return absl::WrapUnique(new Communicator(
      std::make_shared<CommunicatorImpl>(std::move(transport), std::move(options)), nullptr));
}

Rank Communicator::rank() const { return group_ == nullptr ? impl_->rank() : group_->rank; }
int Communicator::world_size() const {
  return group_ == nullptr ? impl_->world_size() : static_cast<int>(group_->members.size());
}

std::string Communicator::transport_name() const { return impl_->transport_name(); }

void Communicator::SetModel(std::shared_ptr<const LinkModel> model) {
  impl_->SetModel(std::move(model));
}

std::vector<int32_t> Communicator::Hosts() const {
  const std::vector<int32_t>& all = impl_->options().hosts;
  if (group_ == nullptr || all.empty()) return all;
  std::vector<int32_t> hosts;
  for (const Rank member : group_->members) hosts.push_back(all[member]);
  return hosts;
}

ChoiceRequest Communicator::ChoiceRequestFor(Collective collective, int64_t count,
                                             DType dtype) const {
  ChoiceRequest request = impl_->ChoiceRequestFor(collective, count, dtype, world_size());
  request.hosts = Hosts();
  if (group_ != nullptr) request.window.reset();
  return request;
}

AlgorithmExplanation Communicator::ExplainChoice(Collective collective, int64_t count,
                                                 DType dtype) const {
  return impl_->ExplainChoice(ChoiceRequestFor(collective, count, dtype));
}

Work Communicator::Issue(Call call, const CollectiveOptions& options) {
  call.request.algorithm = options.algorithm;
  call.request.rank = rank();
  call.request.size = world_size();
  call.request.half_precision = call.op.has_value() && IsHalfPrecision(call.dtype);
  if (options.algorithm == Algorithm::kHierarchical) call.request.hosts = Hosts();
  if (options.algorithm == Algorithm::kAuto && impl_->options().any_order) call.hosts = Hosts();
  call.group = group_;
  return Work(impl_, impl_->Issue(std::move(call), options));
}

Work Communicator::AllReduce(const void* input, void* output, int64_t count, DType dtype,
                             ReduceOp op, const CollectiveOptions& options) {
  Call call = MakeCall(Collective::kAllReduce, input, output, dtype);
  call.request.count = count;
  call.op = op;
  return Issue(std::move(call), options);
}

Work Communicator::AllReduceV(const void* input, void* output, absl::Span<const int64_t> counts,
                              DType dtype, ReduceOp op, const CollectiveOptions& options) {
  Call call = MakeCall(Collective::kAllReduce, input, output, dtype);
  call.request.counts.assign(counts.begin(), counts.end());
  call.op = op;
  return Issue(std::move(call), options);
}

Work Communicator::ReduceScatter(const void* input, void* output, absl::Span<const int64_t> counts,
                                 DType dtype, ReduceOp op, const CollectiveOptions& options) {
  Call call = MakeCall(Collective::kReduceScatter, input, output, dtype);
  call.request.counts.assign(counts.begin(), counts.end());
  call.op = op;
  return Issue(std::move(call), options);
}

Work Communicator::AllGather(const void* input, void* output, absl::Span<const int64_t> counts,
                             DType dtype, const CollectiveOptions& options) {
  Call call = MakeCall(Collective::kAllGather, input, output, dtype);
  call.request.counts.assign(counts.begin(), counts.end());
  return Issue(std::move(call), options);
}

Work Communicator::Broadcast(const void* input, void* output, int64_t count, DType dtype, Rank root,
                             const CollectiveOptions& options) {
  Call call = MakeCall(Collective::kBroadcast, input, output, dtype);
  call.request.count = count;
  call.request.root = root;
  return Issue(std::move(call), options);
}

Work Communicator::Barrier(const CollectiveOptions& options) {
  return Issue(MakeCall(Collective::kBarrier, nullptr, nullptr, DType::kU8), options);
}

Work Communicator::Reduce(const void* input, void* output, int64_t count, DType dtype, ReduceOp op,
                          Rank root, const CollectiveOptions& options) {
  Call call = MakeCall(Collective::kReduce, input, output, dtype);
  call.request.count = count;
  call.request.root = root;
  call.op = op;
  return Issue(std::move(call), options);
}

Work Communicator::Gather(const void* input, void* output, absl::Span<const int64_t> counts,
                          DType dtype, Rank root, const CollectiveOptions& options) {
  Call call = MakeCall(Collective::kGather, input, output, dtype);
  call.request.counts.assign(counts.begin(), counts.end());
  call.request.root = root;
  return Issue(std::move(call), options);
}

Work Communicator::Scatter(const void* input, void* output, absl::Span<const int64_t> counts,
                           DType dtype, Rank root, const CollectiveOptions& options) {
  Call call = MakeCall(Collective::kScatter, input, output, dtype);
  call.request.counts.assign(counts.begin(), counts.end());
  call.request.root = root;
  return Issue(std::move(call), options);
}

Work Communicator::AllToAll(const void* input, void* output, int64_t count, DType dtype,
                            const CollectiveOptions& options) {
  Call call = MakeCall(Collective::kAllToAll, input, output, dtype);
  call.request.count = count;
  return Issue(std::move(call), options);
}

Work Communicator::AllToAllV(const void* input, void* output, absl::Span<const int64_t> counts,
                             DType dtype, const CollectiveOptions& options) {
  Call call = MakeCall(Collective::kAllToAll, input, output, dtype);
  call.request.counts.assign(counts.begin(), counts.end());
  return Issue(std::move(call), options);
}

Work Communicator::Push(const void* input, void* output, absl::Span<const int64_t> counts,
                        absl::Span<const int64_t> order_counts, DType dtype, ReduceOp op,
                        const CollectiveOptions& options) {
  Call call = MakeCall(Collective::kPush, input, output, dtype);
  call.request.counts.assign(counts.begin(), counts.end());
  call.request.order_counts.assign(order_counts.begin(), order_counts.end());
  call.request.contributors = static_cast<int>(order_counts.size());
  call.op = op;
  return Issue(std::move(call), options);
}

Work Communicator::Pull(const void* input, void* output, absl::Span<const int64_t> counts,
                        int contributors, DType dtype, const CollectiveOptions& options) {
  Call call = MakeCall(Collective::kPull, input, output, dtype);
  call.request.counts.assign(counts.begin(), counts.end());
  call.request.contributors = contributors;
  return Issue(std::move(call), options);
}

Work Communicator::Send(const void* data, int64_t count, DType dtype, Rank to,
                        const CollectiveOptions& options) {
  Call call = MakeCall(Collective::kSendReceive, data, nullptr, dtype);
  call.request.count = count;
  call.request.root = rank();
  call.request.destination = to;
  return Issue(std::move(call), options);
}

Work Communicator::Receive(void* data, int64_t count, DType dtype, Rank from,
                           const CollectiveOptions& options) {
  Call call = MakeCall(Collective::kSendReceive, nullptr, data, dtype);
  call.request.count = count;
  call.request.root = from;
  call.request.destination = rank();
  return Issue(std::move(call), options);
}

Work Communicator::AllReduceMany(absl::Span<const Tensor> tensors, ReduceOp op,
                                 const CollectiveOptions& options) {
  // Works are done in order, and a failure is one of all: the last stands for the others.
  Work last;
  CollectiveOptions quiet = options;
  quiet.caller_waits = true;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const Tensor& tensor = tensors[i];
    const bool is_last = i + 1 == tensors.size();
    last = AllReduce(tensor.input, tensor.output, tensor.count, tensor.dtype, op,
                     is_last ? options : quiet);
  }
  return last;
}

absl::StatusOr<std::unique_ptr<Communicator>> Communicator::Split(
    int32_t color, int32_t key, const CollectiveOptions& options) {
  const std::array<int32_t, 2> mine = {color, key};
  std::vector<int32_t> all(mine.size() * static_cast<size_t>(world_size()));
  const std::vector<int64_t> counts(static_cast<size_t>(world_size()), mine.size());
  CollectiveOptions waiting = options;
  waiting.algorithm = Algorithm::kAuto;
  waiting.caller_waits = true;
  Work gather = AllGather(mine.data(), all.data(), counts, DType::kI32, waiting);
  MUSTER_RETURN_IF_ERROR(Annotate(gather.Wait(), "split"));
  if (color < 0) return std::unique_ptr<Communicator>();
  std::vector<std::pair<int32_t, Rank>> chosen;  // key, rank here
  for (Rank r = 0; r < world_size(); ++r) {
    if (all[2 * static_cast<size_t>(r)] == color) {
      chosen.emplace_back(all[2 * static_cast<size_t>(r) + 1], r);
    }
  }
  std::sort(chosen.begin(), chosen.end());
  auto group = std::make_shared<RankGroup>();
  for (const auto& [its_key, r] : chosen) {
    if (r == rank()) group->rank = static_cast<Rank>(group->members.size());
    group->members.push_back(group_ == nullptr ? r : group_->members[r]);
  }
  // The same on all members, and on no other group: the call that made it, and the color.
  const Fingerprint& made_by = gather.operation_->fingerprint;
  const uint64_t hash =
      StableHash(absl::StrCat("split ", made_by.scope, " ", made_by.sequence, " ", color));
  group->scope = (hash & ~kPairScope) | 1;
  return absl::WrapUnique(new Communicator(impl_, std::move(group)));
}

void Communicator::Abort(const absl::Status& reason, std::optional<Rank> culprit) {
  MUSTER_CHECK(!reason.ok()) << "an abort needs a reason";
  impl_->Shut(reason, culprit, /*goodbye=*/false);
}

void Communicator::Close() {
  if (group_ != nullptr) return;
  impl_->Shut(absl::CancelledError("the communicator is closed"), std::nullopt, /*goodbye=*/true);
}

std::vector<OperationRecord> Communicator::RecentOperations() const {
  return impl_->RecentOperations();
}

std::vector<AlgorithmUse> Communicator::AlgorithmsInUse() const { return impl_->AlgorithmsInUse(); }

bool Communicator::MustRenewBuffers() const { return impl_->tainted(); }

std::optional<MeshFailure> Communicator::failure() const { return impl_->failure(); }

}  // namespace muster
