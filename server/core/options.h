// Times and limits of the coordinator's core. Plain values; *_main.cc fills them from flags.
#ifndef MUSTER_SERVER_CORE_OPTIONS_H_
#define MUSTER_SERVER_CORE_OPTIONS_H_

#include <string>

#include "absl/time/time.h"
#include "base/control/rules.h"
#include "base/ids.h"

namespace muster {

struct CoordinatorOptions {
  // Names the fleet; used when the persistent state holds none yet. Workers of another fleet are
  // refused.
  std::string fleet_id = "muster";

  absl::Duration heartbeat = absl::Milliseconds(250);
  absl::Duration lease = absl::Seconds(2);

  // A worker without a coordinator trains on for this long. The coordinator waits for it and the
  // margin before it starts again from a checkpoint when every member is silent (rule 5).
  absl::Duration orphan_timeout = absl::Seconds(60);
  absl::Duration orphan_margin = absl::Seconds(5);

  // How long a worker whose session broke may take to come back while a proposal waits for it.
  absl::Duration reattach_grace = absl::Milliseconds(100);
  // After the last answer, when somebody was lost: wait this long for further deaths.
  absl::Duration collect_window = absl::Milliseconds(10);
  // After the first learner has caught up: wait this long for others before pausing the fleet.
  absl::Duration pause_batch = absl::Milliseconds(200);
  // A learner that does not answer a proposal within this goes back to learning.
  absl::Duration learner_answer_timeout = absl::Seconds(5);
  // The last member drains only after its state is durable, or after this.
  absl::Duration drain_checkpoint_timeout = absl::Seconds(60);
  // A directive that a worker visibly has not followed is sent again after this.
  absl::Duration retransmit_after = absl::Milliseconds(500);
  // Largest back-off of a worker that reconnects; with the lease, the grace after a restart.
  absl::Duration largest_backoff = absl::Seconds(5);

  // A link that breaks this often within the window evicts one of its ends (rule 14); 0: never.
  int link_faults_before_eviction = 3;
  absl::Duration link_fault_window = absl::Seconds(30);
  // So many views in a row of the same members that break before their first step end the job: what
  // ails it is not a link.
  int fruitless_views = 30;

  // Of jobs whose strategy is chosen here: it is left for one that takes this much less of its
  // time, after so many steps, twice as many after each change.
  double strategy_gain = 0.1;
  Step strategy_steps = 20;

  // Limits.
  int max_workers = 1024;  // known at once, idle ones included
  int max_jobs = 256;      // queued and remembered ones
  int max_remembered_evictions = 4096;

  ProtocolRules rules;
};

}  // namespace muster

#endif  // MUSTER_SERVER_CORE_OPTIONS_H_
