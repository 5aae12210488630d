// The server's end of one Transfer call: pushes and pulls, one after the other.
//
// One read, one write and one call on a table are under way at most, and two messages wait that
// were read ahead; so the memory of a stream is bounded, and a client that stops reading gets
// nothing more. Thread-safe; it deletes itself after gRPC's last callback.
#ifndef MUSTER_SERVER_PARAMETER_SERVER_RPC_TRANSFER_REACTOR_H_
#define MUSTER_SERVER_PARAMETER_SERVER_RPC_TRANSFER_REACTOR_H_

#include <grpcpp/server_context.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include <deque>
#include <memory>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "muster/v1/parameter_server.pb.h"
#include "proto/rpc/payload_frame.h"
#include "server/parameter_server/rpc/pull_chunks.h"
#include "server/parameter_server/rpc/server_parts.h"
#include "server/parameter_server/rpc/table_convert.h"

namespace muster {

class TransferReactor final : public grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>,
                              public std::enable_shared_from_this<TransferReactor> {
 public:
  // gRPC owns the result until OnDone.
  static TransferReactor* Create(const ServerParts& parts, grpc::CallbackServerContext* context);

 private:
  // A request that was read.
  struct Message {
    Message(InFlight& in_flight, int64_t bytes) : held(in_flight, bytes) {}
    v1::TransferRequest head;
    Payload payload;
    const InFlight::Held held;
  };
  // The push under way.
  struct PushState {
    PushHeader header;
    std::shared_ptr<TableHost> host;
    int64_t left = 0;       // elements (dense) or messages (sparse) that are still to come
    bool duplicate = true;  // nothing of it was new so far
    Version version = 0;
  };
  struct PullState {
    std::shared_ptr<TableHost> host;
    DType type = DType::kF32;
    std::unique_ptr<PullChunks> source;  // of calls on the table
    bool more = true;                    // the source has more
    std::deque<PullChunk> ready;
  };

  explicit TransferReactor(const ServerParts& parts) : parts_(parts) {}

  void OnReadDone(bool ok) override ABSL_LOCKS_EXCLUDED(mutex_);
  void OnWriteDone(bool ok) override ABSL_LOCKS_EXCLUDED(mutex_);
  void OnCancel() override ABSL_LOCKS_EXCLUDED(mutex_);
  void OnDone() override ABSL_LOCKS_EXCLUDED(mutex_);

  // Starts all that can be: a read, a write, a call on a table, or the end.
  void GoOn() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void MaybeRead() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void MaybeWrite() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void End(const absl::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // The next message: begins or continues a push, or begins a pull.
  absl::Status Take(std::shared_ptr<Message> message) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status BeginPush(const v1::Push& push) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status BeginPull(const v1::Pull& pull) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status TakeDense(std::shared_ptr<Message> message) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status TakeSparse(std::shared_ptr<Message> message) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void FetchMore() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Makes a call on a table; it ends with one of the Done functions.
  void RunOn(const std::shared_ptr<TableHost>& host, TableHost::Call call)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // From calls on tables.
  absl::Status Gone(const TableHost::Access& access) ABSL_LOCKS_EXCLUDED(mutex_);
  void PushDone(const absl::StatusOr<PushResult>& result, int64_t taken)
      ABSL_LOCKS_EXCLUDED(mutex_);
  void FetchDone(absl::StatusOr<PullChunks::Fetched> fetched) ABSL_LOCKS_EXCLUDED(mutex_);

  const ServerParts parts_;
  std::string peer_;  // set if it counts as one of the clients

  grpc::ByteBuffer incoming_;  // gRPC's while reading_
  grpc::ByteBuffer outgoing_;  // gRPC's while writing_

  absl::Mutex mutex_;
  std::shared_ptr<TransferReactor> self_ ABSL_GUARDED_BY(mutex_);  // until OnDone
  std::deque<std::shared_ptr<Message>> inbox_ ABSL_GUARDED_BY(mutex_);
  std::deque<v1::TransferResponse> acknowledgements_ ABSL_GUARDED_BY(mutex_);
  std::optional<PushState> push_ ABSL_GUARDED_BY(mutex_);
  std::optional<PullState> pull_ ABSL_GUARDED_BY(mutex_);
  bool reading_ ABSL_GUARDED_BY(mutex_) = false;
  bool reads_done_ ABSL_GUARDED_BY(mutex_) = false;
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  // A call on a table is under way, or waits.
  bool calling_ ABSL_GUARDED_BY(mutex_) = false;
  std::shared_ptr<TableHost> called_ ABSL_GUARDED_BY(mutex_);
  Ticket ticket_ ABSL_GUARDED_BY(mutex_) = 0;
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<absl::Status> ending_ ABSL_GUARDED_BY(mutex_);
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace muster

#endif  // MUSTER_SERVER_PARAMETER_SERVER_RPC_TRANSFER_REACTOR_H_
