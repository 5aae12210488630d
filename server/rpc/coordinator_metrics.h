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
//   muster_job_communication_path_info{job, transport, provider}
//                                                             gauge, ranks of its view on that path
//   muster_job_straggler_seconds{job, rank, worker}           gauge: holds up others now, for so
//   long muster_job_straggler_seconds_total{job, worker}           counter, the same in all
//                                                             of the newest job that had any
#ifndef MUSTER_SERVER_RPC_COORDINATOR_METRICS_H_
#define MUSTER_SERVER_RPC_COORDINATOR_METRICS_H_

#include <map>
#include <memory>
#include <vector>

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
  // Of the view in force; none: the job is over.
  void SetPaths(const JobId& job,
                const std::map<Rank, std::shared_ptr<const CommunicationPath>>& paths);
  // All that there are now.
  void SetStragglers(const JobId& job, const std::vector<Straggler>& stragglers);
  void CountStraggler(const JobId& job, const WorkerName& worker, double seconds);

 private:
  struct Impl;
  const std::unique_ptr<Impl> impl_;
};

}  // namespace muster

#endif  // MUSTER_SERVER_RPC_COORDINATOR_METRICS_H_
