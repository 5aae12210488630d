#include "server/parameter_server/rpc/table_service.h"

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "base/status_macros.h"
#include "proto/convert/field.h"
#include "proto/rpc/status.h"
#include "server/parameter_server/rpc/snapshot_reactors.h"
#include "server/parameter_server/rpc/table_convert.h"
#include "server/parameter_server/rpc/transfer_reactor.h"

namespace muster {
namespace {

constexpr int64_t kDefaultLeaseMs = 10'000;
constexpr int64_t kMaxLeaseMs = 3'600'000;

// A unary call whose answer may take a while; deletes itself.
class SlowReactor final : public grpc::ServerUnaryReactor,
                          public std::enable_shared_from_this<SlowReactor> {
 public:
  // `self` is gRPC's until OnDone; the call on the table has another.
  static std::shared_ptr<SlowReactor> New() {
    auto reactor = std::make_shared<SlowReactor>();
    reactor->self_ = reactor;
    return reactor;
  }

  // `ticket` is of a call on `host` that waits; it is woken when the client goes.
  void WaitsFor(std::shared_ptr<TableHost> host, Ticket ticket) {
    absl::MutexLock lock(&mutex_);
    host_ = std::move(host);
    ticket_ = ticket;
  }
  bool cancelled() {
    absl::MutexLock lock(&mutex_);
    return cancelled_;
  }

 private:
  void OnCancel() override {
    absl::MutexLock lock(&mutex_);
    cancelled_ = true;
    if (host_ != nullptr) host_->Wake(ticket_);
  }
  void OnDone() override {
    const std::shared_ptr<SlowReactor> self = std::move(self_);
    absl::MutexLock lock(&mutex_);
    host_.reset();
  }

  std::shared_ptr<SlowReactor> self_;
  absl::Mutex mutex_;
  std::shared_ptr<TableHost> host_ ABSL_GUARDED_BY(mutex_);
  Ticket ticket_ ABSL_GUARDED_BY(mutex_) = 0;
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
};

grpc::ServerUnaryReactor* End(grpc::CallbackServerContext* context, const absl::Status& status) {
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  reactor->Finish(ToGrpcStatus(status));
  return reactor;
}

absl::Status CheckExternal(const TableHost::Access& access) {
  if (access.table.dense != nullptr && access.table.dense->spec().commit == CommitMode::kExternal) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(
      absl::StrFormat("table \"%s\" commits its steps itself: its commit is not EXTERNAL",
                      access.table.get().spec().name));
}

void FillInfo(const AnyTable& table, v1::TableInfo* info) {
  *info = InfoOf(table);
  info->set_version(table.get().version());
  info->set_attached(table.get().contributors().attached_count());
  info->set_bytes(table.get().Metrics().table_bytes);
}

}  // namespace

grpc::ServerUnaryReactor* TableService::OnTable(
    Context* context, const std::string& name,
    std::function<absl::Status(const TableHost::Access& access)> work) {
  const absl::StatusOr<std::shared_ptr<TableHost>> host = parts_.tables.Find(name);
  if (!host.ok()) return End(context, host.status());
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  (*host)->Run([reactor, work = std::move(work)](
                   const TableHost::Access& access) -> std::optional<TableHost::Again> {
    reactor->Finish(ToGrpcStatus(access.closed.ok() ? work(access) : access.closed));
    return std::nullopt;
  });
  return reactor;
}

grpc::ServerUnaryReactor* TableService::CreateTable(Context* context,
                                                    const v1::CreateTableRequest* request,
                                                    v1::CreateTableResponse* response) {
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  // Filling a large table takes a while.
  parts_.pool->Add([this, request, response, reactor] {
    absl::StatusOr<TableRegistry::Opened> opened = parts_.tables.Open(request->spec());
    if (!opened.ok()) {
      reactor->Finish(ToGrpcStatus(opened.status()));
      return;
    }
    response->set_created(opened->created);
    opened->host->Run(
        [reactor, response](const TableHost::Access& access) -> std::optional<TableHost::Again> {
          if (access.closed.ok()) FillInfo(access.table, response->mutable_table());
          reactor->Finish(ToGrpcStatus(access.closed));
          return std::nullopt;
        });
  });
  return reactor;
}

grpc::ServerUnaryReactor* TableService::DropTable(Context* context,
                                                  const v1::DropTableRequest* request,
                                                  v1::DropTableResponse* response) {
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  parts_.pool->Add([this, request, reactor] {
    reactor->Finish(ToGrpcStatus(parts_.tables.Drop(request->name())));
  });
  return reactor;
}

grpc::ServerUnaryReactor* TableService::ListTables(Context* context,
                                                   const v1::ListTablesRequest* request,
                                                   v1::ListTablesResponse* response) {
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  const std::vector<std::shared_ptr<TableHost>> hosts = parts_.tables.All();
  // One after the other, each on its own table; the last one answers.
  struct Walk {
    std::vector<std::shared_ptr<TableHost>> hosts;
    size_t next = 0;
  };
  auto walk = std::make_shared<Walk>(Walk{.hosts = hosts});
  auto step = std::make_shared<std::function<void()>>();
  *step = [walk, step, reactor, response] {
    if (walk->next == walk->hosts.size()) {
      reactor->Finish(grpc::Status::OK);
      *step = nullptr;  // it holds itself
      return;
    }
    TableHost& host = *walk->hosts[walk->next++];
    host.Run([step, response](const TableHost::Access& access) -> std::optional<TableHost::Again> {
      if (access.closed.ok()) FillInfo(access.table, response->add_tables());
      const auto go_on = *step;
      go_on();
      return std::nullopt;
    });
  };
  const auto begin = *step;
  begin();
  return reactor;
}

grpc::ServerUnaryReactor* TableService::Attach(Context* context, const v1::AttachRequest* request,
                                               v1::AttachResponse* response) {
  return OnTable(context, request->table(), [request, response](const TableHost::Access& access) {
    return [&]() -> absl::Status {
      MUSTER_ASSIGN_OR_RETURN(const ContributorId id,
                              ContributorFromProto(request->contributor(), "contributor"));
      const int64_t lease_ms = request->lease_ms() == 0 ? kDefaultLeaseMs : request->lease_ms();
      MUSTER_RETURN_IF_ERROR(CheckRange("lease_ms", lease_ms, 1, kMaxLeaseMs));
      MUSTER_ASSIGN_OR_RETURN(
          const AttachResult result,
          access.table.get().Attach(id, access.now, absl::Milliseconds(lease_ms)));
      response->set_version(result.version);
      for (const AttachResult::Next& next : result.next) {
        v1::AttachResponse::Next& added = *response->add_next();
        added.set_micro_batch(next.micro_batch);
        added.set_step(next.step);
      }
      return absl::OkStatus();
    }();
  });
}

grpc::ServerUnaryReactor* TableService::KeepAlive(Context* context,
                                                  const v1::KeepAliveRequest* request,
                                                  v1::KeepAliveResponse* response) {
  return OnTable(context, request->table(), [request](const TableHost::Access& access) {
    const absl::StatusOr<ContributorId> id =
        ContributorFromProto(request->contributor(), "contributor");
    return id.ok() ? access.table.get().Heartbeat(*id, access.now) : id.status();
  });
}

grpc::ServerUnaryReactor* TableService::Detach(Context* context, const v1::DetachRequest* request,
                                               v1::DetachResponse* response) {
  return OnTable(context, request->table(), [request](const TableHost::Access& access) {
    const absl::StatusOr<ContributorId> id =
        ContributorFromProto(request->contributor(), "contributor");
    if (id.ok()) access.table.get().Detach(*id);
    return id.status();
  });
}

grpc::ServerUnaryReactor* TableService::RemoveContributor(
    Context* context, const v1::RemoveContributorRequest* request,
    v1::RemoveContributorResponse* response) {
  return OnTable(context, request->table(), [request](const TableHost::Access& access) {
    return access.table.get().Remove(request->index());
  });
}

grpc::ServerUnaryReactor* TableService::PrepareStep(Context* context,
                                                    const v1::PrepareStepRequest* request,
                                                    v1::PrepareStepResponse* response) {
  const absl::StatusOr<std::shared_ptr<TableHost>> host = parts_.tables.Find(request->table());
  if (!host.ok()) return End(context, host.status());
  const std::shared_ptr<SlowReactor> reactor = SlowReactor::New();
  const Ticket ticket = (*host)->NewTicket();
  reactor->WaitsFor(*host, ticket);
  (*host)->Run(ticket,
               [reactor, request,
                response](const TableHost::Access& access) -> std::optional<TableHost::Again> {
                 absl::Status status = access.closed.ok() ? CheckExternal(access) : access.closed;
                 if (status.ok() && reactor->cancelled())
                   status = absl::CancelledError("the client has gone");
                 if (status.ok()) {
                   const std::optional<PreparedStep>& prepared = access.table.dense->prepared();
                   const bool committed = access.table.dense->version() >= request->step();
                   const bool ready = prepared.has_value() && prepared->step == request->step();
                   if (!committed && !ready) return TableHost::Again{};
                   response->set_committed(committed);
                   if (!committed) {
                     response->set_samples(prepared->samples);
                     ToProto(prepared->squared_gradient, response->mutable_squared_gradient());
                   } else if (access.last_commit.step == request->step()) {
                     ToProto(access.last_commit.squared_gradient,
                             response->mutable_squared_gradient());
                   }
                 }
                 reactor->Finish(ToGrpcStatus(status));
                 return std::nullopt;
               });
  return reactor.get();
}

grpc::ServerUnaryReactor* TableService::CommitStep(Context* context,
                                                   const v1::CommitStepRequest* request,
                                                   v1::CommitStepResponse* response) {
  return OnTable(context, request->table(), [request](const TableHost::Access& access) {
    return [&]() -> absl::Status {
      MUSTER_RETURN_IF_ERROR(CheckExternal(access));
      MUSTER_ASSIGN_OR_RETURN(const SquaredSum sum,
                              SquaredSumFromProto(request->squared_gradient()));
      MUSTER_RETURN_IF_ERROR(access.table.dense->Commit(request->step(), sum));
      if (request->step() > access.last_commit.step) access.last_commit = {request->step(), sum};
      return absl::OkStatus();
    }();
  });
}

grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* TableService::Transfer(
    Context* context) {
  return TransferReactor::Create(parts_, context);
}

grpc::ServerWriteReactor<grpc::ByteBuffer>* TableService::Snapshot(Context* context,
                                                                   const Bytes* request) {
  return NewSnapshotReactor(parts_, context, request);
}

grpc::ServerReadReactor<grpc::ByteBuffer>* TableService::Restore(Context* context,
                                                                 Bytes* response) {
  return NewRestoreReactor(parts_, context, response);
}

}  // namespace muster
