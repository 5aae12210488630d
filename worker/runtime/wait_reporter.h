// What a worker says of collectives that keep it waiting: a line in the log when one is late and
// another when it goes on, metrics, and what the coordinator is to know.
//
// A collective is late when it has stood still for longer than the job allows, or where it says
// nothing, five times the median step, at least a second. Thread-safe.
#ifndef MUSTER_WORKER_RUNTIME_WAIT_REPORTER_H_
#define MUSTER_WORKER_RUNTIME_WAIT_REPORTER_H_

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "base/control/messages.h"
#include "base/log.h"
#include "base/mutex.h"
#include "collectives/engine/wait_watch.h"
#include "worker/runtime/worker_gauges.h"

namespace muster {

class WaitReporter {
 public:
  // Lines about late collectives come at most this often.
  static constexpr absl::Duration kLogInterval = absl::Seconds(10);

  // `limit` zero: by the steps' duration. `gauges` may be null.
  WaitReporter(absl::Duration limit, WorkerGauges* gauges, Logger& logger)
      : limit_(limit), gauges_(gauges), logger_(logger) {}

  // Of `steps` steps so far.
  void SetMedianStep(absl::Duration median, int64_t steps);
  absl::Duration limit() const;

  // Takes what the communicator of `view` says; one at a time. What the coordinator is to know:
  // none if nothing stands still any more.
  std::optional<CollectiveWait> Take(const View& view, const OperationWait& wait, absl::Time now)
      ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  const absl::Duration limit_;
  WorkerGauges* const gauges_;
  Logger& logger_;
  std::atomic<int64_t> median_us_{0};  // 0: not known yet

  Mutex mutex_;
  bool late_ ABSL_GUARDED_BY(mutex_) = false;    // the present wait is
  bool logged_ ABSL_GUARDED_BY(mutex_) = false;  // and has its line
  absl::Duration counted_ ABSL_GUARDED_BY(mutex_);
  absl::Time last_line_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
  int64_t unlogged_ ABSL_GUARDED_BY(mutex_) = 0;  // late ones since that line
};

}  // namespace muster

#endif  // MUSTER_WORKER_RUNTIME_WAIT_REPORTER_H_
