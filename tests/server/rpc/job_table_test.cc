#include "server/rpc/job_table.h"

#include <cmath>

#include "absl/strings/str_format.h"
#include "gtest/gtest.h"

namespace muster {
namespace {

coordinator::ViewChangeReport Report(Epoch epoch) {
  coordinator::ViewChangeReport report;
  report.epoch = epoch;
  report.cause = ViewChangeCause::kDeath;
  report.workers = {"worker-1"};
  report.members.resize(3);
  report.started_at = absl::FromUnixMillis(1'000);
  return report;
}

TEST(JobTable, KeepsTheNewestViewChangesAndCountsAll) {
  JobTable table;
  JobEntry& entry = table.Add("j", {}, {}, absl::UnixEpoch());
  for (Epoch epoch = 1; epoch <= 150; ++epoch) {
    EXPECT_TRUE(JobTable::TakeReport(entry, Report(epoch)));
    EXPECT_FALSE(JobTable::TakeReport(entry, Report(epoch)));  // the same, known better
  }
  EXPECT_EQ(entry.view_changes.size(), JobTable::kMaxViewChanges);
  EXPECT_EQ(entry.view_changes.front().epoch, 51u);
  EXPECT_EQ(entry.view_change_count, 150);
}

TEST(JobTable, PublicJobShowsDurationOnceTheFirstStepIsKnown) {
  JobTable table;
  JobEntry& entry = table.Add("j", {}, {}, absl::FromUnixMillis(500));
  JobTable::TakeReport(entry, Report(7));
  JobInfo info;
  info.plan.id = "j";
  info.plan.total_steps = 9;
  info.state = JobState::kRunning;
  v1::Job job = ToPublicJob(info, entry);
  EXPECT_FALSE(job.view_changes(0).has_duration_ms());
  EXPECT_EQ(job.view_changes(0).cause(), v1::VIEW_CHANGE_CAUSE_DEATH);
  EXPECT_EQ(job.view_changes(0).world_size(), 3);
  EXPECT_EQ(job.view_changes(0).started_at().seconds(), 1);
  EXPECT_EQ(job.submitted_at().nanos(), 500'000'000);
  EXPECT_EQ(job.total_steps(), 9);
  EXPECT_FALSE(job.has_ended_at());

  coordinator::ViewChangeReport stepped = Report(7);
  stepped.first_step_at = absl::FromUnixMillis(1'120);
  EXPECT_FALSE(JobTable::TakeReport(entry, stepped));
  job = ToPublicJob(info, entry);
  ASSERT_EQ(job.view_changes_size(), 1);
  EXPECT_DOUBLE_EQ(job.view_changes(0).duration_ms(), 120);
}

TEST(JobTable, AViewChangeShowsWhatItsStateWasMadeOf) {
  JobEntry entry;
  coordinator::ViewChangeReport report = Report(7);
  report.resume = {2, 40, 7};
  JobTable::TakeReport(entry, report);
  report.epoch = 8;
  report.fresh_start = FreshStart{};
  JobTable::TakeReport(entry, report);
  report.epoch = 9;
  report.fresh_start->checkpoint = "/ck/step-00000040";
  JobTable::TakeReport(entry, report);
  const v1::Job job = ToPublicJob(JobInfo{}, entry);
  EXPECT_EQ(job.view_changes(0).resume_step(), 40);
  EXPECT_FALSE(job.view_changes(0).has_fresh_start());
  EXPECT_TRUE(job.view_changes(1).has_fresh_start());
  EXPECT_EQ(job.view_changes(1).fresh_start(), "");
  EXPECT_EQ(job.view_changes(2).fresh_start(), "/ck/step-00000040");
}

TEST(JobTable, RanksThatCommunicateAlikeStandTogether) {
  JobEntry entry;
  const CommunicationPath tcp{.transport = "tcp", .why = "asked for"};
  CommunicationPath other = tcp;
  other.why = "auto: rank 2 shares no memory";
  EXPECT_TRUE(JobTable::TakePath(entry, 3, 2, other));
  EXPECT_TRUE(JobTable::TakePath(entry, 3, 0, tcp));
  EXPECT_FALSE(JobTable::TakePath(entry, 3, 0, tcp));
  EXPECT_TRUE(JobTable::TakePath(entry, 3, 1, tcp));
  JobInfo info;
  info.state = JobState::kRunning;
  v1::Job job = ToPublicJob(info, entry);
  ASSERT_EQ(job.paths_size(), 2);
  EXPECT_EQ(job.paths(0).path().why(), "asked for");
  ASSERT_EQ(job.paths(0).ranks_size(), 2);
  EXPECT_EQ(job.paths(0).ranks(1), 1);
  EXPECT_EQ(job.paths(0).text(), "tcp (asked for)");
  EXPECT_EQ(job.paths(1).ranks(0), 2);

  // A newer view begins anew, an older one is over.
  EXPECT_TRUE(JobTable::TakePath(entry, 4, 0, other));
  EXPECT_FALSE(JobTable::TakePath(entry, 3, 1, tcp));
  job = ToPublicJob(info, entry);
  ASSERT_EQ(job.paths_size(), 1);
  EXPECT_EQ(job.paths(0).path().why(), other.why);
}

TEST(JobTable, ACheckpointThatFailedIsShownUntilThereIsANewerOne) {
  using News = JobTable::CheckpointNews;
  const auto failure = [](uint64_t branch, Step step, const std::string& error) {
    return CheckpointFailure{{branch, step, 3}, error};
  };
  JobEntry entry;
  JobInfo info;
  EXPECT_EQ(JobTable::TakeCheckpointFailure(entry, "w0", std::nullopt), News::kNone);
  EXPECT_EQ(JobTable::TakeCheckpointFailure(entry, "w0", failure(1, 60, "full")),
            News::kNewlyFailed);
  EXPECT_EQ(JobTable::TakeCheckpointFailure(entry, "w0", failure(1, 60, "full")), News::kNone);
  EXPECT_EQ(JobTable::TakeCheckpointFailure(entry, "w2", failure(1, 60, "read only")), News::kMore);
  EXPECT_EQ(JobTable::TakeCheckpointFailure(entry, "w1", failure(1, 60, "full")), News::kMore);
  EXPECT_EQ(JobTable::TakeCheckpointFailure(entry, "w3", failure(1, 40, "of old")), News::kNone);
  v1::Job job = ToPublicJob(info, entry);
  ASSERT_EQ(job.failed_checkpoints_size(), 2);
  EXPECT_EQ(job.failed_checkpoints(0).step(), 60);
  EXPECT_EQ(job.failed_checkpoints(0).error(), "full");
  ASSERT_EQ(job.failed_checkpoints(0).workers_size(), 2);
  EXPECT_EQ(job.failed_checkpoints(0).workers(1), "w1");
  EXPECT_EQ(job.failed_checkpoints(1).error(), "read only");

  // Newer and older ones; those of an abandoned branch are older.
  info.newest_checkpoint = CheckpointReport{.tag = {1, 40, 2}};
  EXPECT_EQ(ToPublicJob(info, entry).failed_checkpoints_size(), 2);
  info.newest_checkpoint = CheckpointReport{.tag = {1, 80, 4}};
  EXPECT_EQ(ToPublicJob(info, entry).failed_checkpoints_size(), 0);
  info.newest_checkpoint = CheckpointReport{.tag = {2, 20, 5}};
  EXPECT_EQ(ToPublicJob(info, entry).failed_checkpoints_size(), 0);

  EXPECT_EQ(JobTable::TakeCheckpointFailure(entry, "w1", failure(2, 30, "full")),
            News::kNewlyFailed);
  job = ToPublicJob(info, entry);
  ASSERT_EQ(job.failed_checkpoints_size(), 1);
  EXPECT_EQ(job.failed_checkpoints(0).step(), 30);
  ASSERT_EQ(job.failed_checkpoints(0).workers_size(), 1);
  EXPECT_EQ(JobTable::TakeCheckpointFailure(entry, "w1", std::nullopt), News::kMore);
  EXPECT_EQ(ToPublicJob(info, entry).failed_checkpoints_size(), 0);
}

TEST(JobTable, ManyErrorsOfOneCheckpointAreShownInFew) {
  JobEntry entry;
  for (int worker = 0; worker < 100; ++worker) {
    const std::string name = absl::StrFormat("w%02d", worker);
    JobTable::TakeCheckpointFailure(entry, name,
                                    CheckpointFailure{{1, 60, 3}, "cannot write part " + name});
  }
  const v1::Job job = ToPublicJob(JobInfo{}, entry);
  ASSERT_EQ(job.failed_checkpoints_size(), JobTable::kMaxErrorsShown + 1);
  EXPECT_EQ(job.failed_checkpoints(0).error(), "cannot write part w00");
  EXPECT_EQ(job.failed_checkpoints(JobTable::kMaxErrorsShown).workers_size(),
            100 - JobTable::kMaxErrorsShown);
}

TEST(JobTable, AnEndedJobHasNoViewAndAFailedOneNoReport) {
  JobEntry entry;
  JobInfo info;
  info.view = View{.epoch = 3};
  info.final_report = FinalReport{};
  info.state = JobState::kRunning;
  EXPECT_TRUE(ToPublicJob(info, entry).has_view());
  EXPECT_FALSE(ToPublicJob(info, entry).has_final_report());
  info.state = JobState::kSucceeded;
  EXPECT_FALSE(ToPublicJob(info, entry).has_view());
  EXPECT_TRUE(ToPublicJob(info, entry).has_final_report());
  info.state = JobState::kFailed;
  EXPECT_FALSE(ToPublicJob(info, entry).has_final_report());
}

TEST(JobTable, AJobInAnyStateShowsItsNewestCheckpoint) {
  JobInfo info;
  EXPECT_EQ(ToPublicJob(info, JobEntry{}).newest_checkpoint(), "");
  info.newest_checkpoint = CheckpointReport{.path = "/ck/step-00000200"};
  for (JobState state : {JobState::kRunning, JobState::kCancelled, JobState::kFailed}) {
    info.state = state;
    EXPECT_EQ(ToPublicJob(info, JobEntry{}).newest_checkpoint(), "/ck/step-00000200");
  }
}

TEST(JobTable, PruneDropsWhatTheCoreForgot) {
  JobTable table;
  table.Add("a", {}, {}, absl::UnixEpoch());
  table.Add("b", {}, {}, absl::UnixEpoch());
  PersistentState state;
  state.jobs.resize(1);
  state.jobs[0].plan.id = "b";
  EXPECT_EQ(table.Prune(state), std::vector<JobId>{"a"});
  EXPECT_EQ(table.Find("a"), nullptr);
  ASSERT_NE(table.Find("b"), nullptr);
  EXPECT_EQ(table.by_number().size(), 1u);
}

}  // namespace
}  // namespace muster
