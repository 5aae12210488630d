// One thread for work that reads files or waits for workers, so that it never holds up gRPC's
// threads, on which heartbeats arrive. Thread-safe.
#ifndef MUSTER_SERVER_RPC_SUBMIT_QUEUE_H_
#define MUSTER_SERVER_RPC_SUBMIT_QUEUE_H_

#include <deque>
#include <functional>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace muster {

class SubmitQueue {
 public:
  explicit SubmitQueue(size_t limit);
  // Runs what is queued, then ends.
  ~SubmitQueue();

  // False if `limit` tasks wait already: the task is not taken.
  bool Add(std::function<void()> task) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  void Run() ABSL_LOCKS_EXCLUDED(mutex_);

  const size_t limit_;
  absl::Mutex mutex_;
  std::deque<std::function<void()>> tasks_ ABSL_GUARDED_BY(mutex_);
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace muster

#endif  // MUSTER_SERVER_RPC_SUBMIT_QUEUE_H_
