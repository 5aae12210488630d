#include "server/parameter_server/rpc/transfer_reactor.h"

#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "proto/rpc/status.h"

namespace muster {
namespace {

// Messages that were read and whose turn has not come, and chunks to be written.
constexpr size_t kReadAhead = 2;
constexpr size_t kFetchAhead = 2;

}  // namespace

TransferReactor* TransferReactor::Create(const ServerParts& parts,
                                         grpc::CallbackServerContext* context) {
  std::shared_ptr<TransferReactor> reactor(new TransferReactor(parts));
  const std::string peer = context->peer();
  const absl::Status entered = parts.clients.Enter(peer);
  if (entered.ok()) reactor->peer_ = peer;
  absl::MutexLock lock(&reactor->mutex_);
  reactor->self_ = reactor;
  if (!entered.ok()) reactor->End(entered);
  reactor->GoOn();
  return reactor.get();
}

// ---- gRPC's callbacks --------------------------------------------------------------------------

void TransferReactor::OnReadDone(bool ok) {
  absl::MutexLock lock(&mutex_);
  reading_ = false;
  if (!ok) {
    reads_done_ = true;
  } else {
    auto message =
        std::make_shared<Message>(parts_.in_flight, static_cast<int64_t>(incoming_.Length()));
    const absl::Status decoded = DecodeFrame(incoming_, &message->head, &message->payload);
    incoming_.Clear();
    if (decoded.ok()) {
      inbox_.push_back(std::move(message));
    } else {
      End(decoded);
    }
  }
  GoOn();
}

void TransferReactor::OnWriteDone(bool ok) {
  absl::MutexLock lock(&mutex_);
  writing_ = false;
  outgoing_.Clear();  // the table's memory is free to change
  if (!ok) End(absl::CancelledError("the client has gone"));
  GoOn();
}

void TransferReactor::OnCancel() {
  absl::MutexLock lock(&mutex_);
  cancelled_ = true;
  End(absl::CancelledError("the client has gone, or its deadline has passed"));
  if (calling_) called_->Wake(ticket_);
  GoOn();
}

void TransferReactor::OnDone() {
  if (!peer_.empty()) parts_.clients.Leave(peer_);
  std::shared_ptr<TransferReactor> self;  // goes last
  absl::MutexLock lock(&mutex_);
  self = std::move(self_);
}

// ---- what comes next ---------------------------------------------------------------------------

void TransferReactor::End(const absl::Status& status) {
  if (!ending_.has_value()) ending_ = status;
  inbox_.clear();
  acknowledgements_.clear();
}

void TransferReactor::GoOn() {
  if (finished_) return;
  while (!ending_.has_value() && !calling_ && !pull_.has_value() && acknowledgements_.empty() &&
         !inbox_.empty()) {
    std::shared_ptr<Message> message = std::move(inbox_.front());
    inbox_.pop_front();
    if (absl::Status taken = Take(std::move(message)); !taken.ok()) End(taken);
  }
  if (!ending_.has_value()) {
    FetchMore();
    MaybeRead();
    MaybeWrite();
  }
  const bool idle = !calling_ && !pull_.has_value() && acknowledgements_.empty() && inbox_.empty();
  if (!ending_.has_value() && reads_done_ && idle && !writing_) {
    ending_ =
        push_.has_value()
            ? absl::InvalidArgumentError(absl::StrFormat(
                  "the stream ended within a push to table \"%s\": %d %s of it are missing",
                  push_->header.table, push_->left, push_->host->dense() ? "elements" : "messages"))
            : absl::OkStatus();
  }
  if (ending_.has_value() && !calling_ && !writing_) {
    finished_ = true;
    pull_.reset();
    Finish(ToGrpcStatus(*ending_));
  }
}

void TransferReactor::MaybeRead() {
  if (reading_ || reads_done_ || inbox_.size() >= kReadAhead) return;
  const bool in_hand = calling_ || !inbox_.empty();
  if (in_hand && !parts_.in_flight.HasRoom()) return;
  reading_ = true;
  StartRead(&incoming_);
}

void TransferReactor::MaybeWrite() {
  if (writing_) return;
  if (!acknowledgements_.empty()) {
    outgoing_ = EncodeFrame(acknowledgements_.front(), {});
    acknowledgements_.pop_front();
  } else if (pull_.has_value() && !pull_->ready.empty()) {
    outgoing_ = EncodeChunk(pull_->ready.front(), pull_->type);
    pull_->ready.pop_front();
    if (pull_->ready.empty() && !pull_->more) pull_.reset();
  } else {
    return;
  }
  writing_ = true;
  StartWrite(&outgoing_);
}

// ---- requests ----------------------------------------------------------------------------------

absl::Status TransferReactor::Take(std::shared_ptr<Message> message) {
  const v1::TransferRequest& head = message->head;
  switch (head.request_case()) {
    case v1::TransferRequest::kPush:
      if (push_.has_value()) {
        return absl::InvalidArgumentError(absl::StrFormat(
            "push: the push before it (table \"%s\") lacks %d %s", push_->header.table, push_->left,
            push_->host->dense() ? "elements" : "messages"));
      }
      MUSTER_RETURN_IF_ERROR(BeginPush(head.push()));
      break;
    case v1::TransferRequest::kPull:
      if (push_.has_value()) {
        return absl::InvalidArgumentError(absl::StrFormat(
            "pull: the push before it (table \"%s\") lacks %d %s", push_->header.table, push_->left,
            push_->host->dense() ? "elements" : "messages"));
      }
      return BeginPull(head.pull());
    case v1::TransferRequest::REQUEST_NOT_SET:
      if (!push_.has_value()) {
        return absl::InvalidArgumentError(
            "request: the first message of a push or a pull must say which it is");
      }
      break;
  }
  return push_->host->dense() ? TakeDense(std::move(message)) : TakeSparse(std::move(message));
}

absl::Status TransferReactor::BeginPush(const v1::Push& push) {
  MUSTER_ASSIGN_OR_RETURN(PushHeader header, PushFromProto(push));
  MUSTER_ASSIGN_OR_RETURN(std::shared_ptr<TableHost> host, parts_.tables.Find(header.table));
  PushState state;
  if (host->dense()) {
    const Range range = host->constants().dense->range();
    if (header.range == Range()) header.range = range;
    if (header.chunks != 0) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "push.chunks: table \"%s\" is dense and is pushed to by offset and count", header.table));
    }
    if (header.range.count == 0 || !range.Contains(header.range)) {
      return absl::OutOfRangeError(absl::StrFormat(
          "push: elements [%d, %d) of table \"%s\" are not all here; this server has [%d, %d)",
          header.range.offset, header.range.end(), header.table, range.offset, range.end()));
    }
    state.left = header.range.count;
  } else {
    if (header.range != Range()) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "push: table \"%s\" is sparse and is pushed to by rows, not by offset and count",
          header.table));
    }
    if (header.chunks == 0) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "push.chunks: table \"%s\" is sparse; say how many messages the push has", header.table));
    }
    state.left = header.chunks;
  }
  state.header = std::move(header);
  state.host = std::move(host);
  push_ = std::move(state);
  return absl::OkStatus();
}

