#include "proto/convert/job.h"

#include <cmath>
#include <functional>
#include <limits>

#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"
#include "tests/proto/convert/valid_job.h"

namespace muster {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(JobSpecFromProto, KeepsEveryField) {
  const absl::StatusOr<JobSpec> spec = JobSpecFromProto(ValidJob());
  ASSERT_TRUE(spec.ok()) << spec.status();
  JobSpec expected;
  expected.name = "images-1";
  expected.model = MlpSpec{.hidden = {256, 128}};
  expected.data = {.train_images = "/d/i",
                   .train_labels = "/d/l",
                   .test_images = "/t/i",
                   .test_labels = "/t/l",
                   .classes = 7,
                   .mean = 0.25f,
                   .deviation = 0.5f};
  expected.training.steps = 500;
  expected.training.global_batch = 256;
  expected.training.micro_batch = 32;
  expected.training.seed = 42;
  expected.training.optimizer = {
      .rule = SgdSpec{.momentum = 0.9, .nesterov = true},
      .weight_decay = 0.001,
      .groups = {{.tensors = {"fc1.*", "*.bias"}, .weight_decay = 0, .learning_rate_scale = 0.5}}};
  expected.training.learning_rate = {.peak = 0.1,
                                     .schedule = LearningRateSpec::Schedule::kCosine,
                                     .warmup_steps = 20,
                                     .final = 0.01};
  expected.training.clip_norm = 1;
  expected.training.evaluate_every = 100;
  expected.training.max_nonfinite_steps = 3;
  expected.workers = {.min = 2, .start = 4, .max = 8, .start_timeout_ms = 1000};
  expected.checkpoints = {.directory = "/c", .every = 50, .keep = 2, .resume = true};
  expected.communication = {.algorithm = CommunicationSpec::Algorithm::kDirect,
                            .bucket_bytes = 65'536,
                            .timeout_ms = 5'000,
                            .transport = CommunicationSpec::Transport::kSharedMemory};
  // What a strategy leaves open is as in `communication`.
  expected.strategy = {.algorithm = SyncAlgorithm::kDirect,
                       .transport = SyncTransport::kSharedMemory};
  expected.description_json = spec->description_json;
  EXPECT_EQ(*spec, expected);
  EXPECT_THAT(spec->description_json, HasSubstr("\"global_batch\":256"));
}

TEST(JobSpecFromProto, ResolvesDefaults) {
  v1::JobDescription job = ValidJob();
  job.clear_workers();
  job.clear_checkpoints();
  job.clear_communication();
  job.mutable_training()->clear_max_nonfinite_steps();
  job.mutable_training()->mutable_optimizer()->mutable_adamw();
  v1::IdxData* idx = job.mutable_data()->mutable_idx();
  idx->clear_classes();
  idx->clear_mean();
  idx->clear_deviation();
  idx->clear_test_images();
  idx->clear_test_labels();
  const absl::StatusOr<JobSpec> spec = JobSpecFromProto(job);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->workers,
            (WorkersSpec{.min = 1, .start = 1, .max = 1024, .start_timeout_ms = 30'000}));
  EXPECT_EQ(spec->checkpoints, (CheckpointsSpec{.directory = "", .every = 0, .keep = 3}));
  EXPECT_EQ(spec->communication.algorithm, CommunicationSpec::Algorithm::kAutomatic);
  EXPECT_EQ(spec->communication.bucket_bytes, 1 << 20);
  EXPECT_EQ(spec->training.max_nonfinite_steps, 10);
  EXPECT_EQ(std::get<AdamWSpec>(spec->training.optimizer.rule),
            (AdamWSpec{.beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-8}));
  EXPECT_EQ(spec->data.classes, 10);
  EXPECT_EQ(spec->data.mean, 0);
  EXPECT_EQ(spec->data.deviation, 1);
  EXPECT_FALSE(spec->data.has_test());
}

// What the optimizer of a valid job becomes, with `change` made.
template <typename Change>
OptimizerSpec OptimizerWith(const Change& change) {
  v1::JobDescription job = ValidJob();
  job.mutable_training()->mutable_optimizer()->clear_groups();
  change(*job.mutable_training()->mutable_optimizer());
  const absl::StatusOr<JobSpec> spec = JobSpecFromProto(job);
  EXPECT_TRUE(spec.ok()) << spec.status();
  return spec.ok() ? spec->training.optimizer : OptimizerSpec{};
}

TEST(JobSpecFromProto, EveryRuleHasItsDefaultsAndFields) {
  EXPECT_EQ(std::get<LambSpec>(OptimizerWith([](auto& o) { o.mutable_lamb(); }).rule),
            (LambSpec{.beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-6, .always_adapt = false}));
  EXPECT_EQ(std::get<LionSpec>(OptimizerWith([](auto& o) { o.mutable_lion(); }).rule),
            (LionSpec{.beta1 = 0.9, .beta2 = 0.99}));
  EXPECT_EQ(std::get<AdagradSpec>(OptimizerWith([](auto& o) { o.mutable_adagrad(); }).rule),
            (AdagradSpec{.learning_rate_decay = 0, .initial_accumulator = 0, .epsilon = 1e-10}));
  const auto full = [](absl::string_view text) {
    return OptimizerWith([&](v1::Optimizer& optimizer) {
      EXPECT_TRUE(google::protobuf::TextFormat::MergeFromString(std::string(text), &optimizer));
    });
  };
  EXPECT_EQ(std::get<LambSpec>(
                full("lamb { beta1: 0.5 beta2: 0.6 epsilon: 0.1 always_adapt: true }").rule),
            (LambSpec{.beta1 = 0.5, .beta2 = 0.6, .epsilon = 0.1, .always_adapt = true}));
  EXPECT_EQ(std::get<LionSpec>(full("lion { beta1: 0.5 beta2: 0.6 }").rule),
            (LionSpec{.beta1 = 0.5, .beta2 = 0.6}));
  EXPECT_EQ(std::get<AdagradSpec>(full("adagrad { learning_rate_decay: 0.1 epsilon: 0.3 "
                                       "initial_accumulator: 0.2 }")
                                      .rule),
            (AdagradSpec{.learning_rate_decay = 0.1, .initial_accumulator = 0.2, .epsilon = 0.3}));
  EXPECT_EQ(full("groups { tensors: 'fc1.*' tensors: 'x' frozen: true } "
                 "groups { tensors: '*.bias' weight_decay: 0 learning_rate_scale: 0.5 }")
                .groups,
            (std::vector<ParameterGroupSpec>{
                {.tensors = {"fc1.*", "x"}, .frozen = true},
                {.tensors = {"*.bias"}, .weight_decay = 0, .learning_rate_scale = 0.5}}));
}

TEST(JobSpecFromProto, AnySummationOrderIsForChosenAlgorithms) {
  v1::JobDescription job = ValidJob();
  job.mutable_communication()->clear_algorithm();
  job.mutable_communication()->set_summation_order(v1::Communication::CANONICAL);
  EXPECT_EQ(JobSpecFromProto(job)->communication.summation_order,
            CommunicationSpec::SummationOrder::kCanonical);
  job.mutable_communication()->set_summation_order(v1::Communication::ANY);
  EXPECT_EQ(JobSpecFromProto(job)->communication.summation_order,
            CommunicationSpec::SummationOrder::kAny);
  job.mutable_communication()->set_algorithm(v1::Communication::RING);
  EXPECT_THAT(std::string(JobSpecFromProto(job).status().message()),
              StartsWith("communication.summation_order"));
  // Wherever the algorithm is named.
  job.mutable_communication()->clear_algorithm();
  job.mutable_strategy()->set_algorithm(v1::Communication::RING);
  EXPECT_THAT(std::string(JobSpecFromProto(job).status().message()),
              StartsWith("strategy.algorithm: must be absent with communication.summation_order"));
  job.mutable_strategy()->clear_algorithm();
  job.clear_switches();
  job.add_switches()->set_after_step(5);
  job.mutable_switches(0)->mutable_strategy()->set_algorithm(v1::Communication::DIRECT);
  EXPECT_THAT(std::string(JobSpecFromProto(job).status().message()),
              StartsWith("switches[0].strategy.algorithm: must be absent"));
  // Servers choose nothing.
  job.mutable_switches(0)->mutable_strategy()->set_sync(v1::Strategy::PARAMETER_SERVER);
  EXPECT_TRUE(JobSpecFromProto(job).ok()) << JobSpecFromProto(job).status();
}

TEST(JobSpecFromProto, StartDefaultsToMin) {
  v1::JobDescription job = ValidJob();
  job.mutable_workers()->clear_start();
  const absl::StatusOr<JobSpec> spec = JobSpecFromProto(job);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->workers.start, 2);
}

struct BadCase {
  const char* label;
  std::function<void(v1::JobDescription&)> spoil;
  const char* message;  // its beginning
};

class BadJobTest : public ::testing::TestWithParam<BadCase> {};

TEST_P(BadJobTest, IsRefusedByFieldName) {
  v1::JobDescription job = ValidJob();
  GetParam().spoil(job);
  const absl::StatusOr<JobSpec> spec = JobSpecFromProto(job);
  ASSERT_FALSE(spec.ok());
  EXPECT_EQ(spec.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(spec.status().message()), StartsWith(GetParam().message));
}

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

v1::LearningRate* Rate(v1::JobDescription& job) {
  return job.mutable_training()->mutable_learning_rate();
}
v1::Optimizer* Optimizer(v1::JobDescription& job) {
  return job.mutable_training()->mutable_optimizer();
}
v1::ParameterGroup* Group(v1::JobDescription& job) {
  v1::ParameterGroup* group = Optimizer(job)->add_groups();
  group->add_tensors("*.bias");
  return group;
}
v1::IdxData* Idx(v1::JobDescription& job) { return job.mutable_data()->mutable_idx(); }

INSTANTIATE_TEST_SUITE_P(
    Fields, BadJobTest,
    ::testing::Values(
        BadCase{"NoName", [](auto& j) { j.clear_name(); }, "name: must be 1 to 63"},
        BadCase{"LongName", [](auto& j) { j.set_name(std::string(64, 'a')); }, "name: must be"},
        BadCase{"SlashName", [](auto& j) { j.set_name("a/b"); }, "name: must be"},
        BadCase{"DotName", [](auto& j) { j.set_name(".."); }, "name: must be"},
        BadCase{"NoModel", [](auto& j) { j.clear_model(); }, "model: needs one of mlp, cnn"},
        BadCase{"NothingToTie",
                [](auto& j) { j.mutable_model()->mutable_mlp()->set_tie_weights(true); },
                "model.mlp.tie_weights: must be false unless model.mlp.hidden has three or more "
                "widths that read the same from both ends, got true"},
        BadCase{"ZeroWidth", [](auto& j) { j.mutable_model()->mutable_mlp()->set_hidden(1, 0); },
                "model.mlp.hidden[1]: must be 1 to 65536, got 0"},
        BadCase{"ManyLayers",
                [](auto& j) {
                  for (int i = 0; i < 70; ++i) j.mutable_model()->mutable_mlp()->add_hidden(8);
                },
                "model.mlp.hidden: must be a list of 0 to 64, got 72"},
        BadCase{"CnnWithoutChannels", [](auto& j) { j.mutable_model()->mutable_cnn(); },
                "model.cnn.channels: must be a list of 1 to 64, got 0"},
        BadCase{"CnnWithoutHidden",
                [](auto& j) { j.mutable_model()->mutable_cnn()->add_channels(8); },
                "model.cnn.hidden: must be a list of exactly 1, got 0"},
        BadCase{"NoData", [](auto& j) { j.clear_data(); }, "data: needs a source"},
        BadCase{"NoImages", [](auto& j) { Idx(j)->clear_train_images(); },
                "data.idx.train_images: is missing"},
        BadCase{"OneTestFile", [](auto& j) { Idx(j)->clear_test_labels(); },
                "data.idx.test_labels: is missing; give both"},
        BadCase{"ControlCharacter", [](auto& j) { Idx(j)->set_train_labels("a\nb"); },
                "data.idx.train_labels: must be text without control characters, got \"a\\nb\""},
        BadCase{"OneClass", [](auto& j) { Idx(j)->set_classes(1); },
                "data.idx.classes: must be 2 to 256, got 1"},
        BadCase{"NoDeviation", [](auto& j) { Idx(j)->set_deviation(0); },
                "data.idx.deviation: must be a finite number > 0, got 0"},
        BadCase{"NaNMean", [](auto& j) { Idx(j)->set_mean(std::nanf("")); },
                "data.idx.mean: must be a finite number, got nan"},
        BadCase{"StepsAndEpochs", [](auto& j) { j.mutable_training()->set_epochs(1); },
                "training: has both steps and epochs"},
        BadCase{"NeitherStepsNorEpochs", [](auto& j) { j.mutable_training()->set_steps(0); },
                "training: needs steps or epochs"},
        BadCase{"NegativeSteps", [](auto& j) { j.mutable_training()->set_steps(-1); },
                "training.steps: must be 0 to 2147483648, got -1"},
        BadCase{"NaNEpochs", [](auto& j) { j.mutable_training()->set_epochs(kNaN); },
                "training.epochs: must be a finite number >= 0, got nan"},
        BadCase{"NoBatch", [](auto& j) { j.mutable_training()->set_global_batch(0); },
                "training.global_batch: must be 1 to 16777216, got 0"},
        BadCase{"NoMicroBatch", [](auto& j) { j.mutable_training()->set_micro_batch(0); },
                "training.micro_batch: must be 1 to 256, got 0"},
        BadCase{"UnevenBatch", [](auto& j) { j.mutable_training()->set_micro_batch(33); },
                "training.global_batch: must be a multiple of micro_batch (33), got 256"},
        BadCase{"NoOptimizer", [](auto& j) { Optimizer(j)->clear_sgd(); },
                "training.optimizer: needs one of sgd, adamw, lamb, lion, adagrad"},
        BadCase{"MomentumOne", [](auto& j) { Optimizer(j)->mutable_sgd()->set_momentum(1); },
                "training.optimizer.sgd.momentum: must be at least 0 and less than 1, got 1"},
        BadCase{"NesterovAlone", [](auto& j) { Optimizer(j)->mutable_sgd()->set_momentum(0); },
                "training.optimizer.sgd.nesterov: needs a momentum"},
        BadCase{"NaNBeta", [](auto& j) { Optimizer(j)->mutable_adamw()->set_beta2(kNaN); },
                "training.optimizer.adamw.beta2: must be at least 0 and less than 1, got nan"},
        BadCase{"ZeroEpsilon", [](auto& j) { Optimizer(j)->mutable_adamw()->set_epsilon(0); },
                "training.optimizer.adamw.epsilon: must be a finite number > 0, got 0"},
        BadCase{"LambBeta", [](auto& j) { Optimizer(j)->mutable_lamb()->set_beta1(1); },
                "training.optimizer.lamb.beta1: must be at least 0 and less than 1, got 1"},
        BadCase{"LambEpsilon", [](auto& j) { Optimizer(j)->mutable_lamb()->set_epsilon(kNaN); },
                "training.optimizer.lamb.epsilon: must be a finite number > 0, got nan"},
        BadCase{"LionBeta", [](auto& j) { Optimizer(j)->mutable_lion()->set_beta2(-0.1); },
                "training.optimizer.lion.beta2: must be at least 0 and less than 1, got -0.1"},
        BadCase{"AdagradDecay",
                [](auto& j) { Optimizer(j)->mutable_adagrad()->set_learning_rate_decay(-1); },
                "training.optimizer.adagrad.learning_rate_decay: must be a finite number >= 0"},
        BadCase{"AdagradAccumulator",
                [](auto& j) { Optimizer(j)->mutable_adagrad()->set_initial_accumulator(kNaN); },
                "training.optimizer.adagrad.initial_accumulator: must be a finite number >= 0"},
        BadCase{"AdagradEpsilon", [](auto& j) { Optimizer(j)->mutable_adagrad()->set_epsilon(0); },
                "training.optimizer.adagrad.epsilon: must be a finite number > 0, got 0"},
        BadCase{"GroupWithoutTensors", [](auto& j) { Optimizer(j)->add_groups(); },
                "training.optimizer.groups[1].tensors: must be a list of 1 to"},
        BadCase{"GroupOfEmptyPattern",
                [](auto& j) {
                  Group(j);
                  Group(j)->add_tensors("");
                },
                "training.optimizer.groups[2].tensors[1]: is missing"},
        BadCase{"GroupDecay", [](auto& j) { Group(j)->set_weight_decay(-1); },
                "training.optimizer.groups[1].weight_decay: must be a finite number >= 0, got -1"},
        BadCase{"GroupRate", [](auto& j) { Group(j)->set_learning_rate_scale(0); },
                "training.optimizer.groups[1].learning_rate_scale: must be a finite number > 0"},
        BadCase{"FrozenGroupDecay",
                [](auto& j) {
                  v1::ParameterGroup* group = Group(j);
                  group->set_frozen(true);
                  group->set_weight_decay(0);
                },
                "training.optimizer.groups[1].weight_decay: has no meaning for frozen tensors"},
        BadCase{"FrozenGroupRate",
                [](auto& j) {
                  v1::ParameterGroup* group = Group(j);
                  group->set_frozen(true);
                  group->set_learning_rate_scale(2);
                },
                "training.optimizer.groups[1].learning_rate_scale: has no meaning for frozen"},
        BadCase{"NegativeDecay", [](auto& j) { Optimizer(j)->set_weight_decay(-1); },
                "training.optimizer.weight_decay: must be a finite number >= 0, got -1"},
        BadCase{"NaNRate", [](auto& j) { Rate(j)->set_peak(kNaN); },
                "training.learning_rate.peak: must be a finite number > 0, got nan"},
        BadCase{"NegativeRate", [](auto& j) { Rate(j)->set_peak(-0.1); },
                "training.learning_rate.peak: must be a finite number > 0, got -0.1"},
        BadCase{"InfiniteRate", [](auto& j) { Rate(j)->set_peak(kInfinity); },
                "training.learning_rate.peak: must be a finite number > 0, got inf"},
        BadCase{"NoRate", [](auto& j) { j.mutable_training()->clear_learning_rate(); },
                "training.learning_rate.peak: must be a finite number > 0, got 0"},
        BadCase{"FinalAbovePeak", [](auto& j) { Rate(j)->set_final(0.2); },
                "training.learning_rate.final: must be at most the peak (0.1), got 0.2"},
        BadCase{"FinalOfConstant",
                [](auto& j) { Rate(j)->set_schedule(v1::LearningRate::CONSTANT); },
                "training.learning_rate.final: is for the schedules"},
        BadCase{"UnknownSchedule",
                [](auto& j) { Rate(j)->set_schedule(static_cast<v1::LearningRate::Schedule>(9)); },
                "training.learning_rate.schedule: must be CONSTANT, COSINE or LINEAR, got number"},
        BadCase{"AllWarmup", [](auto& j) { Rate(j)->set_warmup_steps(500); },
                "training.learning_rate.warmup_steps: must be less than training.steps (500)"},
        BadCase{"NegativeClip", [](auto& j) { j.mutable_training()->set_clip_norm(-1); },
                "training.clip_norm: must be a finite number >= 0, got -1"},
        BadCase{"NegativeEvaluate", [](auto& j) { j.mutable_training()->set_evaluate_every(-1); },
                "training.evaluate_every: must be 0 to"},
        BadCase{"NoNonfinite", [](auto& j) { j.mutable_training()->set_max_nonfinite_steps(0); },
                "training.max_nonfinite_steps: must be 1 to 1000000, got 0"},
        BadCase{"TooManyWorkers", [](auto& j) { j.mutable_workers()->set_max(1025); },
                "workers.max: must be 1 to 1024, got 1025"},
        BadCase{"NegativeWorkers", [](auto& j) { j.mutable_workers()->set_min(-1); },
                "workers.min: must be 1 to 1024, got -1"},
        BadCase{"MinAboveStart", [](auto& j) { j.mutable_workers()->set_min(5); },
                "workers.start: must be at least workers.min (5), got 4"},
        BadCase{"StartAboveMax", [](auto& j) { j.mutable_workers()->set_max(3); },
                "workers.max: must be at least workers.start (4), got 3"},
        BadCase{"NegativeTimeout", [](auto& j) { j.mutable_workers()->set_start_timeout_ms(-1); },
                "workers.start_timeout_ms: must be 0 to"},
        BadCase{"ResumeFromNowhere", [](auto& j) { j.mutable_checkpoints()->clear_directory(); },
                "checkpoints.resume: needs checkpoints.directory"},
        BadCase{"KeepNone", [](auto& j) { j.mutable_checkpoints()->set_keep(0); },
                "checkpoints.keep: must be 1 to 1000, got 0"},
        BadCase{"SmallBucket", [](auto& j) { j.mutable_communication()->set_bucket_bytes(255); },
                "communication.bucket_bytes: must be 256 to"},
        BadCase{"StageFour", [](auto& j) { j.mutable_strategy()->set_stage(4); },
                "strategy.stage: must be 0 to 3, got 4"},
        BadCase{"ManyReplicas", [](auto& j) { j.mutable_strategy()->set_replicas(9); },
                "strategy.replicas: must be 0 to 8, got 9"},
        BadCase{"ShardsByTree",
                [](auto& j) {
                  j.mutable_strategy()->set_stage(1);
                  j.mutable_strategy()->set_algorithm(v1::Communication::DOUBLE_TREE);
                },
                "strategy.algorithm: must be RING, DIRECT or absent where the state is in shards "
                "(stage above 0), got double-tree"},
        BadCase{"SwitchToTreeOfHalves",
                [](auto& j) {
                  j.mutable_communication()->set_gradients(v1::Communication::BF16);
                  j.add_switches()->set_after_step(5);
                  j.mutable_switches(0)->mutable_strategy()->set_algorithm(
                      v1::Communication::DOUBLE_TREE);
                },
                "switches[0].strategy.algorithm: must be RING, DIRECT, STAR, WINDOW, ONE_SHOT or"},
        BadCase{"WindowOverTcp",
                [](auto& j) {
                  j.mutable_communication()->set_transport(v1::Communication::TCP);
                  j.mutable_strategy()->set_algorithm(v1::Communication::WINDOW);
                },
                "strategy.algorithm: must be another one or absent with a transport other than"},
        BadCase{"SwitchToWindowOverTcp",
                [](auto& j) {
                  j.mutable_communication()->set_transport(v1::Communication::TCP);
                  j.add_switches()->set_after_step(5);
                  j.mutable_switches(0)->mutable_strategy()->set_algorithm(
                      v1::Communication::WINDOW);
                },
                "switches[0].strategy.algorithm: must be another one or absent with a transport"},
        BadCase{"ServersWithoutTheirPath", [](auto& j) { j.mutable_strategy()->set_servers(2); },
                "strategy.servers: must be 0 or absent unless sync is PARAMETER_SERVER, got 2"},
        BadCase{"TooManyServers",
                [](auto& j) {
                  j.mutable_strategy()->set_sync(v1::Strategy::PARAMETER_SERVER);
                  j.mutable_strategy()->set_servers(513);
                },
                "strategy.servers: must be 0 to 512, got 513"},
        BadCase{"MixedWithNobody",
                [](auto& j) {
                  j.mutable_strategy()->set_sync(v1::Strategy::PARAMETER_SERVER);
                  j.mutable_strategy()->set_mixed(true);
                },
                "strategy.mixed: must be false unless there are servers to share with, got true"},
        BadCase{"ServersInStages",
                [](auto& j) {
                  j.mutable_strategy()->set_sync(v1::Strategy::PARAMETER_SERVER);
                  j.mutable_strategy()->set_stage(3);
                },
                "strategy.stage: must be 0 or absent where sync is PARAMETER_SERVER, got 3"},
        BadCase{"ServersByRing",
                [](auto& j) {
                  j.mutable_strategy()->set_sync(v1::Strategy::PARAMETER_SERVER);
                  j.mutable_strategy()->set_algorithm(v1::Communication::RING);
                },
                "strategy.algorithm: must be DIRECT, HIERARCHICAL or absent where sync is "
                "PARAMETER_SERVER, got ring"},
        BadCase{"UnknownSync",
                [](auto& j) {
                  j.mutable_strategy()->set_sync(static_cast<v1::Strategy::Sync>(7));
                },
                "strategy.sync: must be ALL_REDUCE, PARAMETER_SERVER or absent, got number 7"},
        BadCase{"UnknownPrecision",
                [](auto& j) {
                  j.mutable_training()->set_precision(static_cast<v1::Training::Precision>(5));
                },
                "training.precision: must be F32, BF16 or absent, got number 5"},
        BadCase{"RoundedAtEveryHop",
                [](auto& j) {
                  j.mutable_communication()->set_gradients(v1::Communication::BF16);
                  j.mutable_communication()->set_algorithm(v1::Communication::DOUBLE_TREE);
                },
                "strategy.algorithm: must be RING, DIRECT, STAR, WINDOW, ONE_SHOT or absent with "
                "16-bit gradients, which others would round at every hop, got double-tree"},
        BadCase{"RoundedInsideHosts",
                [](auto& j) {
                  j.mutable_communication()->set_gradients(v1::Communication::BF16);
                  j.mutable_strategy()->set_sync(v1::Strategy::PARAMETER_SERVER);
                  j.mutable_strategy()->set_algorithm(v1::Communication::HIERARCHICAL);
                },
                "strategy.algorithm: must be RING, DIRECT, STAR, WINDOW, ONE_SHOT or absent with "
                "16-bit gradients, which others would round at every hop, got hierarchical"},
        BadCase{"SwitchesOutOfOrder",
                [](auto& j) {
                  for (int step : {5, 5}) {
                    j.add_switches()->set_after_step(step);
                    j.mutable_switches(j.switches_size() - 1)->mutable_strategy();
                  }
                },
                "switches[1].after_step: must be 6 to"},
        BadCase{"SwitchToNothing", [](auto& j) { j.add_switches()->set_after_step(5); },
                "switches[0].strategy: is missing"},
        BadCase{"UnknownAlgorithm",
                [](auto& j) {
                  j.mutable_communication()->set_algorithm(
                      static_cast<v1::Communication::Algorithm>(77));
                },
                "communication.algorithm: must be RING, DIRECT, RECURSIVE_DOUBLING, "
                "HALVING_DOUBLING, DOUBLE_TREE, HIERARCHICAL, STAR, WINDOW, ONE_SHOT or absent, "
                "got number 77"},
        BadCase{"UnknownTransport",
                [](auto& j) {
                  j.mutable_communication()->set_transport(
                      static_cast<v1::Communication::Transport>(9));
                },
                "communication.transport: must be TCP, SHARED_MEMORY, LIBFABRIC, GRPC or absent, "
                "got number 9"},
        BadCase{"ProviderOfOtherTransport",
                [](auto& j) { j.mutable_communication()->set_provider("efa"); },
                "communication.provider: needs communication.transport LIBFABRIC"},
        BadCase{"WindowWithoutSharedMemory",
                [](auto& j) {
                  j.mutable_communication()->set_algorithm(v1::Communication::WINDOW);
                  j.mutable_communication()->set_transport(v1::Communication::TCP);
                },
                "communication.algorithm: WINDOW needs communication.transport SHARED_MEMORY"},
        BadCase{"HastyStraggler",
                [](auto& j) { j.mutable_communication()->set_straggler_ms(99); },
                "communication.straggler_ms: must be 100 to"},
        BadCase{"NoTimeout", [](auto& j) { j.mutable_communication()->set_timeout_ms(0); },
                "communication.timeout_ms: must be 100 to"}),
    [](const auto& info) { return std::string(info.param.label); });

JobSpec WithEpochs(double epochs, int32_t batch, int64_t warmup = 0) {
  JobSpec spec;
  spec.training.epochs = epochs;
  spec.training.global_batch = batch;
  spec.training.micro_batch = batch;
  spec.training.learning_rate.warmup_steps = warmup;
  return spec;
}

TEST(ResolveSteps, RoundsUp) {
  EXPECT_EQ(*ResolveSteps(WithEpochs(3, 256), 60'000), 704);  // 703.125
  EXPECT_EQ(*ResolveSteps(WithEpochs(2, 100), 60'000), 1'200);
  EXPECT_EQ(*ResolveSteps(WithEpochs(0.1, 6'000), 60'000), 1);
  EXPECT_EQ(*ResolveSteps(WithEpochs(0.7, 6'000), 60'000), 7);
  EXPECT_EQ(*ResolveSteps(WithEpochs(1e-9, 256), 60'000), 1);
}

TEST(ResolveSteps, GivenStepsNeedNoSamples) {
  JobSpec spec = WithEpochs(0, 256);
  spec.training.steps = 12;
  EXPECT_EQ(*ResolveSteps(spec, 0), 12);
}

TEST(ResolveSteps, RefusesWhatDoesNotFit) {
  EXPECT_THAT(std::string(ResolveSteps(WithEpochs(1, 256), 0).status().message()),
              StartsWith("training.epochs: cannot be turned into steps"));
  EXPECT_THAT(std::string(ResolveSteps(WithEpochs(1e6, 1), int64_t{1} << 40).status().message()),
              StartsWith("training.epochs: 1e+06 passes"));
  EXPECT_THAT(std::string(ResolveSteps(WithEpochs(1, 100, 10), 1'000).status().message()),
              StartsWith("training.learning_rate.warmup_steps: must be less than the 10 steps"));
}

}  // namespace
}  // namespace muster
