#include "client/parameters/parameter_table.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "client/parameters/parameter_table_impl.h"
#include "client/parameters/sparse_transfers.h"
#include "proto/rpc/payload_frame.h"

namespace muster {

// ---- checks and messages -----------------------------------------------------------------------

v1::Contributor ParameterTable::Impl::Self() const {
  v1::Contributor self;
  self.set_index(options.contributor.value_or(0));
  self.set_incarnation(options.incarnation);
  return self;
}

absl::Status ParameterTable::Impl::CheckDense(size_t values) const {
  if (options.spec.has_sparse()) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "table \"%s\" is sparse: use PushRows, PullRows, AssignRows", options.spec.name()));
  }
  if (static_cast<int64_t>(values) != element_count) {
    return absl::InvalidArgumentError(absl::StrFormat("table \"%s\" has %d elements, got %d values",
                                                      options.spec.name(), element_count, values));
  }
  return absl::OkStatus();
}

absl::Status ParameterTable::Impl::CheckSparse(size_t rows, size_t values) const {
  if (!options.spec.has_sparse()) {
    return absl::FailedPreconditionError(
        absl::StrFormat("table \"%s\" is dense: use Push, Pull, Assign", options.spec.name()));
  }
  if (static_cast<int64_t>(values) != static_cast<int64_t>(rows) * width) {
    return absl::InvalidArgumentError(
        absl::StrFormat("%d rows of table \"%s\" are %d values, got %d", rows, options.spec.name(),
                        static_cast<int64_t>(rows) * width, values));
  }
  return absl::OkStatus();
}

absl::Status ParameterTable::Impl::CheckRows(absl::Span<const int64_t> rows) const {
  for (const int64_t row : rows) {
    if (0 <= row && row < element_count) continue;
    return absl::OutOfRangeError(absl::StrFormat("table \"%s\" has rows 0 to %d, got row %d",
                                                 options.spec.name(), element_count - 1, row));
  }
  return absl::OkStatus();
}

absl::Status ParameterTable::Impl::CheckContributes() const {
  if (options.contributor.has_value()) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrFormat(
      "table \"%s\" was opened to read it: open it as a contributor to push", options.spec.name()));
}

std::string ParameterTable::Impl::What(absl::string_view call, Step step) const {
  return absl::StrFormat("%s %d of table \"%s\"", std::string(call), step, options.spec.name());
}

v1::Push ParameterTable::Impl::PushMessage(const PushOf& of, bool assign) const {
  v1::Push push;
  push.set_table(options.spec.name());
  *push.mutable_contributor() = Self();
  push.set_step(of.step);
  push.set_micro_batch(of.micro_batch);
  push.set_samples(of.samples);
  push.set_type(ToProto(options.wire_type));
  push.set_assign(assign);
  return push;
}

v1::Pull ParameterTable::Impl::PullMessage(int64_t min_version) const {
  v1::Pull pull;
  pull.set_table(options.spec.name());
  if (options.contributor.has_value()) *pull.mutable_contributor() = Self();
  pull.set_min_version(min_version);
  pull.set_type(ToProto(options.wire_type));
  return pull;
}

// ---- groups of transfers -----------------------------------------------------------------------

void ParameterTable::Impl::AddPushes(const v1::Push& push, absl::Span<const float> values,
                                     const MemoryLoan& loan, std::vector<v1::Pushed>* answers,
                                     std::vector<Transfer>* transfers) {
  answers->resize(links.size());
  for (size_t i = 0; i < links.size(); ++i) {
    const Range range = links[i]->range();
    v1::TransferRequest head;
    *head.mutable_push() = push;
    head.mutable_push()->set_offset(range.offset);
    head.mutable_push()->set_count(range.count);
    transfers->push_back({.link = links[i].get(),
                          .begin = [this, head, &loan, answer = &(*answers)[i],
                                    part = values.subspan(range.offset, range.count)] {
                            return PushEnds(head, part, options.wire_type, loan, answer);
                          }});
  }
}

void ParameterTable::Impl::AddPulls(int64_t min_version, absl::Span<float> values,
                                    std::vector<PulledVersions>* versions,
                                    std::vector<Transfer>* transfers) {
  versions->resize(links.size());
  for (size_t i = 0; i < links.size(); ++i) {
    const Range range = links[i]->range();
    v1::TransferRequest head;
    *head.mutable_pull() = PullMessage(min_version);
    head.mutable_pull()->set_offset(range.offset);
    head.mutable_pull()->set_count(range.count);
    transfers->push_back({.link = links[i].get(),
                          .begin = [this, head, of = &(*versions)[i],
                                    part = values.subspan(range.offset, range.count)] {
                            return PullEnds(head, part, options.wire_type, of);
                          }});
  }
}

