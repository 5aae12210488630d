// Holds a worker's core: one mutex, an ordered queue of actions, timers.
//
// Any thread dispatches events. The actions that open a step's doors go back to the caller; all
// others wait, in order, for the executor (Run), which also fires the timers.
#ifndef MUSTER_WORKER_RUNTIME_CORE_HOST_H_
#define MUSTER_WORKER_RUNTIME_CORE_HOST_H_

#include <deque>
#include <functional>
#include <map>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "base/mutex.h"
#include "worker/core/worker_core.h"
#include "worker/runtime/job_runner.h"

namespace muster {

class CoreHost : public CorePort {
 public:
  explicit CoreHost(const WorkerOptions& options);

  Doors Dispatch(const worker::Event& event) override ABSL_LOCKS_EXCLUDED(mutex_);

  // Carries out actions and timers with `obey` until Stop. One thread.
  void Run(const std::function<void(const worker::Action&)>& obey) ABSL_LOCKS_EXCLUDED(mutex_);
  void Stop() ABSL_LOCKS_EXCLUDED(mutex_);

  // The core is replaced by one of a new incarnation, which knows what the old one knew of the
  // fleet and whether to drain. What the old one still had to say is forgotten.
  void Replace(Incarnation incarnation) ABSL_LOCKS_EXCLUDED(mutex_);

  Hello MakeHello() const ABSL_LOCKS_EXCLUDED(mutex_);
  Incarnation self() const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  WorkerOptions options_ ABSL_GUARDED_BY(mutex_);
  mutable Mutex mutex_;
  std::unique_ptr<WorkerCore> core_ ABSL_GUARDED_BY(mutex_);
  std::deque<worker::Action> actions_ ABSL_GUARDED_BY(mutex_);
  std::map<worker::TimerId, absl::Time> timers_ ABSL_GUARDED_BY(mutex_);
  bool drain_requested_ ABSL_GUARDED_BY(mutex_) = false;
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace muster

#endif  // MUSTER_WORKER_RUNTIME_CORE_HOST_H_
