#include "server/core/persistent.h"

#include <gtest/gtest.h>

namespace muster {
namespace {

JobAdded Job(const JobId& id) {
  JobAdded added;
  added.plan.id = id;
  added.request_id = "request of " + id;
  return added;
}

TEST(PersistentTest, RecordsFoldIntoTheStateOfTheJob) {
  PersistentState state;
  const PersistentLimits limits;
  Apply(TermStarted{3, "fleet"}, limits, &state);
  Apply(EpochReserved{9}, limits, &state);
  Apply(Job("j"), limits, &state);
  Activate activate;
  activate.view.epoch = 9;
  activate.view.job = "j";
  activate.view.resume = {2, 5, 9};
  Apply(DecisionMade{activate}, limits, &state);
  const CheckpointReport report{{2, 6, 9}, "dir", "sum"};
  Apply(CheckpointDecided{"j", report}, limits, &state);
  EXPECT_EQ(state.term, 3u);
  EXPECT_EQ(state.fleet_id, "fleet");
  EXPECT_EQ(state.epoch, 9u);
  const PersistentJob* job = state.FindJob("j");
  ASSERT_NE(job, nullptr);
  EXPECT_EQ(job->branch, 2u);
  EXPECT_EQ(job->decision->view, activate.view);
  EXPECT_EQ(job->decided_checkpoint, report);
  EXPECT_FALSE(job->newest_checkpoint.has_value());
  Apply(CheckpointNamed{"j", report}, limits, &state);
  EXPECT_EQ(state.FindJob("j")->newest_checkpoint, report);
}

TEST(PersistentTest, ADissolvedViewLeavesBranchAndCheckpoint) {
  PersistentState state;
  const PersistentLimits limits;
  Apply(Job("j"), limits, &state);
  Activate activate;
  activate.view.epoch = 1;
  activate.view.job = "j";
  activate.view.resume = {1, 0, 1};
  Apply(DecisionMade{activate}, limits, &state);
  Apply(CheckpointNamed{"j", {{1, 4, 1}, "dir", ""}}, limits, &state);
  Apply(ViewDissolved{"j"}, limits, &state);
  EXPECT_FALSE(state.FindJob("j")->decision.has_value());
  EXPECT_EQ(state.FindJob("j")->branch, 1u);
  EXPECT_EQ(state.FindJob("j")->newest_checkpoint->path, "dir");
}

TEST(PersistentTest, ASealOfAnotherStateEndsWithTheNextDecision) {
  PersistentState state;
  const PersistentLimits limits;
  Apply(Job("j"), limits, &state);
  Apply(SealDecided{"j", {1, 10, 1}}, limits, &state);
  Activate activate;
  activate.view.epoch = 2;
  activate.view.job = "j";
  activate.view.resume = {1, 10, 1};
  Apply(DecisionMade{activate}, limits, &state);
  EXPECT_TRUE(state.FindJob("j")->sealed.has_value());
  activate.view.resume = {1, 9, 1};
  Apply(DecisionMade{activate}, limits, &state);
  EXPECT_FALSE(state.FindJob("j")->sealed.has_value());
}

TEST(PersistentTest, TablesKeepTheirLimits) {
  PersistentState state;
  const PersistentLimits limits{/*evictions=*/3, /*jobs=*/2};
  for (uint64_t i = 1; i <= 10; ++i) Apply(MemberEvicted{Incarnation{i}, ""}, limits, &state);
  EXPECT_EQ(state.evicted.size(), 3u);
  EXPECT_EQ(state.evicted.back(), Incarnation{10});
  Apply(Job("a"), limits, &state);
  Apply(JobEnded{"a", JobState::kSucceeded, ""}, limits, &state);
  Apply(Job("b"), limits, &state);
  Apply(Job("c"), limits, &state);
  EXPECT_EQ(state.FindJob("a"), nullptr);
  // Queued jobs are never forgotten, whatever the limit.
  Apply(Job("d"), limits, &state);
  EXPECT_EQ(state.jobs.size(), 3u);
}

}  // namespace
}  // namespace muster
