// One stream of the Session call, from opening to its end. For worker/rpc only.
//
// Every call is thread-safe and none blocks. At most one message is held in either direction, so a
// side that does not keep up slows the other one through flow control.
#ifndef MUSTER_WORKER_RPC_SESSION_STREAM_H_
#define MUSTER_WORKER_RPC_SESSION_STREAM_H_

#include <grpcpp/client_context.h>
#include <grpcpp/support/client_callback.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "muster/v1/coordinator.grpc.pb.h"

namespace muster {

class SessionStream;

// Wakes the thread that drives streams, and hands it back those that gRPC has done with.
//
// A stream must be destroyed by its driver, not by gRPC's last callback: with a channel dies the
// thread pool that runs callbacks, which then would wait for itself.
struct SessionSignal {
  absl::Mutex mutex;
  bool raised ABSL_GUARDED_BY(mutex) = false;
  int open ABSL_GUARDED_BY(mutex) = 0;  // streams that gRPC still uses
  std::vector<std::shared_ptr<SessionStream>> done ABSL_GUARDED_BY(mutex);
};

class SessionStream final
    : public grpc::ClientBidiReactor<v1::SessionRequest, v1::SessionResponse> {
 public:
  // Opens a stream over a connection of its own and sends `hello`. `signal` is raised whenever one
  // of the calls below would answer otherwise than before. In the end, soon after Cancel at the
  // latest, the stream appears in signal->done; who drives it must wait for that and clear it.
  static std::shared_ptr<SessionStream> Open(const std::string& address, v1::SessionRequest hello,
                                             std::shared_ptr<SessionSignal> signal);

  // The next message, if one is there; the one after it is then asked for.
  std::optional<v1::SessionResponse> TakeMessage();
  // True if Write may be called. A message in flight, or a stream that has ended, forbids it.
  bool CanWrite();
  // True if everything written has been handed to the connection.
  bool WritesFlushed();
  void Write(v1::SessionRequest message);
  // Says that no more is written; the coordinator then ends the stream.
  void WritesDone();
  // Ends it; messages that still arrive are dropped.
  void Cancel();
  // The final status, once the stream has ended and every message has been taken.
  std::optional<grpc::Status> Ended();

 private:
  explicit SessionStream(std::shared_ptr<SessionSignal> signal) : signal_(std::move(signal)) {}
  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnDone(const grpc::Status& status) override;
  void Raise();

  const std::shared_ptr<SessionSignal> signal_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::Fleet::Stub> stub_;
  grpc::ClientContext context_;

  absl::Mutex mutex_;
  std::shared_ptr<SessionStream> self_ ABSL_GUARDED_BY(mutex_);  // until OnDone
  v1::SessionRequest outgoing_;                                  // gRPC's while writing_
  v1::SessionResponse incoming_;                                 // gRPC's while not arrived_
  bool writing_ ABSL_GUARDED_BY(mutex_) = true;
  bool arrived_ ABSL_GUARDED_BY(mutex_) = false;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;  // nothing more may be started
  bool abandoned_ ABSL_GUARDED_BY(mutex_) = false;
  bool writes_done_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<grpc::Status> status_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace muster

#endif  // MUSTER_WORKER_RPC_SESSION_STREAM_H_
