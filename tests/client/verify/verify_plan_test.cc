#include "client/verify/verify_plan.h"

#include <set>

#include "client/job_file.h"
#include "client/job_steps.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

v1::JobDescription Example() {
  v1::JobDescription job = ReadJobFile("examples/fashion-mnist-mlp.yaml").value();
  SetSteps(50, &job);
  return job;
}

VerifyPlanOptions Options() {
  return {.workers = 4,
          .servers = 2,
          .steps = 50,
          .seed = 1,
          .transports = {SyncTransport::kTcp, SyncTransport::kSharedMemory}};
}

std::vector<std::string> Names(const std::vector<VerifyRun>& runs) {
  std::vector<std::string> names;
  for (const VerifyRun& run : runs) names.push_back(run.name);
  return names;
}

std::vector<Strategy> StrategiesOf(const std::vector<VerifyRun>& runs) {
  std::vector<Strategy> strategies;
  for (const VerifyRun& run : runs) strategies.push_back(run.strategy);
  return strategies;
}

TEST(PlanStrategiesTest, TriesEveryStrategyOverEachTransport) {
  const std::vector<VerifyRun> runs = PlanStrategies(Example(), Options());
  EXPECT_THAT(Names(runs),
              ElementsAre("ring-tcp", "direct-tcp", "stage-1-tcp", "stage-2-tcp", "stage-3-tcp",
                          "servers-on-workers-tcp", "servers-dedicated-tcp", "servers-mixed-tcp",
                          "ring-shm", "direct-shm", "window-shm", "stage-1-shm", "stage-2-shm",
                          "stage-3-shm", "servers-on-workers-shm", "servers-dedicated-shm",
                          "servers-mixed-shm"));
  EXPECT_THAT(runs, Each(Field(&VerifyRun::skipped, IsEmpty())));
  EXPECT_FALSE(runs[0].strategy.sharded());
  EXPECT_EQ(runs[0].strategy.algorithm, SyncAlgorithm::kRing);
  EXPECT_EQ(runs[4].strategy.stage, 3);
  EXPECT_EQ(runs[4].strategy.replicas, 1);
  EXPECT_EQ(runs[6].strategy.servers, 2);
  EXPECT_TRUE(runs[7].strategy.mixed);
  EXPECT_EQ(runs[16].strategy.transport, SyncTransport::kSharedMemory);
  // No two are one.
  for (size_t i = 0; i < runs.size(); ++i) {
    for (size_t j = 0; j < i; ++j) EXPECT_NE(runs[i].strategy, runs[j].strategy);
  }
}

TEST(PlanStrategiesTest, SkipsWhatTheFleetCannot) {
  VerifyPlanOptions options = Options();
  options.servers = 0;
  options.transports = {SyncTransport::kTcp};
  for (const VerifyRun& run : PlanStrategies(Example(), options)) {
    const bool needs_servers =
        run.name == "servers-dedicated-tcp" || run.name == "servers-mixed-tcp";
    EXPECT_EQ(run.skipped, needs_servers ? "--servers is 0" : "") << run.name;
  }
}

TEST(PlanStrategiesTest, WorkersOwnAPartOfAMixedState) {
  VerifyPlanOptions options = Options();
  options.workers = 2;
  options.servers = 3;
  EXPECT_EQ(PlanStrategies(Example(), options)[7].strategy.servers, 1);
}

TEST(DrawSwitchesTest, DrawsThreeRealSwitchesFromTheSeed) {
  VerifyPlanOptions options = Options();
  const std::vector<Strategy> strategies = StrategiesOf(PlanStrategies(Example(), options));
  std::set<std::string> schedules;
  for (options.steps = 4; options.steps <= 60; options.steps += 7) {
    for (options.seed = 0; options.seed < 20; ++options.seed) {
      for (const Kill kill : {Kill::kNone, Kill::kMoving, Kill::kTraining}) {
        const VerifyRun run = DrawSwitches(strategies, options, 1, kill);
        ASSERT_THAT(run.switches, SizeIs(3));
        int64_t before = 0;
        Strategy strategy = run.strategy;
        for (const StrategySwitch& change : run.switches) {
          EXPECT_GT(change.after, before);
          EXPECT_LT(change.after, options.steps);
          EXPECT_NE(change.strategy, strategy);
          before = change.after;
          strategy = change.strategy;
        }
        EXPECT_EQ(run.kill, kill);
        EXPECT_EQ(KilledWorker(run).empty(), kill == Kill::kNone);
        EXPECT_LT(run.killed_worker, options.workers);
        if (kill != Kill::kNone) {
          EXPECT_LE(run.switches[0].after, std::max<int64_t>(1, options.steps / 4));
          EXPECT_GE(run.switches[1].after, options.steps / 2);
        }
        EXPECT_EQ(ScheduleText(DrawSwitches(strategies, options, 1, kill)), ScheduleText(run));
        schedules.insert(ScheduleText(run));
      }
    }
  }
  EXPECT_GT(schedules.size(), 300u);
}

TEST(DrawSwitchesTest, OtherNumbersGiveOtherRuns) {
  const std::vector<Strategy> strategies = StrategiesOf(PlanStrategies(Example(), Options()));
  const VerifyRun first = DrawSwitches(strategies, Options(), 1, Kill::kNone);
  const VerifyRun second = DrawSwitches(strategies, Options(), 2, Kill::kNone);
  EXPECT_EQ(first.name, "switches-1");
  EXPECT_EQ(DrawSwitches(strategies, Options(), 3, Kill::kTraining).name, "switches-kill-training");
  EXPECT_EQ(second.name, "switches-2");
  EXPECT_NE(ScheduleText(first), ScheduleText(second));
}

