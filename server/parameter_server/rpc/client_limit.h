// Who may move data at once: so many clients (connections), and so many calls of each. Thread-safe.
#ifndef MUSTER_SERVER_PARAMETER_SERVER_RPC_CLIENT_LIMIT_H_
#define MUSTER_SERVER_PARAMETER_SERVER_RPC_CLIENT_LIMIT_H_

#include <map>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "absl/synchronization/mutex.h"

namespace muster {

class ClientLimit {
 public:
  ClientLimit(int max_clients, int max_calls) : max_clients_(max_clients), max_calls_(max_calls) {}

  // RESOURCE_EXHAUSTED if `peer` may not begin another call. Each OK needs a Leave.
  absl::Status Enter(const std::string& peer) ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    const auto found = calls_.find(peer);
    if (found == calls_.end() && static_cast<int>(calls_.size()) >= max_clients_) {
      return absl::ResourceExhaustedError(absl::StrFormat(
          "%d clients are moving data, as many as this server takes (--max-clients); try later",
          max_clients_));
    }
    if (found != calls_.end() && found->second >= max_calls_) {
      return absl::ResourceExhaustedError(absl::StrFormat(
          "this client has %d calls under way that move data, as many as one may have "
          "(--max-calls-per-client)",
          max_calls_));
    }
    ++calls_[peer];
    return absl::OkStatus();
  }

  void Leave(const std::string& peer) ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    const auto found = calls_.find(peer);
    if (--found->second == 0) calls_.erase(found);
  }

  int clients() const ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    return static_cast<int>(calls_.size());
  }

 private:
  const int max_clients_;
  const int max_calls_;
  mutable absl::Mutex mutex_;
  std::map<std::string, int> calls_ ABSL_GUARDED_BY(mutex_);  // by peer; never 0
};

}  // namespace muster

#endif  // MUSTER_SERVER_PARAMETER_SERVER_RPC_CLIENT_LIMIT_H_
