// A parameter server as a client reaches it: channel, stub, and the part of the table it has; and
// groups of transfers, one or more on each server, that are repeated until they are done.
//
// Thread-safe.
#ifndef MUSTER_CLIENT_PARAMETERS_SERVER_LINK_H_
#define MUSTER_CLIENT_PARAMETERS_SERVER_LINK_H_

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "client/parameters/transfer_call.h"
#include "muster/v1/parameter_server.grpc.pb.h"
#include "proto/rpc/status.h"
#include "state/range.h"

namespace muster {

// A failed call that did not reach the server, or lost it. One that reaches a server as it shuts
// down is cancelled there.
inline bool MayRepeat(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsCancelled(status);
}

// Waits between attempts, and knows what to cancel at the end. Thread-safe.
class CallRegistry {
 public:
  using Cancel = std::function<void()>;
  // Registers a call for as long as the object lives; one that is shut down is cancelled at once.
  class Entry {
   public:
    Entry(CallRegistry& registry, Cancel cancel);
    ~Entry();
    Entry(const Entry&) = delete;
    Entry& operator=(const Entry&) = delete;

   private:
    CallRegistry& registry_;
    std::set<std::unique_ptr<Cancel>>::iterator at_;
  };

  void Shutdown() ABSL_LOCKS_EXCLUDED(mutex_);
  bool shut_down() const ABSL_LOCKS_EXCLUDED(mutex_);
  // Waits so long, or until Shutdown.
  void Sleep(absl::Duration duration) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  mutable absl::Mutex mutex_;
  bool shut_down_ ABSL_GUARDED_BY(mutex_) = false;
  std::set<std::unique_ptr<Cancel>> calls_ ABSL_GUARDED_BY(mutex_);
};

class ServerLink {
 public:
  ServerLink(std::string address, Range range);

  const std::string& peer() const { return peer_; }
  // Its part of the table.
  Range range() const { return range_; }

  std::shared_ptr<grpc::Channel> channel() ABSL_LOCKS_EXCLUDED(mutex_);
  // Takes a fresh connection from now on; calls under way keep theirs.
  void Reconnect() ABSL_LOCKS_EXCLUDED(mutex_);

  template <typename Request, typename Response>
  using Method = grpc::Status (v1::ParameterServer::Stub::*)(grpc::ClientContext*, const Request&,
                                                             Response*);
  // A unary call, repeated while the server cannot be reached and the deadline allows.
  template <typename Request, typename Response>
  absl::StatusOr<Response> Call(Method<Request, Response> method, const Request& request,
                                absl::Time deadline, CallRegistry& calls) {
    absl::Duration backoff = absl::Milliseconds(20);
    while (true) {
      if (calls.shut_down()) return absl::CancelledError("the client was shut down");
      grpc::ClientContext context;
      context.set_deadline(absl::ToChronoTime(deadline));
      Response response;
      grpc::Status status;
      {
        const CallRegistry::Entry entry(calls, [&context] { context.TryCancel(); });
        const std::unique_ptr<v1::ParameterServer::Stub> stub =
            v1::ParameterServer::NewStub(channel());
        status = (stub.get()->*method)(&context, request, &response);
      }
      if (status.ok()) return response;
      const absl::Status failed = FromGrpcStatus(status, peer_);
      if (!MayRepeat(failed) || absl::Now() + backoff >= deadline) return failed;
      calls.Sleep(backoff);
      backoff = std::min(2 * backoff, absl::Seconds(1));
    }
  }

 private:
  const std::string address_;
  const std::string peer_;
  const Range range_;
  absl::Mutex mutex_;
  std::shared_ptr<grpc::Channel> channel_ ABSL_GUARDED_BY(mutex_);
};

// One transfer of a group.
struct Transfer {
  ServerLink* link = nullptr;
  std::string method = "/muster.v1.ParameterServer/Transfer";
  // The ends of a new attempt.
  std::function<TransferCall::Ends()> begin;
};

// Makes all transfers at once, each again until it is done. The first error that no repetition
// mends ends all of them.
absl::Status RunTransfers(const std::vector<Transfer>& transfers, absl::Time deadline,
                          CallRegistry& calls);

}  // namespace muster

#endif  // MUSTER_CLIENT_PARAMETERS_SERVER_LINK_H_
