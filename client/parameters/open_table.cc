// How a table is opened, kept and left.
#include <algorithm>
#include <random>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "client/parameters/parameter_table_impl.h"
#include "client/parameters/shard_cut.h"
#include "proto/rpc/address.h"

namespace muster {
namespace {

absl::Status Check(const ParameterTableOptions& options) {
  if (options.servers.empty()) return absl::InvalidArgumentError("servers: name at least one");
  std::set<std::string> seen;
  for (const std::string& address : options.servers) {
    MUSTER_RETURN_IF_ERROR(Annotate(ParseAddressToDial(address).status(), "servers"));
    if (!seen.insert(address).second) {
      return absl::InvalidArgumentError(absl::StrCat("servers: ", address, " is there twice"));
    }
  }
  if (options.wire_type != DType::kF32 && !IsHalfPrecision(options.wire_type)) {
    return absl::InvalidArgumentError(absl::StrFormat("wire_type: must be f32, f16 or bf16, got %s",
                                                      std::string(Name(options.wire_type))));
  }
  const v1::TableSpec& spec = options.spec;
  const bool part = spec.has_dense() ? spec.dense().offset() != 0 || spec.dense().count() != 0
                                     : spec.sparse().offset() != 0 || spec.sparse().count() != 0;
  if (part) {
    return absl::InvalidArgumentError(
        "spec: leave offset and count to the client, which cuts the table over its servers");
  }
  const bool synchronous = spec.consistency() == v1::TableSpec::CONSISTENCY_UNSPECIFIED ||
                           spec.consistency() == v1::TableSpec::SYNCHRONOUS;
  const bool whole = spec.clip_norm() != 0 || spec.nonfinite() == v1::TableSpec::SKIP;
  if (options.servers.size() > 1 && synchronous && whole &&
      spec.commit() != v1::TableSpec::EXTERNAL) {
    return absl::InvalidArgumentError(
        "spec.commit: must be EXTERNAL where a synchronous table over several servers clips or "
        "skips, so that all do so alike");
  }
  return absl::OkStatus();
}

uint64_t DrawIncarnation() {
  std::random_device random;
  const uint64_t drawn = (uint64_t{random()} << 32) | random();
  return drawn == 0 ? 1 : drawn;
}

}  // namespace

absl::StatusOr<std::unique_ptr<ParameterTable>> ParameterTable::Open(
    const ParameterTableOptions& options) {
  MUSTER_RETURN_IF_ERROR(Check(options));
  auto impl = std::make_unique<Impl>();
  impl->options = options;
  if (options.incarnation == 0) impl->options.incarnation = DrawIncarnation();
  const int servers = static_cast<int>(options.servers.size());
  MUSTER_ASSIGN_OR_RETURN(const ShardMap map, CutTable(options.spec, servers));
  impl->element_count = map.element_count();
  impl->width = options.spec.sparse().width();
  for (int server = 0; server < servers; ++server) {
    impl->links.push_back(
        std::make_unique<ServerLink>(options.servers[server], map.RangesOwnedBy(server).front()));
  }
  const absl::Time deadline = impl->Deadline();
  for (const std::unique_ptr<ServerLink>& link : impl->links) {
    v1::CreateTableRequest request;
    *request.mutable_spec() = SpecOfPart(options.spec, link->range());
    MUSTER_ASSIGN_OR_RETURN(const v1::CreateTableResponse made,
                            link->Call(&Impl::Stub::CreateTable, request, deadline, impl->calls));
    const Range range = {made.table().offset(), made.table().count()};
    const bool same_space =
        options.spec.has_sparse() || made.table().element_count() == impl->element_count;
    if (range != link->range() || !same_space) {
      return absl::FailedPreconditionError(absl::StrFormat(
          "%s: has [%d, %d) of a space of %d, expected [%d, %d) of %d; are both of one version?",
          link->peer(), range.offset, range.end(), made.table().element_count(),
          link->range().offset, link->range().end(), impl->element_count));
    }
    for (const v1::TensorPlace& place : made.table().tensors()) {
      impl->tensors[place.name()] = {place.offset(), place.count()};
    }
  }
  std::unique_ptr<ParameterTable> table(new ParameterTable(std::move(impl)));
  if (!options.contributor.has_value()) return table;
  Impl& of = *table->impl_;
  {
    absl::MutexLock lock(&of.mutex);
    of.attached = true;  // so that a half-way attempt is undone
  }
  for (const std::unique_ptr<ServerLink>& link : of.links) {
    v1::AttachRequest request;
    request.set_table(options.spec.name());
    *request.mutable_contributor() = of.Self();
    request.set_lease_ms(std::max<int64_t>(1, absl::ToInt64Milliseconds(options.lease)));
    MUSTER_ASSIGN_OR_RETURN(const v1::AttachResponse attached,
                            link->Call(&Impl::Stub::Attach, request, deadline, of.calls));
    for (const v1::AttachResponse::Next& next : attached.next()) {
      // Servers may differ by what a contributor before this one had pushed to some of them only.
      const auto [place, fresh] = of.next_steps.emplace(next.micro_batch(), next.step());
      if (!fresh) place->second = std::min<Step>(place->second, next.step());
    }
  }
  of.keeper = std::thread([&of] { of.KeepAlive(); });
  return table;
}

void ParameterTable::Impl::KeepAlive() {
  v1::KeepAliveRequest request;
  request.set_table(options.spec.name());
  *request.mutable_contributor() = Self();
  while (true) {
    {
      absl::MutexLock lock(&mutex);
      if (mutex.AwaitWithTimeout(absl::Condition(&stopping), options.lease / 3)) return;
    }
    // What fails here fails the next push or pull as well, which says so.
    for (const std::unique_ptr<ServerLink>& link : links) {
      (void)link->Call(&Stub::KeepAlive, request, absl::Now() + options.lease / 3, calls);
    }
  }
}

absl::Status ParameterTable::Impl::Detach() {
  {
    absl::MutexLock lock(&mutex);
    stopping = true;
    if (!std::exchange(attached, false)) return absl::OkStatus();
  }
  v1::DetachRequest request;
  request.set_table(options.spec.name());
  *request.mutable_contributor() = Self();
  absl::Status result;
  for (const std::unique_ptr<ServerLink>& link : links) {
    const absl::Status left =
        link->Call(&Stub::Detach, request, std::min(Deadline(), absl::Now() + absl::Seconds(2)),
                   calls)
            .status();
    if (result.ok()) result = left;
  }
  return result;
}

ParameterTable::ParameterTable(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

ParameterTable::~ParameterTable() {
  (void)impl_->Detach();
  if (impl_->keeper.joinable()) impl_->keeper.join();
}

absl::Status ParameterTable::Detach() { return impl_->Detach(); }
void ParameterTable::Shutdown() { impl_->calls.Shutdown(); }

}  // namespace muster
