// The coordinator's Prometheus metrics. Thread-safe.
//
//   muster_coordinator_members{state="attached"|"detached"}   gauge
//   muster_coordinator_epoch                                  gauge, of the newest view; only rises
//   muster_coordinator_term                                   gauge
//   muster_coordinator_jobs{state}                            gauge
//   muster_coordinator_view_changes_total{cause}              counter
//   muster_coordinator_view_change_seconds{cause}             histogram, to the first step after it
//   muster_coordinator_directives_total{kind="first"|"again"} counter; "again" is a retransmission
//   muster_coordinator_sessions_closed_total{reason}          counter
//   muster_job_step{job}, muster_job_loss{job}, muster_job_samples_per_second{job}
//                                                             gauges, of the running job only
#ifndef MUSTER_SERVER_RPC_COORDINATOR_METRICS_H_
#define MUSTER_SERVER_RPC_COORDINATOR_METRICS_H_

#include <memory>

#include "absl/strings/string_view.h"
#include "base/control/messages.h"
#include "server/core/coordinator_core.h"

namespace prometheus {
class Registry;
}  // namespace prometheus

namespace muster {

class CoordinatorMetrics {
 public:
  // `registry` must outlive the object.
  explicit CoordinatorMetrics(prometheus::Registry& registry);
  ~CoordinatorMetrics();

  // Sets every gauge from the core.
  void Refresh(const CoordinatorCore& core);
  void CountViewChange(ViewChangeCause cause);
  void ObserveViewChange(ViewChangeCause cause, double seconds);
  void CountDirective(bool again);
  void CountSessionClosed(absl::string_view reason);

 private:
  struct Impl;
  const std::unique_ptr<Impl> impl_;
};

}  // namespace muster

#endif  // MUSTER_SERVER_RPC_COORDINATOR_METRICS_H_
