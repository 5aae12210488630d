#include "worker/runtime/job_context.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/random.h"
#include "base/status_macros.h"
#include "worker/data/idx_reader.h"

namespace muster {
namespace {

ModelConfig ModelConfigOf(const JobSpec& spec, const DatasetShape& data) {
  ModelConfig config;
  const std::vector<int64_t>& shape = data.feature_shape;  // (channels, rows, columns)
  if (const auto* mlp = std::get_if<MlpSpec>(&spec.model)) {
    config.architecture = MlpConfig{.input = shape[0] * shape[1] * shape[2],
                                    .hidden = {mlp->hidden.begin(), mlp->hidden.end()},
                                    .classes = spec.data.classes,
                                    .tie_weights = mlp->tie_weights};
  } else {
    const CnnSpec& cnn = std::get<CnnSpec>(spec.model);
    config.architecture = CnnConfig{.height = shape[1],
                                    .width = shape[2],
                                    .channels = shape[0],
                                    .conv_channels = {cnn.channels.begin(), cnn.channels.end()},
                                    .hidden = cnn.hidden[0],
                                    .classes = spec.data.classes};
  }
  config.bucket_elements = std::max<int64_t>(
      Layout::kAlignment, spec.communication.bucket_bytes / static_cast<int64_t>(sizeof(float)));
  config.groups = spec.training.optimizer.groups;
  return config;
}

LearningRateSchedule ScheduleOf(LearningRateSpec::Schedule schedule) {
  switch (schedule) {
    case LearningRateSpec::Schedule::kConstant:
      return LearningRateSchedule::kConstant;
    case LearningRateSpec::Schedule::kCosine:
      return LearningRateSchedule::kCosine;
    case LearningRateSpec::Schedule::kLinear:
      return LearningRateSchedule::kLinear;
  }
  return LearningRateSchedule::kConstant;
}

}  // namespace

JobContext::JobContext(JobId id, JobSpec spec) : id_(std::move(id)), spec_(std::move(spec)) {}

absl::StatusOr<std::unique_ptr<JobContext>> JobContext::Create(const JobId& id, const JobSpec& spec,
                                                               FileSystem& files, Device& device,
                                                               bool samples) {
  const IdxDataSpec& data = spec.data;
  const IdxOptions idx{.class_count = data.classes,
                       .normalization = {.mean = data.mean, .standard_deviation = data.deviation}};
  std::unique_ptr<JobContext> context(new JobContext(id, spec));
  if (samples) {
    MUSTER_ASSIGN_OR_RETURN(context->train_,
                            ReadIdxDataset(files, data.train_images, data.train_labels, idx));
    context->data_shape_ = context->train_->shape();
  } else {
    MUSTER_ASSIGN_OR_RETURN(context->data_shape_, ReadIdxShape(files, data.train_images, idx));
  }
  if (samples && data.has_test()) {
    MUSTER_ASSIGN_OR_RETURN(context->test_,
                            ReadIdxDataset(files, data.test_images, data.test_labels, idx));
    if (context->test_->feature_shape() != context->train_->feature_shape()) {
      return absl::InvalidArgumentError(absl::StrCat(
          data.test_images, ": images have another size than those of ", data.train_images));
    }
  }
  MUSTER_ASSIGN_OR_RETURN(const Step steps, ResolveSteps(spec, context->data_shape_.size));
  const LearningRateSpec& rate = spec.training.learning_rate;
  context->learning_rate_ = {.schedule = ScheduleOf(rate.schedule),
                             .peak = rate.peak,
                             .final = rate.final,
                             .warmup_steps = rate.warmup_steps,
                             .total_steps = steps};
  MUSTER_RETURN_IF_ERROR(Annotate(Validate(context->learning_rate_), "training.learning_rate"));
  context->plan_ = {.seed = spec.training.seed,
                    .sample_count = context->data_shape_.size,
                    .micro_batch_size = spec.training.micro_batch,
                    .micro_batches_per_step = spec.training.micro_batches_per_step()};
  MUSTER_RETURN_IF_ERROR(Annotate(context->plan_.Validate(), "training"));
  MUSTER_ASSIGN_OR_RETURN(context->model_,
                          CreateModel(ModelConfigOf(spec, context->data_shape_), device));
  MUSTER_ASSIGN_OR_RETURN(context->rule_, UpdateRule::Create(RuleOptionsOf(spec.training.optimizer),
                                                             context->model_->layout()));
  // Buckets may change between runs; names, shapes, data and what the numbers depend on may not.
  std::string text = absl::StrCat("v1 ", context->data_shape_.size, " ", data.classes, " ",
                                  spec.training.global_batch, " ", spec.training.micro_batch, " ",
                                  spec.training.seed, " ", Describe(spec.training.optimizer), " ",
                                  data.mean, " ", data.deviation);
  for (const Tensor& tensor : context->layout().tensors()) {
    absl::StrAppend(&text, ";", tensor.spec.name);
    for (const int64_t extent : tensor.spec.shape) absl::StrAppend(&text, ",", extent);
  }
  context->fingerprint_ = StableHash(text);
  return context;
}

}  // namespace muster
