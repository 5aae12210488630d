// A worker's session as a test drives it: plain gRPC, no worker code.
#ifndef MUSTER_TESTS_SERVER_RPC_FAKE_WORKER_H_
#define MUSTER_TESTS_SERVER_RPC_FAKE_WORKER_H_

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "base/control/messages.h"
#include "muster/v1/coordinator.grpc.pb.h"

namespace muster {

Hello TestHello(const std::string& name, uint64_t incarnation);

class FakeWorker {
 public:
  // Opens the stream and, unless `hello` is empty, says hello. With `obey`, it answers proposals
  // and follows activations like a worker that has nothing to compute.
  FakeWorker(const std::string& address, const std::optional<Hello>& hello, bool obey = false);
  // Cancels the stream.
  ~FakeWorker();

  // False if the stream has ended.
  bool Send(const v1::SessionRequest& request);
  bool SendStatus(WorkerStatus status);

  // The first message that `wanted` accepts; those before it are dropped. None if the stream ends.
  std::optional<v1::SessionResponse> Await(
      const std::function<bool(const v1::SessionResponse&)>& wanted);
  std::optional<v1::SessionResponse> Await(v1::SessionResponse::DirectiveCase directive);
  // Waits for the end of the stream.
  grpc::Status AwaitEnd();

  // What the worker shows now; obeying changes it.
  WorkerStatus status();
  // Like a member that has applied `step`.
  bool ShowStep(Step step, double loss);
  void Cancel() { context_.TryCancel(); }

 private:
  void Read();
  void Obey(const v1::SessionResponse& response);

  const bool obey_;
  std::unique_ptr<v1::Fleet::Stub> stub_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReaderWriter<v1::SessionRequest, v1::SessionResponse>> stream_;
  absl::Mutex write_mutex_;
  absl::Mutex mutex_;
  WorkerStatus status_ ABSL_GUARDED_BY(mutex_);
  std::deque<v1::SessionResponse> received_ ABSL_GUARDED_BY(mutex_);
  std::optional<grpc::Status> ended_ ABSL_GUARDED_BY(mutex_);
  std::thread reader_;
};

}  // namespace muster

#endif  // MUSTER_TESTS_SERVER_RPC_FAKE_WORKER_H_
