#include "server/parameter_server/rpc/snapshot_reactors.h"

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/functional/any_invocable.h"
#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "muster/v1/parameter_server.pb.h"
#include "proto/rpc/payload_frame.h"
#include "proto/rpc/status.h"
#include "server/parameter_server/rpc/snapshot_convert.h"

namespace muster {
namespace {

// Bytes of an account, given back at the end.
class Reservation {
 public:
  static absl::StatusOr<std::shared_ptr<Reservation>> Take(std::shared_ptr<SharedAccount> account,
                                                           int64_t bytes) {
    if (!account->TryTake(bytes)) {
      return absl::ResourceExhaustedError(absl::StrFormat(
          "a snapshot of %d bytes does not fit: the server has taken %d of its %d bytes "
          "(--memory-bytes)",
          bytes, account->taken_bytes(), account->budget_bytes()));
    }
    return std::shared_ptr<Reservation>(new Reservation(std::move(account), bytes));
  }
  ~Reservation() { account_->Return(bytes_); }

 private:
  Reservation(std::shared_ptr<SharedAccount> account, int64_t bytes)
      : account_(std::move(account)), bytes_(bytes) {}
  const std::shared_ptr<SharedAccount> account_;
  const int64_t bytes_;
};

// The snapshot's own memory with its place in the account.
struct HeldSnapshot {
  std::shared_ptr<Reservation> reservation;
  TableSnapshot snapshot;
};

absl::StatusOr<std::shared_ptr<const TableSnapshot>> Copy(const AnyTable& table,
                                                          std::shared_ptr<SharedAccount> account) {
  auto held = std::make_shared<HeldSnapshot>();
  const TableMetrics metrics = table.get().Metrics();
  MUSTER_ASSIGN_OR_RETURN(held->reservation,
                          Reservation::Take(std::move(account), metrics.table_bytes));
  held->snapshot = table.get().Snapshot();
  return std::shared_ptr<const TableSnapshot>(held, &held->snapshot);
}

class SnapshotReactor final : public grpc::ServerWriteReactor<grpc::ByteBuffer> {
 public:
  SnapshotReactor(const ServerParts& parts, grpc::CallbackServerContext* context)
      : parts_(parts), peer_(context->peer()), entered_(parts.clients.Enter(peer_)) {}

  void Start(const grpc::ByteBuffer& bytes) {
    const absl::Status begun = Begin(bytes);
    if (!begun.ok()) Finish(ToGrpcStatus(begun));
  }

 private:
  absl::Status Begin(const grpc::ByteBuffer& bytes) {
    MUSTER_RETURN_IF_ERROR(entered_);
    v1::SnapshotRequest request;
    Payload payload;
    MUSTER_RETURN_IF_ERROR(DecodeFrame(bytes, &request, &payload));
    MUSTER_ASSIGN_OR_RETURN(const std::shared_ptr<TableHost> host,
                            parts_.tables.Find(request.table()));
    // Finish comes after this call, so the reactor outlives it.
    host->Run([this, host](const TableHost::Access& access) -> std::optional<TableHost::Again> {
      absl::StatusOr<std::shared_ptr<const TableSnapshot>> snapshot =
          access.closed.ok() ? Copy(access.table, parts_.account) : access.closed;
      if (!snapshot.ok()) {
        Finish(ToGrpcStatus(snapshot.status()));
        return std::nullopt;
      }
      writer_.emplace(*std::move(snapshot), host->spec());
      WriteNext();
      return std::nullopt;
    });
    return absl::OkStatus();
  }

  void WriteNext() {
    std::optional<grpc::ByteBuffer> next = writer_->Next();
    if (!next.has_value()) {
      Finish(grpc::Status::OK);
      return;
    }
    outgoing_ = *std::move(next);
    StartWrite(&outgoing_);
  }

  void OnWriteDone(bool ok) override {
    if (ok) {
      WriteNext();
    } else {
      Finish(ToGrpcStatus(absl::CancelledError("the client has gone")));
    }
  }
  void OnDone() override {
    if (entered_.ok()) parts_.clients.Leave(peer_);
    delete this;
  }

  const ServerParts parts_;
  const std::string peer_;
  const absl::Status entered_;
  std::optional<SnapshotWriter> writer_;
  grpc::ByteBuffer outgoing_;
};

class RestoreReactor final : public grpc::ServerReadReactor<grpc::ByteBuffer> {
 public:
  RestoreReactor(const ServerParts& parts, grpc::CallbackServerContext* context,
                 grpc::ByteBuffer* response)
      : parts_(parts),
        context_(context),
        peer_(context->peer()),
        entered_(parts.clients.Enter(peer_)),
        response_(response) {}

