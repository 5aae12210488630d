// A job as the domain sees it: the proto JobDescription with every default resolved and every field
// checked (proto/convert/job.h makes it). Plain values; no field needs checking again, save what
// depends on the data (ResolveSteps) or on the model's input (worker/model).
#ifndef MUSTER_BASE_JOB_SPEC_H_
#define MUSTER_BASE_JOB_SPEC_H_

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "base/control/strategy.h"
#include "base/dtype.h"
#include "base/ids.h"

namespace muster {

// Fully connected layers with ReLU between them; none hidden makes a linear classifier.
struct MlpSpec {
  std::vector<int32_t> hidden;
  bool tie_weights = false;  // then `hidden` has at least three and reads the same from both ends
  bool operator==(const MlpSpec&) const = default;
};

// (3x3 convolution, ReLU, 2x2 max-pooling) per entry of `channels`, then one hidden layer.
struct CnnSpec {
  std::vector<int32_t> channels;
  std::vector<int32_t> hidden;  // exactly one
  bool operator==(const CnnSpec&) const = default;
};

using ModelSpec = std::variant<MlpSpec, CnnSpec>;

struct IdxDataSpec {
  std::string train_images;
  std::string train_labels;
  std::string test_images;  // empty, as test_labels, if there is no evaluation
  std::string test_labels;
  int32_t classes = 10;
  float mean = 0;
  float deviation = 1;
  bool has_test() const { return !test_images.empty(); }
  bool operator==(const IdxDataSpec&) const = default;
};

struct SgdSpec {
  double momentum = 0;
  bool nesterov = false;
  bool operator==(const SgdSpec&) const = default;
};

struct AdamWSpec {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  bool operator==(const AdamWSpec&) const = default;
};

struct LambSpec {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-6;
  bool always_adapt = false;
  bool operator==(const LambSpec&) const = default;
};

struct LionSpec {
  double beta1 = 0.9;
  double beta2 = 0.99;
  bool operator==(const LionSpec&) const = default;
};

struct AdagradSpec {
  double learning_rate_decay = 0;
  double initial_accumulator = 0;
  double epsilon = 1e-10;
  bool operator==(const AdagradSpec&) const = default;
};

// What is different for some tensors. state/parameter_groups.h says which tensors a pattern names
// and which group a tensor is in.
struct ParameterGroupSpec {
  std::vector<std::string> tensors;    // patterns of names; never empty
  std::optional<double> weight_decay;  // instead of the optimizer's, on biases and norms, too
  double learning_rate_scale = 1;      // > 0
  bool frozen = false;                 // then nothing else is set
  bool operator==(const ParameterGroupSpec&) const = default;
};

struct OptimizerSpec {
  std::variant<SgdSpec, AdamWSpec, LambSpec, LionSpec, AdagradSpec> rule;
  double weight_decay = 0;
  std::vector<ParameterGroupSpec> groups;
  bool operator==(const OptimizerSpec&) const = default;
};

struct LearningRateSpec {
  enum class Schedule : uint8_t { kConstant, kCosine, kLinear };
  double peak = 0;
  Schedule schedule = Schedule::kConstant;
  int64_t warmup_steps = 0;
  double final = 0;
  bool operator==(const LearningRateSpec&) const = default;
};

struct TrainingSpec {
  Step steps = 0;            // 0: given by `epochs`
  double epochs = 0;         // passes over the training set; 0: given by `steps`
  int32_t global_batch = 0;  // samples per step, a multiple of micro_batch
  int32_t micro_batch = 0;
  uint64_t seed = 0;
  OptimizerSpec optimizer;
  LearningRateSpec learning_rate;
  double clip_norm = 0;           // 0: none
  DType precision = DType::kF32;  // of compute's parameters and of gradients: kF32 or kBF16
  int64_t evaluate_every = 0;     // steps; 0: only at the end
  int32_t max_nonfinite_steps = 10;
  int32_t micro_batches_per_step() const { return global_batch / micro_batch; }
  bool operator==(const TrainingSpec&) const = default;
};

struct WorkersSpec {
  int32_t min = 1;
  int32_t start = 1;
  int32_t max = 1024;
  int64_t start_timeout_ms = 30'000;
  bool operator==(const WorkersSpec&) const = default;
};

struct CheckpointsSpec {
  std::string directory;  // empty: no checkpoints
  int64_t every = 0;      // steps; 0: only at the end
  int32_t keep = 3;
  bool resume = false;
  bool operator==(const CheckpointsSpec&) const = default;
};

// How a worker's contribution to a gradient is coded on its way (worker/compression).
struct GradientCompression {
  enum class Kind : uint8_t { kNone, kInt8, kTopK };
  Kind kind = Kind::kNone;
  double top_k_fraction = 0;  // of kTopK; in (0, 1]
  bool operator==(const GradientCompression&) const = default;
};

struct CommunicationSpec {
  using Algorithm = SyncAlgorithm;
  Algorithm algorithm = Algorithm::kAutomatic;
  int64_t bucket_bytes = 1 << 20;
  int64_t timeout_ms = 30'000;
  using Transport = SyncTransport;
  Transport transport = Transport::kAutomatic;
  int64_t straggler_ms = 0;  // 0: by the steps' duration
  std::string provider;      // of kLibfabric; empty: any
  enum class SummationOrder : uint8_t { kCanonical, kAny };
  SummationOrder summation_order = SummationOrder::kCanonical;
  DType gradients = DType::kF32;  // or kBF16, kF16; kBF16 with that precision
  // Then `gradients` is kBF16, the type of the sums.
  GradientCompression compression;
  bool operator==(const CommunicationSpec&) const = default;
};

struct JobSpec {
  std::string name;
  ModelSpec model;
  IdxDataSpec data;
  TrainingSpec training;
  WorkersSpec workers;
  CheckpointsSpec checkpoints;
  CommunicationSpec communication;
  Strategy strategy;                     // at the start
  bool automatic = false;                // the coordinator chooses it (AskedStrategy)
  std::vector<StrategySwitch> switches;  // in rising order of steps
  // The description as JSON on one line, UTF-8: what a checkpoint keeps of its job.
  std::string description_json;
  bool operator==(const JobSpec&) const = default;
};

// Largest number of steps a job may have (worker/core/batch_plan.h: kMaxStep).
inline constexpr Step kMaxJobSteps = int64_t{1} << 31;

// The number of steps of the job: `steps`, or enough of them for `epochs` passes over
// `sample_count` samples, rounded up, at least one. INVALID_ARGUMENT names the field if that is
// more than kMaxJobSteps, leaves no step after training.learning_rate.warmup_steps or a switch, or
// if there is no sample.
absl::StatusOr<Step> ResolveSteps(const JobSpec& spec, int64_t sample_count);

}  // namespace muster

#endif  // MUSTER_BASE_JOB_SPEC_H_
