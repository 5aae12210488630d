#include "server/parameter_server/rpc/snapshot_reactors.h"

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/strings/str_format.h"
#include "absl/types/span.h"
#include "base/status_macros.h"
#include "muster/v1/parameter_server.pb.h"
#include "proto/rpc/bulk.h"
#include "proto/rpc/payload_frame.h"
#include "proto/rpc/status.h"
#include "server/parameter_server/rpc/snapshot_convert.h"

namespace muster {
namespace {

// A snapshot under way, with its memory's place in an account.
struct HeldSnapshot {
  HeldSnapshot(std::shared_ptr<SharedAccount> account_in, int64_t bytes_in)
      : account(std::move(account_in)), bytes(bytes_in) {}
  ~HeldSnapshot() { account->Return(bytes); }
  HeldSnapshot(const HeldSnapshot&) = delete;
  HeldSnapshot& operator=(const HeldSnapshot&) = delete;

  const std::shared_ptr<SharedAccount> account;
  const int64_t bytes;
  TableSnapshot copy;  // arrays only if it has room for them
  bool copied = false;
  int64_t changes = 0;  // of the table, when this was taken
};

// A copy of the table, if there is room for one beside it: the table goes on meanwhile. Else it is
// read piece by piece, which needs little, and ends if the table changes.
absl::StatusOr<std::shared_ptr<HeldSnapshot>> Hold(Table& table, TableHost& host,
                                                   const std::shared_ptr<SharedAccount>& account) {
  if (table.restoring()) {
    return absl::UnavailableError(
        absl::StrFormat("table \"%s\" is being restored; try again", host.name()));
  }
  const TableMetrics metrics = table.Metrics();
  if (account->TryTake(metrics.table_bytes)) {
    auto held = std::make_shared<HeldSnapshot>(account, metrics.table_bytes);
    held->copy = table.Snapshot();
    held->copied = true;
    return held;
  }
  // Its rows' numbers, a message that is sent and one that is made.
  const int64_t bytes = metrics.rows * static_cast<int64_t>(sizeof(int64_t)) + 2 * kBulkChunkBytes;
  if (!host.answers()->TryTakeOrBeAlone(bytes)) {
    return absl::ResourceExhaustedError(absl::StrFormat(
        "a snapshot needs %d bytes; other answers have taken %d of %d (--in-flight-bytes); try "
        "again later",
        bytes, host.answers()->taken_bytes(), host.answers()->budget_bytes()));
  }
  auto held = std::make_shared<HeldSnapshot>(host.answers(), bytes);
  held->copy.header = table.Header();
  held->changes = table.changes();
  return held;
}

grpc::Slice SliceOfFloats(absl::Span<const float> values, std::shared_ptr<const void> owner) {
  return SliceOver(
      {reinterpret_cast<const std::byte*>(values.data()), values.size() * sizeof(float)},
      std::move(owner));
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
    host_ = host;
    // Finish comes after this call, so the reactor outlives it.
    host->Run([this](const TableHost::Access& access) -> std::optional<TableHost::Again> {
      absl::StatusOr<std::shared_ptr<HeldSnapshot>> held =
          access.closed.ok() ? Hold(access.table.get(), *host_, parts_.account) : access.closed;
      if (!held.ok()) {
        Finish(ToGrpcStatus(held.status()));
        return std::nullopt;
      }
      held_ = *std::move(held);
      writer_.emplace(held_->copy.header, host_->spec());
      WriteNext();
      return std::nullopt;
    });
    return absl::OkStatus();
  }

  void WriteNext() {
    if (held_->copied) {
      Write(writer_->Next([this](int array, int64_t offset, int64_t count) {
        const absl::Span<const float> values = held_->copy.arrays[static_cast<size_t>(array)];
        return SliceOfFloats(values.subspan(offset, count), held_);
      }));
      return;
    }
    host_->Run([this](const TableHost::Access& access) -> std::optional<TableHost::Again> {
      if (!access.closed.ok()) {
        Finish(ToGrpcStatus(access.closed));
        return std::nullopt;
      }
      Write(writer_->Next([&](int array, int64_t offset, int64_t count) {
        return Piece(access.table.get(), array, offset, count);
      }));
      return std::nullopt;
    });
  }

  absl::StatusOr<grpc::Slice> Piece(const Table& table, int array, int64_t offset,
                                    int64_t count) const {
    if (table.changes() != held_->changes) {
      return absl::AbortedError(absl::StrFormat(
          "table \"%s\" changed while its snapshot was sent, and the server has no memory for a "
          "copy beside it (%d of its %d bytes are taken, --memory-bytes); push nothing meanwhile, "
          "raise the budget, or drop a table",
          host_->name(), parts_.account->taken_bytes(), parts_.account->budget_bytes()));
    }
    const auto values = std::make_shared<std::vector<float>>(static_cast<size_t>(count));
    table.ReadArray(held_->copy.header, array, offset, absl::MakeSpan(*values));
    return SliceOfFloats(*values, values);
  }

  void Write(absl::StatusOr<std::optional<grpc::ByteBuffer>> next) {
    if (!next.ok()) {
      Finish(ToGrpcStatus(next.status()));
    } else if (!next->has_value()) {
      Finish(grpc::Status::OK);
    } else {
      outgoing_ = **std::move(next);
      StartWrite(&outgoing_);
    }
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
  std::shared_ptr<TableHost> host_;
  std::shared_ptr<HeldSnapshot> held_;
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
