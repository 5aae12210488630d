#include "client/job_steps.h"

namespace muster {

bool SetSteps(int64_t steps, v1::JobDescription* job) {
  v1::Training* const training = job->mutable_training();
  training->clear_epochs();
  training->set_steps(steps);
  if (training->learning_rate().warmup_steps() < steps) return false;
  training->mutable_learning_rate()->set_warmup_steps(steps / 2);
  return true;
}

}  // namespace muster