absl::Status ParameterTable::Impl::Run(const std::vector<Transfer>& transfers, MemoryLoan* loan,
                                       absl::Time deadline) {
  constexpr absl::Duration kReturnPatience = absl::Seconds(1);
  const absl::Status status = RunTransfers(transfers, deadline, calls);
  // gRPC may hold on to memory for as long as a peer that is frozen keeps its socket full.
  while (loan != nullptr && !loan->AwaitReturn(kReturnPatience)) {
    for (const std::unique_ptr<ServerLink>& link : links) link->Reconnect();
  }
  return status;
}

absl::Status ParameterTable::Impl::CommitStep(Step step, absl::Time deadline) {
  google::protobuf::RepeatedField<int64_t> total;
  std::vector<ServerLink*> uncommitted;
  bool decided = false;  // some server has it already, with these sums
  for (const std::unique_ptr<ServerLink>& link : links) {
    v1::PrepareStepRequest request;
    request.set_table(options.spec.name());
    request.set_step(step);
    MUSTER_ASSIGN_OR_RETURN(const v1::PrepareStepResponse prepared,
                            link->Call(&Stub::PrepareStep, request, deadline, calls));
    const auto& words = prepared.squared_gradient();
    if (!prepared.committed()) uncommitted.push_back(link.get());
    if (prepared.committed() && !words.empty()) {
      decided = true;
      total = words;
    } else if (!prepared.committed() && !decided) {
      if (total.empty()) total.Resize(words.size(), 0);
      for (int i = 0; i < std::min(total.size(), words.size()); ++i) total[i] += words[i];
    }
  }
  for (ServerLink* link : uncommitted) {
    v1::CommitStepRequest request;
    request.set_table(options.spec.name());
    request.set_step(step);
    *request.mutable_squared_gradient() = total;
    MUSTER_RETURN_IF_ERROR(link->Call(&Stub::CommitStep, request, deadline, calls).status());
  }
  return absl::OkStatus();
}

namespace {

Pushed Merge(absl::Span<const v1::Pushed> answers) {
  Pushed pushed{.duplicate = true};
  for (const v1::Pushed& answer : answers) pushed.duplicate &= answer.duplicate();
  return pushed;
}

Pulled Merge(absl::Span<const PulledVersions> versions) {
  PulledVersions merged;
  for (size_t i = 0; i < versions.size(); ++i) {
    merged.Add(versions[i].oldest, i == 0);
    merged.newest = std::max(merged.newest, versions[i].newest);
  }
  return {.version = merged.oldest, .newest = merged.newest};
}

// A pull that was not answered in time waited, unless a server is stopped, for a step.
absl::Status SayWhoIsMissed(const absl::Status& status) {
  if (!absl::IsDeadlineExceeded(status)) return status;
  return absl::DeadlineExceededError(absl::StrCat(
      status.message(), "; a step is there once all contributors have pushed: are all running?"));
}

}  // namespace

// ---- dense -------------------------------------------------------------------------------------

int64_t ParameterTable::element_count() const { return impl_->element_count; }

absl::StatusOr<Range> ParameterTable::TensorRange(absl::string_view name) const {
  const auto found = impl_->tensors.find(std::string(name));
  if (found != impl_->tensors.end()) return found->second;
  return absl::NotFoundError(absl::StrFormat("table \"%s\" has no tensor \"%s\"",
                                             impl_->options.spec.name(), std::string(name)));
}

Range ParameterTable::RangeOf(int server) const { return impl_->links[server]->range(); }

absl::StatusOr<Step> ParameterTable::NextStep(int32_t micro_batch) const {
  const auto found = impl_->next_steps.find(micro_batch);
  if (found != impl_->next_steps.end()) return found->second;
  return absl::InvalidArgumentError(
      absl::StrFormat("micro-batch %d of table \"%s\" is not this contributor's", micro_batch,
                      impl_->options.spec.name()));
}

