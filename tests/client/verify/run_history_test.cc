#include "client/verify/run_history.h"

#include "absl/strings/str_format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

void AddView(v1::Job* job, uint64_t epoch, v1::ViewChangeCause cause, int servers,
             const std::string& worker = "") {
  v1::ViewChange* const change = job->add_view_changes();
  change->set_epoch(epoch);
  change->set_cause(cause);
  change->set_servers(servers);
  if (!worker.empty()) change->add_workers(worker);
}

VerifyPlanOptions Options() { return {.workers = 4, .servers = 2, .steps = 6}; }

// Views: 1 from the start with two servers, 3 after step 2 without, 4 without worker-1, 5 with it
// again from step 5 on.
class RunHistoryTest : public ::testing::Test {
 protected:
  RunHistoryTest() {
    AddView(&job_, 1, v1::VIEW_CHANGE_CAUSE_START, 2);
    AddView(&job_, 3, v1::VIEW_CHANGE_CAUSE_SWITCH, 0);
    AddView(&job_, 4, v1::VIEW_CHANGE_CAUSE_DEATH, 0, "worker-1");
    AddView(&job_, 5, v1::VIEW_CHANGE_CAUSE_JOIN, 0, "worker-1");
  }

  std::string Problem() { return HistoryProblem(run_, Options(), job_, steps_); }

  v1::Job job_;
  VerifyRun run_{.strategy = {.sync = SyncPath::kParameterServer, .servers = 2},
                 .switches = {{.after = 2, .strategy = {}}},
                 .kill = Kill::kTraining,
                 .killed_worker = 1};
  std::vector<StepRecord> steps_ = {{1, 1, 6}, {2, 1, 6}, {3, 3, 4},
                                    {4, 3, 4}, {5, 5, 4}, {6, 5, 4}};
};

TEST_F(RunHistoryTest, AsPlanned) {
  EXPECT_EQ(Problem(), "");
  EXPECT_EQ(StepOfDeath(job_, steps_, "worker-1"), 4);
  EXPECT_EQ(StepOfDeath(job_, steps_, "worker-2"), std::nullopt);
}

TEST_F(RunHistoryTest, StepsByFewerWorkersAreNoComparison) {
  steps_[4] = {5, 4, 3};
  EXPECT_THAT(Problem(), HasSubstr("step 5 was taken by 3 workers, not by 4"));
}

TEST_F(RunHistoryTest, ASwitchThatDidNotHappenIsAProblem) {
  run_.switches[0].after = 3;
  EXPECT_THAT(Problem(), HasSubstr("the strategy did not change after step 3"));
  // What is not recorded is not held against it.
  steps_.erase(steps_.begin() + 3);
  EXPECT_EQ(Problem(), "");
}

TEST_F(RunHistoryTest, AWorkerThatDidNotDieIsAProblem) {
  run_.killed_worker = 0;
  EXPECT_THAT(Problem(), HasSubstr("before worker-0 was killed"));
}

TEST_F(RunHistoryTest, ServersMustHaveServed) {
  run_ = {.strategy = {.sync = SyncPath::kParameterServer, .servers = 2}};
  EXPECT_EQ(Problem(), "");
  steps_.erase(steps_.begin(), steps_.begin() + 2);
  EXPECT_THAT(Problem(), HasSubstr("none of 4 recorded steps"));
}

TEST(ParseStepsTest, TheLastRecordOfAStepCountsAndTornLinesDoNot) {
  const auto line = [](int step, int epoch) {
    return absl::StrFormat(
        "{\"kind\":\"step\",\"step\":%d,\"loss\":0.5,\"epoch\":%d,\"world_size\":4}\n", step,
        epoch);
  };
  const std::vector<StepRecord> steps = ParseSteps(
      line(1, 1) + "{\"kind\":\"evaluation\",\"step\":1}\n" + line(2, 1) +
      "{\"kind\":\"step\",\"st\n" + "[]\n7\n{\"kind\":3}\n{\"kind\":\"step\",\"step\":\"x\"}\n" +
      line(2, 3) + line(3, 3));
  ASSERT_THAT(steps, SizeIs(3));
  EXPECT_EQ(steps[0].epoch, 1u);
  EXPECT_EQ(steps[1].epoch, 3u);
  EXPECT_EQ(steps[2].step, 3);
  EXPECT_EQ(steps[2].members, 4);
}

}  // namespace
}  // namespace muster
