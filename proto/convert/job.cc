#include "proto/convert/job.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "google/protobuf/util/json_util.h"
#include "proto/convert/control.h"
#include "proto/convert/field.h"
#include "proto/convert/optimizer.h"
#include "proto/convert/strategy.h"

namespace muster {
namespace {

constexpr int kMaxLayers = 64;
constexpr int32_t kMaxWidth = 65'536;
constexpr int32_t kMaxChannels = 4'096;
constexpr int32_t kMaxClasses = 256;  // labels are bytes
constexpr int32_t kMaxGlobalBatch = 1 << 24;
constexpr double kMaxEpochs = 1e6;
constexpr int32_t kMaxWorkers = kMaxMembers;
constexpr int64_t kDayMs = 86'400'000;
constexpr int64_t kHourMs = 3'600'000;
constexpr int64_t kLeastBucketBytes = 256;  // Layout::kAlignment elements of f32
constexpr int64_t kMaxBucketBytes = 1 << 30;
constexpr double kUsualTopKFraction = 0.01;
constexpr double kLeastTopKFraction = 0.001;  // one of a block of 1024
constexpr double kMostTopKFraction = 0.5;
constexpr int64_t kLeastStragglerMs = 100;  // waits are looked at this often
constexpr int32_t kMaxKeptCheckpoints = 1'000;
constexpr int kMaxSwitches = 1'000;

template <typename Repeated>
absl::StatusOr<std::vector<int32_t>> Widths(absl::string_view path, const Repeated& values,
                                            int least_count, int most_count, int32_t most) {
  if (values.size() < least_count || values.size() > most_count) {
    return FieldError(path,
                      least_count == most_count
                          ? absl::StrFormat("a list of exactly %d", least_count)
                          : absl::StrFormat("a list of %d to %d", least_count, most_count),
                      absl::StrCat(values.size()));
  }
  for (int i = 0; i < values.size(); ++i) {
    MUSTER_RETURN_IF_ERROR(CheckRange(absl::StrFormat("%s[%d]", path, i), values[i], 1, most));
  }
  return std::vector<int32_t>(values.begin(), values.end());
}

absl::StatusOr<ModelSpec> ConvertModel(const v1::Model& model) {
  switch (model.architecture_case()) {
    case v1::Model::kMlp: {
      MlpSpec mlp;
      MUSTER_ASSIGN_OR_RETURN(
          mlp.hidden, Widths("model.mlp.hidden", model.mlp().hidden(), 0, kMaxLayers, kMaxWidth));
      mlp.tie_weights = model.mlp().tie_weights();
      if (mlp.tie_weights &&
          (mlp.hidden.size() < 3 ||
           !std::equal(mlp.hidden.begin(), mlp.hidden.end(), mlp.hidden.rbegin()))) {
        return FieldError("model.mlp.tie_weights",
                          "false unless model.mlp.hidden has three or more widths that read the "
                          "same from both ends",
                          "true");
      }
      return mlp;
    }
    case v1::Model::kCnn: {
      CnnSpec cnn;
      MUSTER_ASSIGN_OR_RETURN(cnn.channels, Widths("model.cnn.channels", model.cnn().channels(), 1,
                                                   kMaxLayers, kMaxChannels));
      MUSTER_ASSIGN_OR_RETURN(cnn.hidden,
                              Widths("model.cnn.hidden", model.cnn().hidden(), 1, 1, kMaxWidth));
      return cnn;
    }
    case v1::Model::ARCHITECTURE_NOT_SET:
      break;
  }
  return absl::InvalidArgumentError("model: needs one of mlp, cnn");
}

absl::StatusOr<IdxDataSpec> ConvertData(const v1::Data& data) {
  if (data.source_case() != v1::Data::kIdx) {
    return absl::InvalidArgumentError("data: needs a source: idx");
  }
  const v1::IdxData& idx = data.idx();
  MUSTER_RETURN_IF_ERROR(
      CheckText("data.idx.train_images", idx.train_images(), kMaxPathBytes, /*required=*/true));
  MUSTER_RETURN_IF_ERROR(
      CheckText("data.idx.train_labels", idx.train_labels(), kMaxPathBytes, /*required=*/true));
  MUSTER_RETURN_IF_ERROR(CheckText("data.idx.test_images", idx.test_images(), kMaxPathBytes));
  MUSTER_RETURN_IF_ERROR(CheckText("data.idx.test_labels", idx.test_labels(), kMaxPathBytes));
  if (idx.test_images().empty() != idx.test_labels().empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("data.idx.", idx.test_images().empty() ? "test_images" : "test_labels",
                     ": is missing; give both test_images and test_labels, or neither"));
  }
  IdxDataSpec spec;
  spec.train_images = idx.train_images();
  spec.train_labels = idx.train_labels();
  spec.test_images = idx.test_images();
  spec.test_labels = idx.test_labels();
  if (idx.classes() != 0) spec.classes = idx.classes();
  MUSTER_RETURN_IF_ERROR(CheckRange("data.idx.classes", spec.classes, 2, kMaxClasses));
  if (idx.has_mean()) spec.mean = idx.mean();
  MUSTER_RETURN_IF_ERROR(CheckFinite("data.idx.mean", spec.mean));
  if (idx.has_deviation()) spec.deviation = idx.deviation();
  MUSTER_RETURN_IF_ERROR(CheckFinitePositive("data.idx.deviation", spec.deviation));
  return spec;
}

absl::StatusOr<TrainingSpec> ConvertTraining(const v1::Training& training) {
  TrainingSpec spec;
  MUSTER_RETURN_IF_ERROR(CheckRange("training.steps", training.steps(), 0, kMaxJobSteps));
  MUSTER_RETURN_IF_ERROR(CheckFiniteAtLeastZero("training.epochs", training.epochs()));
  if ((training.steps() != 0) == (training.epochs() != 0)) {
    return absl::InvalidArgumentError(training.steps() != 0
                                          ? "training: has both steps and epochs, give one of them"
                                          : "training: needs steps or epochs");
  }
  if (training.epochs() > kMaxEpochs) {
    return FieldError("training.epochs", absl::StrFormat("at most %g", kMaxEpochs),
                      absl::StrFormat("%g", training.epochs()));
  }
  spec.steps = training.steps();
  spec.epochs = training.epochs();
  MUSTER_RETURN_IF_ERROR(
      CheckRange("training.global_batch", training.global_batch(), 1, kMaxGlobalBatch));
  MUSTER_RETURN_IF_ERROR(
      CheckRange("training.micro_batch", training.micro_batch(), 1, training.global_batch()));
  if (training.global_batch() % training.micro_batch() != 0) {
    return FieldError("training.global_batch",
                      absl::StrFormat("a multiple of micro_batch (%d)", training.micro_batch()),
                      absl::StrCat(training.global_batch()));
  }
  spec.global_batch = training.global_batch();
  spec.micro_batch = training.micro_batch();
  spec.seed = training.seed();
  MUSTER_ASSIGN_OR_RETURN(spec.optimizer,
                          OptimizerSpecFromProto(training.optimizer(), "training.optimizer"));
  MUSTER_ASSIGN_OR_RETURN(spec.learning_rate, LearningRateSpecFromProto(training.learning_rate(),
                                                                        "training.learning_rate"));
  if (spec.steps != 0 && spec.learning_rate.warmup_steps >= spec.steps) {
    return FieldError("training.learning_rate.warmup_steps",
                      absl::StrFormat("less than training.steps (%d)", spec.steps),
                      absl::StrCat(spec.learning_rate.warmup_steps));
  }
  MUSTER_RETURN_IF_ERROR(CheckFiniteAtLeastZero("training.clip_norm", training.clip_norm()));
  spec.clip_norm = training.clip_norm();
  switch (training.precision()) {
    case v1::Training::PRECISION_UNSPECIFIED:
    case v1::Training::F32:
      break;
    case v1::Training::BF16:
      spec.precision = DType::kBF16;
      break;
    default:
      return FieldError("training.precision", "F32, BF16 or absent",
                        absl::StrCat("number ", static_cast<int>(training.precision())));
  }
  MUSTER_RETURN_IF_ERROR(
      CheckRange("training.evaluate_every", training.evaluate_every(), 0, kMaxJobSteps));
  spec.evaluate_every = training.evaluate_every();
  if (training.has_max_nonfinite_steps()) {
    spec.max_nonfinite_steps = training.max_nonfinite_steps();
  }
  MUSTER_RETURN_IF_ERROR(
      CheckRange("training.max_nonfinite_steps", spec.max_nonfinite_steps, 1, 1'000'000));
  return spec;
}

absl::StatusOr<WorkersSpec> ConvertWorkers(const v1::Workers& workers) {
  WorkersSpec spec;
  if (workers.min() != 0) spec.min = workers.min();
  spec.start = workers.start() != 0 ? workers.start() : spec.min;
  if (workers.max() != 0) spec.max = workers.max();
  if (workers.has_start_timeout_ms()) spec.start_timeout_ms = workers.start_timeout_ms();
  MUSTER_RETURN_IF_ERROR(CheckRange("workers.min", spec.min, 1, kMaxWorkers));
  MUSTER_RETURN_IF_ERROR(CheckRange("workers.start", spec.start, 1, kMaxWorkers));
  MUSTER_RETURN_IF_ERROR(CheckRange("workers.max", spec.max, 1, kMaxWorkers));
  if (spec.start < spec.min) {
    return FieldError("workers.start", absl::StrFormat("at least workers.min (%d)", spec.min),
                      absl::StrCat(spec.start));
  }
  if (spec.max < spec.start) {
    return FieldError("workers.max", absl::StrFormat("at least workers.start (%d)", spec.start),
                      absl::StrCat(spec.max));
  }
  MUSTER_RETURN_IF_ERROR(CheckRange("workers.start_timeout_ms", spec.start_timeout_ms, 0, kDayMs));
  return spec;
}

absl::StatusOr<CheckpointsSpec> ConvertCheckpoints(const v1::Checkpoints& checkpoints) {
  CheckpointsSpec spec;
  MUSTER_RETURN_IF_ERROR(
      CheckText("checkpoints.directory", checkpoints.directory(), kMaxPathBytes));
  spec.directory = checkpoints.directory();
  MUSTER_RETURN_IF_ERROR(CheckRange("checkpoints.every", checkpoints.every(), 0, kMaxJobSteps));
  spec.every = checkpoints.every();
  if (checkpoints.has_keep()) spec.keep = checkpoints.keep();
  MUSTER_RETURN_IF_ERROR(CheckRange("checkpoints.keep", spec.keep, 1, kMaxKeptCheckpoints));
  spec.resume = checkpoints.resume();
  if (spec.directory.empty() && (spec.resume || spec.every != 0)) {
    return absl::InvalidArgumentError(absl::StrCat("checkpoints.", spec.resume ? "resume" : "every",
                                                   ": needs checkpoints.directory"));
  }
  return spec;
}

absl::StatusOr<CommunicationSpec> ConvertCommunication(const v1::Communication& communication) {
  CommunicationSpec spec;
  MUSTER_ASSIGN_OR_RETURN(spec.algorithm,
                          ConvertAlgorithm(communication.algorithm(), SyncAlgorithm::kAutomatic,
                                           "communication.algorithm"));
  MUSTER_ASSIGN_OR_RETURN(spec.transport,
                          ConvertTransport(communication.transport(), SyncTransport::kAutomatic,
                                           "communication.transport"));
  switch (communication.summation_order()) {
    case v1::Communication::SUMMATION_ORDER_UNSPECIFIED:
    case v1::Communication::CANONICAL:
      break;
    case v1::Communication::ANY:
      if (spec.algorithm != CommunicationSpec::Algorithm::kAutomatic) {
        return FieldError("communication.summation_order",
                          "CANONICAL or absent where communication.algorithm is given", "ANY");
      }
      spec.summation_order = CommunicationSpec::SummationOrder::kAny;
      break;
    default:
      return FieldError("communication.summation_order", "CANONICAL, ANY or absent",
                        absl::StrCat("number ", static_cast<int>(communication.summation_order())));
  }
  if (communication.has_bucket_bytes()) spec.bucket_bytes = communication.bucket_bytes();
  MUSTER_RETURN_IF_ERROR(CheckRange("communication.bucket_bytes", spec.bucket_bytes,
                                    kLeastBucketBytes, kMaxBucketBytes));
  if (communication.has_timeout_ms()) spec.timeout_ms = communication.timeout_ms();
  MUSTER_RETURN_IF_ERROR(CheckRange("communication.timeout_ms", spec.timeout_ms, 100, kHourMs));
  MUSTER_RETURN_IF_ERROR(
      CheckText("communication.provider", communication.provider(), kMaxNameBytes));
  spec.provider = communication.provider();
  if (!spec.provider.empty() && spec.transport != CommunicationSpec::Transport::kLibfabric) {
    return absl::InvalidArgumentError(
        "communication.provider: needs communication.transport LIBFABRIC");
  }
  if (spec.algorithm == CommunicationSpec::Algorithm::kWindow &&
      spec.transport != CommunicationSpec::Transport::kAutomatic &&
      spec.transport != CommunicationSpec::Transport::kSharedMemory) {
    return absl::InvalidArgumentError(
        "communication.algorithm: WINDOW needs communication.transport SHARED_MEMORY");
  }
  switch (communication.gradients()) {
    case v1::Communication::GRADIENT_TYPE_UNSPECIFIED:
    case v1::Communication::F32:
      break;
    case v1::Communication::BF16:
      spec.gradients = DType::kBF16;
      break;
    case v1::Communication::F16:
      spec.gradients = DType::kF16;
      break;
    case v1::Communication::INT8:
      spec.gradients = DType::kBF16;
      spec.compression.kind = GradientCompression::Kind::kInt8;
      break;
    case v1::Communication::TOP_K:
      spec.gradients = DType::kBF16;
      spec.compression = {.kind = GradientCompression::Kind::kTopK,
                          .top_k_fraction = communication.has_top_k_fraction()
                                                ? communication.top_k_fraction()
                                                : kUsualTopKFraction};
      break;
    default:
      return FieldError("communication.gradients", "F32, BF16, F16, INT8, TOP_K or absent",
                        absl::StrCat("number ", static_cast<int>(communication.gradients())));
  }
  const bool keeps_largest = spec.compression.kind == GradientCompression::Kind::kTopK;
  if (communication.has_top_k_fraction() && !keeps_largest) {
    return FieldError("communication.top_k_fraction",
                      "absent unless communication.gradients is TOP_K",
                      absl::StrCat(communication.top_k_fraction()));
  }
  // Negated, so that NaN is refused.
  if (const double fraction = spec.compression.top_k_fraction;
      keeps_largest && !(fraction >= kLeastTopKFraction && fraction <= kMostTopKFraction)) {
    return FieldError("communication.top_k_fraction",
                      absl::StrCat(kLeastTopKFraction, " to ", kMostTopKFraction,
                                   " (beyond, gradients BF16 are as few bytes)"),
                      absl::StrCat(fraction));
  }
  spec.straggler_ms = communication.straggler_ms();
  if (spec.straggler_ms != 0) {
    MUSTER_RETURN_IF_ERROR(
        CheckRange("communication.straggler_ms", spec.straggler_ms, kLeastStragglerMs, kHourMs));
  }
  return spec;
}

absl::StatusOr<std::vector<StrategySwitch>> ConvertSwitches(const v1::JobDescription& description,
                                                            const Strategy& defaults) {
  std::vector<StrategySwitch> switches;
  MUSTER_RETURN_IF_ERROR(CheckRange("switches.size", description.switches_size(), 0, kMaxSwitches));
  for (int i = 0; i < description.switches_size(); ++i) {
    const std::string path = absl::StrFormat("switches[%d]", i);
    const v1::Switch& change = description.switches(i);
    const Step least = switches.empty() ? 1 : switches.back().after + 1;
    MUSTER_RETURN_IF_ERROR(
        CheckRange(Field(path, "after_step"), change.after_step(), least, kMaxJobSteps));
    if (!change.has_strategy()) return MissingField(Field(path, "strategy"));
    StrategySwitch result{.after = change.after_step()};
    MUSTER_ASSIGN_OR_RETURN(
        const AskedStrategy asked,
        AskedStrategyFromProto(change.strategy(), defaults, Field(path, "strategy")));
    result.strategy = asked.strategy;
    result.automatic = asked.automatic;
    switches.push_back(result);
  }
  return switches;
}

}  // namespace