absl::StatusOr<Pushed> ParameterTable::Push(const PushOf& of, absl::Span<const float> gradient) {
  MUSTER_RETURN_IF_ERROR(impl_->CheckDense(gradient.size()));
  MUSTER_RETURN_IF_ERROR(impl_->CheckContributes());
  MemoryLoan loan;
  std::vector<v1::Pushed> answers;
  std::vector<Transfer> transfers;
  impl_->AddPushes(impl_->PushMessage(of, /*assign=*/false), gradient, loan, &answers, &transfers);
  MUSTER_RETURN_IF_ERROR(Annotate(impl_->Run(transfers, &loan, impl_->Deadline()),
                                  impl_->What("push of step", of.step)));
  return Merge(answers);
}

absl::StatusOr<Pulled> ParameterTable::Pull(int64_t min_version, absl::Span<float> values) {
  MUSTER_RETURN_IF_ERROR(impl_->CheckDense(values.size()));
  const absl::Time deadline = impl_->Deadline();
  if (impl_->options.spec.commit() == v1::TableSpec::EXTERNAL && min_version > 0) {
    MUSTER_RETURN_IF_ERROR(Annotate(impl_->CommitStep(min_version, deadline),
                                    impl_->What("commit of step", min_version)));
  }
  std::vector<PulledVersions> versions;
  std::vector<Transfer> transfers;
  impl_->AddPulls(min_version, values, &versions, &transfers);
  MUSTER_RETURN_IF_ERROR(Annotate(SayWhoIsMissed(impl_->Run(transfers, nullptr, deadline)),
                                  impl_->What("pull of version", min_version)));
  return Merge(versions);
}

absl::StatusOr<Pulled> ParameterTable::PushPull(const PushOf& of, absl::Span<const float> gradient,
                                                int64_t min_version, absl::Span<float> values) {
  if (impl_->options.spec.commit() == v1::TableSpec::EXTERNAL) {
    MUSTER_RETURN_IF_ERROR(Push(of, gradient).status());
    return Pull(min_version, values);
  }
  MUSTER_RETURN_IF_ERROR(impl_->CheckDense(gradient.size()));
  MUSTER_RETURN_IF_ERROR(impl_->CheckDense(values.size()));
  MUSTER_RETURN_IF_ERROR(impl_->CheckContributes());
  MemoryLoan loan;
  std::vector<v1::Pushed> answers;
  std::vector<PulledVersions> versions;
  std::vector<Transfer> transfers;
  impl_->AddPushes(impl_->PushMessage(of, /*assign=*/false), gradient, loan, &answers, &transfers);
  impl_->AddPulls(min_version, values, &versions, &transfers);
  MUSTER_RETURN_IF_ERROR(Annotate(SayWhoIsMissed(impl_->Run(transfers, &loan, impl_->Deadline())),
                                  impl_->What("push and pull of step", of.step)));
  return Merge(versions);
}

absl::Status ParameterTable::Assign(absl::Span<const float> values) {
  MUSTER_RETURN_IF_ERROR(impl_->CheckDense(values.size()));
  MUSTER_RETURN_IF_ERROR(impl_->CheckContributes());
  MemoryLoan loan;
  std::vector<v1::Pushed> answers;
  std::vector<Transfer> transfers;
  impl_->AddPushes(impl_->PushMessage({}, /*assign=*/true), values, loan, &answers, &transfers);
  return impl_->Run(transfers, &loan, impl_->Deadline());
}

// ---- sparse ------------------------------------------------------------------------------------

absl::Status ParameterTable::Impl::RunPushRows(const v1::Push& push, absl::Span<const int64_t> rows,
                                               absl::Span<const float> values,
                                               std::vector<v1::Pushed>* answers,
                                               absl::Time deadline) {
  MUSTER_RETURN_IF_ERROR(CheckSparse(rows.size(), values.size()));
  MUSTER_RETURN_IF_ERROR(CheckContributes());
  MUSTER_RETURN_IF_ERROR(CheckRows(rows));
  answers->resize(links.size());
  std::vector<std::vector<size_t>> places;
  for (const auto& link : links) places.push_back(PlacesIn(rows, link->range()));
  std::vector<Transfer> transfers;
  for (size_t i = 0; i < links.size(); ++i) {
    const SparseValues from = {.rows = rows, .values = values, .width = width, .places = places[i]};
    transfers.push_back(
        {.link = links[i].get(), .begin = [this, push, from, answer = &(*answers)[i]] {
           return PushRowsEnds(push, from, options.wire_type, answer);
         }});
  }
  return Run(transfers, nullptr, deadline);
}

