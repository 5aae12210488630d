// Threads that run what they are given, in the order in which it comes. Thread-safe.
#ifndef MUSTER_SERVER_PARAMETER_SERVER_RPC_WORK_POOL_H_
#define MUSTER_SERVER_PARAMETER_SERVER_RPC_WORK_POOL_H_

#include <deque>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/synchronization/mutex.h"

namespace muster {

class WorkPool {
 public:
  using Work = absl::AnyInvocable<void()>;

  explicit WorkPool(int threads);
  // Requires: Stop has been called.
  ~WorkPool();
  WorkPool(const WorkPool&) = delete;
  WorkPool& operator=(const WorkPool&) = delete;

  // After Stop the caller does the work itself.
  void Add(Work work) ABSL_LOCKS_EXCLUDED(mutex_);

  // Waits until all work is done. From one thread, none of its own; again, it does nothing.
  void Stop() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  void Run() ABSL_LOCKS_EXCLUDED(mutex_);
  bool HasNews() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return stopping_ || !queue_.empty();
  }

  absl::Mutex mutex_;
  std::deque<Work> queue_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace muster

#endif  // MUSTER_SERVER_PARAMETER_SERVER_RPC_WORK_POOL_H_