  void Start() {
    if (entered_.ok()) {
      StartRead(&incoming_);
    } else {
      Finish(ToGrpcStatus(entered_));
    }
  }

 private:
  void OnReadDone(bool ok) override {
    const absl::Status taken = ok ? Take() : End();
    if (taken.ok()) return;
    if (!begun_) {
      Finish(ToGrpcStatus(taken));
      return;
    }
    RunOnTable([taken](Table&) { return taken; });
  }

  // Reads on now, or when the table has what came.
  absl::Status Take() {
    if (!reader_.has_value()) {
      MUSTER_ASSIGN_OR_RETURN(SnapshotReader reader, SnapshotReader::Create(incoming_));
      MUSTER_ASSIGN_OR_RETURN(host_, parts_.tables.Find(reader.table()));
      reader_ = std::move(reader);
      StartRead(&incoming_);
      return absl::OkStatus();
    }
    MUSTER_ASSIGN_OR_RETURN(SnapshotReader::Part part, reader_->Read(incoming_));
    if (part.values.empty()) {
      StartRead(&incoming_);
      return absl::OkStatus();
    }
    RunOnTable([this, part = std::move(part)](Table& table) -> absl::Status {
      MUSTER_RETURN_IF_ERROR(Begin(table));
      MUSTER_RETURN_IF_ERROR(table.RestorePart(part.array, part.offset, part.values));
      StartRead(&incoming_);
      return absl::OkStatus();
    });
    return absl::OkStatus();
  }

  absl::Status End() {
    if (context_->IsCancelled()) return absl::CancelledError("the client has gone");
    if (!reader_.has_value()) {
      return absl::InvalidArgumentError("header: a snapshot begins with it; nothing came");
    }
    MUSTER_RETURN_IF_ERROR(reader_->CheckComplete());
    RunOnTable([this](Table& table) -> absl::Status {
      MUSTER_RETURN_IF_ERROR(Begin(table));
      MUSTER_RETURN_IF_ERROR(table.FinishRestore());
      v1::RestoreResponse answer;
      answer.set_version(table.version());
      *response_ = EncodeFrame(answer, {});
      Finish(grpc::Status::OK);
      return absl::OkStatus();
    });
    return absl::OkStatus();
  }

  // Rows come before values, so the header is whole by then.
  absl::Status Begin(Table& table) {
    if (begun_) return absl::OkStatus();
    MUSTER_ASSIGN_OR_RETURN(const SnapshotHeader header, reader_->Header());
    MUSTER_RETURN_IF_ERROR(table.BeginRestore(header));
    begun_ = true;
    return absl::OkStatus();
  }

  // An error of `work` ends the call, and leaves the table as it was created: whoever hears of it
  // may restore again at once.
  void RunOnTable(absl::AnyInvocable<absl::Status(Table& table)> work) {
    host_->Run([this, work = std::move(work)](
                   const TableHost::Access& access) mutable -> std::optional<TableHost::Again> {
      const absl::Status done = access.closed.ok() ? work(access.table.get()) : access.closed;
      if (done.ok()) return std::nullopt;
      if (begun_ && access.closed.ok()) access.table.get().AbortRestore();
      Finish(ToGrpcStatus(done));
      return std::nullopt;
    });
  }

  void OnDone() override {
    if (entered_.ok()) parts_.clients.Leave(peer_);
    delete this;
  }

  const ServerParts parts_;
  grpc::CallbackServerContext* const context_;
  const std::string peer_;
  const absl::Status entered_;
  grpc::ByteBuffer* const response_;
  grpc::ByteBuffer incoming_;
  std::shared_ptr<TableHost> host_;
  std::optional<SnapshotReader> reader_;
  bool begun_ = false;  // the table's restore is this call's
};

}  // namespace

grpc::ServerWriteReactor<grpc::ByteBuffer>* NewSnapshotReactor(const ServerParts& parts,
                                                               grpc::CallbackServerContext* context,
                                                               const grpc::ByteBuffer* request) {
  auto* const reactor = new SnapshotReactor(parts, context);
  reactor->Start(*request);
  return reactor;
}

grpc::ServerReadReactor<grpc::ByteBuffer>* NewRestoreReactor(const ServerParts& parts,
                                                             grpc::CallbackServerContext* context,
                                                             grpc::ByteBuffer* response) {
  auto* const reactor = new RestoreReactor(parts, context, response);
  reactor->Start();
  return reactor;
}

}  // namespace muster