absl::Status TransferReactor::BeginPull(const v1::Pull& pull) {
  MUSTER_ASSIGN_OR_RETURN(PullHeader header, PullFromProto(pull));
  MUSTER_ASSIGN_OR_RETURN(std::shared_ptr<TableHost> host, parts_.tables.Find(header.table));
  PullState state;
  state.host = host;
  state.type = header.type;
  MUSTER_ASSIGN_OR_RETURN(state.source, PullChunks::Create(std::move(host), std::move(header)));
  pull_ = std::move(state);
  return absl::OkStatus();
}

absl::Status TransferReactor::TakeDense(std::shared_ptr<Message> message) {
  const PushHeader& header = push_->header;
  if (message->head.rows_size() != 0 || message->head.row_count() != 0) {
    return absl::InvalidArgumentError(
        absl::StrFormat("rows: table \"%s\" is dense and has none", header.table));
  }
  const int64_t bytes = message->payload.size();
  const auto element_bytes = static_cast<int64_t>(SizeOf(header.type));
  if (bytes % element_bytes != 0 || bytes > push_->left * element_bytes) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "data: must be whole elements of %s and at most the %d that push to table \"%s\" still "
        "lacks, got %d bytes",
        std::string(Name(header.type)), push_->left, header.table, bytes));
  }
  // The message that begins a push may have no data yet.
  if (bytes == 0) return absl::OkStatus();
  const int64_t count = bytes / element_bytes;
  const Range range = {header.range.end() - push_->left, count};
  MUSTER_ASSIGN_OR_RETURN(GradientBytes values,
                          GradientBytes::Create(header.type, message->payload.Pieces()));
  RunOn(push_->host,
        [self = shared_from_this(), message = std::move(message), header, range,
         values = std::move(values)](
            const TableHost::Access& access) -> std::optional<TableHost::Again> {
          if (absl::Status gone = self->Gone(access); !gone.ok()) {
            self->PushDone(gone, 0);
            return std::nullopt;
          }
          DenseTable& table = *access.table.dense;
          if (header.assign) {
            const absl::Status assigned = table.Assign(header.from, range, values, access.now);
            self->PushDone(assigned.ok() ? absl::StatusOr<PushResult>(PushResult()) : assigned,
                           range.count);
            return std::nullopt;
          }
          const absl::StatusOr<PushResult> result = table.Push({.from = header.from,
                                                                .id = header.id,
                                                                .range = range,
                                                                .samples = header.samples,
                                                                .values = values},
                                                               access.now);
          if (result.ok() && result->outcome == PushResult::Outcome::kMustWait) {
            return TableHost::Again{result->wait};
          }
          self->PushDone(result, range.count);
          return std::nullopt;
        });
  return absl::OkStatus();
}

