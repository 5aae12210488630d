// A worker's Prometheus metrics, one set for the life of the process. Thread-safe.
//
//   muster_worker_step, _epoch, _rank, _world_size, _loss, _learning_rate, _gradient_norm,
//   _samples_per_second, _test_accuracy                     gauges, of the newest step
//   muster_worker_skipped_steps_total                       counter
//   muster_worker_checkpoint_failures_total                 counter
//   muster_worker_step_seconds                              histogram
//   muster_worker_comm_wait_seconds_total                   counter
//   muster_worker_waiting_seconds                           gauge, of a collective that stands
//   still muster_worker_straggler_seconds_total{rank}             counter
//   muster_worker_communication_path_info{transport, provider, automatic, asked}
//                                                           1; the last two list
//                                                           collective:algorithm
#ifndef MUSTER_WORKER_RUNTIME_WORKER_GAUGES_H_
#define MUSTER_WORKER_RUNTIME_WORKER_GAUGES_H_

#include <memory>

#include "absl/time/time.h"
#include "base/control/communication.h"
#include "base/ids.h"
#include "base/metrics_endpoint.h"
#include "worker/metrics/step_metrics.h"

namespace muster {

class WorkerGauges {
 public:
  explicit WorkerGauges(MetricsEndpoint& endpoint);
  ~WorkerGauges();
  void Set(const StepMetrics& metrics, Rank rank);
  void Set(const EvaluationMetrics& metrics);
  // How the view in force communicates.
  void Set(const CommunicationPath& path);
  // A checkpoint was not written or not named by this worker.
  void CountCheckpointFailure();
  // How long a collective has stood still now; zero: none does.
  void SetWaiting(absl::Duration waited);
  // A late collective has waited so much longer for `rank`.
  void CountStraggler(Rank rank, absl::Duration waited);

 private:
  struct Impl;
  const std::unique_ptr<Impl> impl_;
};

}  // namespace muster

#endif  // MUSTER_WORKER_RUNTIME_WORKER_GAUGES_H_
