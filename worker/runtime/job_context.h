// Everything a worker needs of one job that does not change while it runs: data, model, rule, plan.
#ifndef MUSTER_WORKER_RUNTIME_JOB_CONTEXT_H_
#define MUSTER_WORKER_RUNTIME_JOB_CONTEXT_H_

#include <memory>
#include <optional>

#include "absl/status/statusor.h"
#include "base/file.h"
#include "base/ids.h"
#include "base/job_spec.h"
#include "state/step_scalars.h"
#include "state/update_rule.h"
#include "worker/core/batch_plan.h"
#include "worker/data/dataset.h"
#include "worker/device/device.h"
#include "worker/model/model.h"

namespace muster {

// Immutable but for the model's scratch, which belongs to the training thread.
class JobContext {
 public:
  // Reads the data (`samples`; otherwise its shape alone) and builds the model. Errors name the
  // file or the field of the job. `files` and `device` must outlive the object.
  static absl::StatusOr<std::unique_ptr<JobContext>> Create(const JobId& id, const JobSpec& spec,
                                                            FileSystem& files, Device& device,
                                                            bool samples = true);

  const JobId& id() const { return id_; }
  const JobSpec& spec() const { return spec_; }
  const DatasetShape& data_shape() const { return data_shape_; }
  bool has_test() const { return spec_.data.has_test(); }
  // Require: samples were read.
  const Dataset& train() const { return *train_; }
  const Dataset& test() const { return *test_; }  // requires: has_test()
  Model& model() { return *model_; }
  const Layout& layout() const { return model_->layout(); }
  const UpdateRule& rule() const { return *rule_; }
  const BatchPlan& plan() const { return plan_; }
  const LearningRateOptions& learning_rate() const { return learning_rate_; }
  Step total_steps() const { return learning_rate_.total_steps; }
  // Of what must not change between the runs of a job that share checkpoints: model, data, batches,
  // seed, optimizer.
  uint64_t fingerprint() const { return fingerprint_; }

 private:
  JobContext(JobId id, JobSpec spec);

  const JobId id_;
  const JobSpec spec_;
  DatasetShape data_shape_;
  std::optional<Dataset> train_;
  std::optional<Dataset> test_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<UpdateRule> rule_;
  BatchPlan plan_;
  LearningRateOptions learning_rate_;
  uint64_t fingerprint_ = 0;
};

}  // namespace muster

#endif  // MUSTER_WORKER_RUNTIME_JOB_CONTEXT_H_
