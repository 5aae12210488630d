// A job as a coordinator shows it, for tests of what people read.
#ifndef MUSTER_TESTS_CLIENT_OUTPUT_RUNNING_JOB_H_
#define MUSTER_TESTS_CLIENT_OUTPUT_RUNNING_JOB_H_

#include <string>

#include "muster/v1/coordinator.pb.h"

namespace muster {

inline v1::ViewChange Change(uint64_t epoch, v1::ViewChangeCause cause, const std::string& worker,
                             double duration_ms) {
  v1::ViewChange change;
  change.set_epoch(epoch);
  change.set_cause(cause);
  if (!worker.empty()) change.add_workers(worker);
  change.set_world_size(3);
  change.set_duration_ms(duration_ms);
  return change;
}

inline v1::Job RunningJob() {
  v1::Job job;
  job.set_id("job-1");
  job.mutable_description()->set_name("mlp");
  job.mutable_description()->mutable_training()->set_global_batch(256);
  job.mutable_description()->mutable_communication()->set_algorithm(v1::Communication::RING);
  job.set_state(v1::JOB_STATE_RUNNING);
  job.set_total_steps(1000);
  v1::Progress* progress = job.mutable_progress();
  progress->set_step(250);
  progress->set_loss(0.34121);
  progress->set_samples_per_second(19'200);
  for (int i = 0; i < 3; ++i) {
    v1::Member* member = job.mutable_view()->add_members();
    member->set_name("worker-" + std::to_string(i));
    member->set_incarnation(0xABCull + static_cast<uint64_t>(i));
  }
  job.mutable_view()->set_epoch(3);
  *job.add_view_changes() = Change(1, v1::VIEW_CHANGE_CAUSE_START, "", 40);
  *job.add_view_changes() = Change(3, v1::VIEW_CHANGE_CAUSE_DEATH, "worker-3", 84.2);
  return job;
}

inline void AddFailedCheckpoint(v1::Job* job, const std::string& error) {
  v1::FailedCheckpoint* failed = job->add_failed_checkpoints();
  failed->set_step(200);
  failed->add_workers("worker-0");
  failed->add_workers("worker-2");
  failed->set_error(error);
}

}  // namespace muster

#endif  // MUSTER_TESTS_CLIENT_OUTPUT_RUNNING_JOB_H_