absl::StatusOr<Pushed> ParameterTable::PushRows(const PushOf& of, absl::Span<const int64_t> rows,
                                                absl::Span<const float> gradient) {
  std::vector<v1::Pushed> answers;
  MUSTER_RETURN_IF_ERROR(Annotate(impl_->RunPushRows(impl_->PushMessage(of, /*assign=*/false), rows,
                                                     gradient, &answers, impl_->Deadline()),
                                  impl_->What("push of step", of.step)));
  return Merge(answers);
}

absl::Status ParameterTable::AssignRows(absl::Span<const int64_t> rows,
                                        absl::Span<const float> values) {
  std::vector<v1::Pushed> answers;
  return impl_->RunPushRows(impl_->PushMessage({}, /*assign=*/true), rows, values, &answers,
                            impl_->Deadline());
}

absl::StatusOr<Pulled> ParameterTable::PullRows(int64_t min_version, absl::Span<const int64_t> rows,
                                                absl::Span<float> values) {
  MUSTER_RETURN_IF_ERROR(impl_->CheckSparse(rows.size(), values.size()));
  MUSTER_RETURN_IF_ERROR(impl_->CheckRows(rows));
  std::vector<std::vector<size_t>> places;
  std::vector<Transfer> transfers;
  std::vector<PulledVersions> versions;
  for (const auto& link : impl_->links) places.push_back(PlacesIn(rows, link->range()));
  // Servers that none of the rows lie on are not asked.
  versions.reserve(impl_->links.size());
  for (size_t i = 0; i < impl_->links.size(); ++i) {
    if (places[i].empty()) continue;
    const SparseTarget to = {
        .rows = rows, .values = values, .width = impl_->width, .places = places[i]};
    transfers.push_back({.link = impl_->links[i].get(),
                         .begin = [impl = impl_.get(), to, of = &versions.emplace_back(),
                                   pull = impl_->PullMessage(min_version)] {
                           return PullRowsEnds(pull, to, impl->options.wire_type, of);
                         }});
  }
  MUSTER_RETURN_IF_ERROR(Annotate(impl_->Run(transfers, nullptr, impl_->Deadline()),
                                  impl_->What("pull of version", min_version)));
  return Merge(versions);
}

// ---- snapshots ---------------------------------------------------------------------------------

absl::Status ParameterTable::Snapshot(
    int server, const std::function<absl::Status(const v1::TableSnapshotPart&)>& take) {
  ServerLink& link = *impl_->links[server];
  TransferCall::Ends ends;
  ends.source = [this, asked = false]() mutable -> std::optional<grpc::ByteBuffer> {
    if (std::exchange(asked, true)) return std::nullopt;
    v1::SnapshotRequest request;
    request.set_table(impl_->options.spec.name());
    return EncodeFrame(request, {});
  };
  ends.sink = [&take](const grpc::ByteBuffer& message) -> absl::Status {
    v1::TableSnapshotPart part;
    Payload payload;
    MUSTER_RETURN_IF_ERROR(DecodeFrame(message, &part, &payload));
    std::string& data = *part.mutable_data();
    data.resize(static_cast<size_t>(payload.size()));
    payload.Read({reinterpret_cast<std::byte*>(data.data()), data.size()});
    return take(part);
  };
  // Once: pieces that were taken cannot be taken back.
  TransferCall call(link.peer(), std::move(ends), [](const absl::Status&) {});
  const CallRegistry::Entry entry(impl_->calls, [&call] { call.Cancel(); });
  call.Start(link.channel(), "/muster.v1.ParameterServer/Snapshot", impl_->Deadline());
  return call.Wait();
}

absl::Status ParameterTable::Restore(
    int server, const std::function<std::optional<v1::TableSnapshotPart>()>& next) {
  ServerLink& link = *impl_->links[server];
  TransferCall::Ends ends;
  ends.source = [&next]() -> std::optional<grpc::ByteBuffer> {
    std::optional<v1::TableSnapshotPart> part = next();
    if (!part.has_value()) return std::nullopt;
    const grpc::Slice slice(part->data());
    part->clear_data();
    return EncodeFrame(*part, {&slice, 1});
  };
  ends.sink = [](const grpc::ByteBuffer&) { return absl::OkStatus(); };
  TransferCall call(link.peer(), std::move(ends), [](const absl::Status&) {});
  const CallRegistry::Entry entry(impl_->calls, [&call] { call.Cancel(); });
  call.Start(link.channel(), "/muster.v1.ParameterServer/Restore", impl_->Deadline());
  return call.Wait();
}

}  // namespace muster