absl::StatusOr<JobSpec> JobSpecFromProto(const v1::JobDescription& description) {
  JobSpec spec;
  MUSTER_RETURN_IF_ERROR(CheckName("name", description.name()));
  spec.name = description.name();
  MUSTER_ASSIGN_OR_RETURN(spec.model, ConvertModel(description.model()));
  MUSTER_ASSIGN_OR_RETURN(spec.data, ConvertData(description.data()));
  MUSTER_ASSIGN_OR_RETURN(spec.training, ConvertTraining(description.training()));
  MUSTER_ASSIGN_OR_RETURN(spec.workers, ConvertWorkers(description.workers()));
  MUSTER_ASSIGN_OR_RETURN(spec.checkpoints, ConvertCheckpoints(description.checkpoints()));
  MUSTER_ASSIGN_OR_RETURN(spec.communication, ConvertCommunication(description.communication()));
  if (spec.training.precision == DType::kBF16) {
    const v1::Communication::GradientType type = description.communication().gradients();
    // Whatever is sent, sums are of the type of the parameters.
    const bool fits = type == v1::Communication::GRADIENT_TYPE_UNSPECIFIED ||
                      spec.communication.gradients == DType::kBF16;
    if (!fits) {
      return FieldError("communication.gradients",
                        "BF16, INT8, TOP_K or absent with training.precision BF16",
                        v1::Communication::GradientType_Name(type));
    }
    spec.communication.gradients = DType::kBF16;
  }
  const Strategy defaults{.algorithm = spec.communication.algorithm,
                          .transport = spec.communication.transport};
  MUSTER_ASSIGN_OR_RETURN(const AskedStrategy asked,
                          AskedStrategyFromProto(description.strategy(), defaults, "strategy"));
  spec.strategy = asked.strategy;
  spec.automatic = asked.automatic;
  MUSTER_ASSIGN_OR_RETURN(spec.switches, ConvertSwitches(description, defaults));
  MUSTER_RETURN_IF_ERROR(CheckStrategy(spec, spec.strategy, "strategy"));
  for (size_t i = 0; i < spec.switches.size(); ++i) {
    MUSTER_RETURN_IF_ERROR(CheckStrategy(spec, spec.switches[i].strategy,
                                         absl::StrFormat("switches[%d].strategy", i)));
  }
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  const auto status =
      google::protobuf::util::MessageToJsonString(description, &spec.description_json, options);
  if (!status.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the description cannot be written as JSON: ", status.ToString()));
  }
  return spec;
}

}  // namespace muster