absl::Status TransferReactor::TakeSparse(std::shared_ptr<Message> message) {
  const PushHeader& header = push_->header;
  const v1::TransferRequest& head = message->head;
  if (head.rows_size() != 0 && head.row_count() != 0) {
    return absl::InvalidArgumentError("rows: give either these or first_row and row_count");
  }
  const int64_t width = push_->host->constants().sparse->width();
  const int64_t rows = head.row_count() != 0 ? head.row_count() : head.rows_size();
  const auto row_bytes = width * static_cast<int64_t>(SizeOf(header.type));
  const int64_t bytes = message->payload.size();
  if (rows < 0 || rows > bytes / row_bytes || bytes != rows * row_bytes) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "data: %d rows of table \"%s\", of width %d, are %d bytes of %s each, got %d bytes", rows,
        header.table, width, row_bytes, std::string(Name(header.type)), bytes));
  }
  MUSTER_ASSIGN_OR_RETURN(GradientBytes values,
                          GradientBytes::Create(header.type, message->payload.Pieces()));
  const int32_t chunk = static_cast<int32_t>(header.chunks - push_->left);
  RunOn(push_->host,
        [self = shared_from_this(), message = std::move(message), header, chunk,
         values = std::move(values)](
            const TableHost::Access& access) -> std::optional<TableHost::Again> {
          if (absl::Status gone = self->Gone(access); !gone.ok()) {
            self->PushDone(gone, 0);
            return std::nullopt;
          }
          const v1::TransferRequest& head = message->head;
          const absl::Span<const int64_t> rows(head.rows().data(),
                                               static_cast<size_t>(head.rows_size()));
          SparseTable& table = *access.table.sparse;
          if (header.assign) {
            const absl::Status assigned = table.Assign(header.from, rows, values, access.now);
            self->PushDone(assigned.ok() ? absl::StatusOr<PushResult>(PushResult()) : assigned, 1);
            return std::nullopt;
          }
          SparsePush push = {.from = header.from,
                             .id = header.id,
                             .chunk = chunk,
                             .chunk_count = header.chunks,
                             .samples = header.samples,
                             .rows = rows,
                             .values = values};
          if (head.row_count() != 0) push.rows_range = Range{head.first_row(), head.row_count()};
          const absl::StatusOr<PushResult> result = table.Push(push, access.now);
          if (result.ok() && result->outcome == PushResult::Outcome::kMustWait) {
            return TableHost::Again{result->wait};
          }
          self->PushDone(result, 1);
          return std::nullopt;
        });
  return absl::OkStatus();
}

void TransferReactor::FetchMore() {
  if (calling_ || !pull_.has_value() || !pull_->more || pull_->ready.size() >= kFetchAhead) return;
  RunOn(pull_->host,
        [self = shared_from_this(), source = pull_->source.get()](
            const TableHost::Access& access) -> std::optional<TableHost::Again> {
          if (absl::Status gone = self->Gone(access); !gone.ok()) {
            self->FetchDone(gone);
            return std::nullopt;
          }
          absl::StatusOr<std::variant<Wait, PullChunks::Fetched>> fetched = source->Fetch(access);
          if (!fetched.ok()) {
            self->FetchDone(fetched.status());
          } else if (const Wait* wait = std::get_if<Wait>(&*fetched)) {
            return TableHost::Again{*wait};
          } else {
            self->FetchDone(std::get<PullChunks::Fetched>(*std::move(fetched)));
          }
          return std::nullopt;
        });
}

void TransferReactor::RunOn(const std::shared_ptr<TableHost>& host, TableHost::Call call) {
  calling_ = true;
  called_ = host;
  ticket_ = host->NewTicket();
  host->Run(ticket_, std::move(call));
}

// ---- from calls on tables ----------------------------------------------------------------------

absl::Status TransferReactor::Gone(const TableHost::Access& access) {
  if (!access.closed.ok()) return access.closed;
  absl::MutexLock lock(&mutex_);
  return cancelled_ ? *ending_ : absl::OkStatus();
}

void TransferReactor::PushDone(const absl::StatusOr<PushResult>& result, int64_t taken) {
  absl::MutexLock lock(&mutex_);
  calling_ = false;
  called_.reset();
  if (!result.ok()) {
    End(result.status());
  } else {
    push_->left -= taken;
    push_->version = result->version;
    if (result->outcome == PushResult::Outcome::kAdded) push_->duplicate = false;
    if (push_->left == 0) {
      v1::Pushed& pushed = *acknowledgements_.emplace_back().mutable_pushed();
      pushed.set_version(push_->version);
      pushed.set_duplicate(push_->duplicate);
      push_.reset();
    }
  }
  GoOn();
}

void TransferReactor::FetchDone(absl::StatusOr<PullChunks::Fetched> fetched) {
  absl::MutexLock lock(&mutex_);
  calling_ = false;
  called_.reset();
  if (!fetched.ok()) {
    End(fetched.status());
  } else {
    for (PullChunk& chunk : fetched->chunks) pull_->ready.push_back(std::move(chunk));
    pull_->more = fetched->more;
  }
  GoOn();
}

}  // namespace muster