TEST(DrawSwitchesTest, OneStrategyIsNotEnough) {
  EXPECT_THAT(DrawSwitches({Strategy()}, Options(), 1, Kill::kMoving).skipped, HasSubstr("no two"));
}

TEST(StrategyAtTest, ASwitchCountsForTheStepsAfterIt) {
  const VerifyRun run{
      .strategy = {.stage = 1},
      .switches = {{.after = 3, .strategy = {.stage = 2}}, {.after = 5, .strategy = {.stage = 3}}}};
  EXPECT_EQ(StrategyAt(run, 3).stage, 1);
  EXPECT_EQ(StrategyAt(run, 4).stage, 2);
  EXPECT_EQ(StrategyAt(run, 6).stage, 3);
  EXPECT_EQ(ScheduleText(run),
            "stage 1, 1 replica; after step 3 stage 2, 1 replica; after step 5 stage 3, 1 replica");
}

TEST(CheckVerifiableTest, SaysWhatIsWrong) {
  const auto why = [](const v1::JobDescription& job, const VerifyPlanOptions& options) {
    const absl::Status status = CheckVerifiable(job, options);
    EXPECT_TRUE(status.ok() || absl::IsInvalidArgument(status)) << status;
    return std::string(status.message());
  };
  EXPECT_EQ(why(Example(), Options()), "");
  VerifyPlanOptions options = Options();
  options.workers = 1;
  EXPECT_THAT(why(Example(), options), HasSubstr("--workers: expected at least 2, got 1"));
  options = Options();
  options.steps = 3;
  EXPECT_THAT(why(Example(), options), HasSubstr("--steps: expected at least 4"));
  v1::JobDescription job = Example();
  job.mutable_workers()->set_max(3);
  EXPECT_THAT(why(job, Options()), HasSubstr("the job takes 1 to 3 workers"));
  job = Example();
  job.mutable_communication()->set_algorithm(v1::Communication::DOUBLE_TREE);
  EXPECT_THAT(why(job, Options()), HasSubstr("communication.algorithm: double-tree"));
  job = Example();
  job.mutable_strategy()->set_sync(v1::Strategy::PARAMETER_SERVER);
  job.mutable_strategy()->set_algorithm(v1::Communication::HIERARCHICAL);
  EXPECT_THAT(why(job, Options()), HasSubstr("strategy.algorithm: hierarchical adds in an order"));
  v1::Switch* const change = job.add_switches();
  job.mutable_strategy()->Swap(change->mutable_strategy());
  change->set_after_step(3);
  EXPECT_THAT(why(job, Options()), HasSubstr("switches[0].strategy.algorithm: hierarchical adds"));
  job = Example();
  job.mutable_communication()->set_summation_order(v1::Communication::ANY);
  EXPECT_THAT(why(job, Options()), HasSubstr("communication.summation_order"));
}

TEST(JobOfRunTest, IsTheJobByTheRunsStrategies) {
  v1::JobDescription original = Example();
  original.mutable_training()->set_evaluate_every(5);
  const VerifyRun run{.name = "x",
                      .strategy = {.stage = 2, .transport = SyncTransport::kTcp},
                      .switches = {{.after = 7, .strategy = {.algorithm = SyncAlgorithm::kRing}}}};
  const auto job = JobOfRun(original, run, Options(), "here", 3);
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->training().steps(), 50);
  EXPECT_EQ(job->training().evaluate_every(), 0);
  EXPECT_EQ(job->training().seed(), original.training().seed());
  EXPECT_EQ(job->data().idx().test_images(), "");
  EXPECT_EQ(job->data().idx().train_images(), original.data().idx().train_images());
  EXPECT_EQ(job->workers().min(), 4);
  EXPECT_EQ(job->workers().start(), 4);
  EXPECT_EQ(job->workers().max(), 4);
  EXPECT_EQ(job->checkpoints().directory(), "here");
  EXPECT_EQ(job->checkpoints().every(), 3);
  EXPECT_EQ(job->checkpoints().keep(), 50);
  EXPECT_EQ(job->strategy().stage(), 2);
  EXPECT_EQ(job->strategy().transport(), v1::Communication::TCP);
  ASSERT_EQ(job->switches_size(), 1);
  EXPECT_EQ(job->switches(0).after_step(), 7);
  EXPECT_EQ(job->switches(0).strategy().algorithm(), v1::Communication::RING);

  v1::JobDescription halves = Example();
  halves.mutable_communication()->set_gradients(v1::Communication::BF16);
  VerifyRun tree = run;
  tree.switches[0].strategy.algorithm = SyncAlgorithm::kDoubleTree;
  EXPECT_THAT(std::string(JobOfRun(halves, tree, Options(), "here", 0).status().message()),
              AllOf(HasSubstr("x: "), HasSubstr("16-bit gradients")));
}

// Compressed contributions are exchanged directly, whatever sums them; what TOP_K carries from step
// to step dies with its worker.
TEST(CompressedGradientsTest, LeaveOutWhatCannotBeEqual) {
  v1::JobDescription job = Example();
  EXPECT_EQ(WhyNoDeaths(job), "");
  for (const auto gradients : {v1::Communication::INT8, v1::Communication::TOP_K}) {
    job.mutable_communication()->set_gradients(gradients);
    EXPECT_EQ(WhyNoDeaths(job).empty(), gradients == v1::Communication::INT8);
    for (const VerifyRun& run : PlanStrategies(job, Options())) {
      EXPECT_EQ(run.skipped.empty(), run.name != "window-shm") << run.name << run.skipped;
    }
  }
}

}  // namespace
}  // namespace muster
