// How jobs read: bar, lines, tables, JSON, summary.
#include <limits>

#include "client/output/job_text.h"
#include "client/output/message_json.h"
#include "client/output/operations_text.h"
#include "client/output/strategy_text.h"
#include "client/summary.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/client/output/running_job.h"

namespace muster {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

TEST(JobTextTest, BarShowsWhatMattersMostFirst) {
  const v1::Job job = RunningJob();
  EXPECT_EQ(ProgressBar(job, 120),
            "[=====>              ]  25%  step 250/1000  loss 0.3412  19.2k samples/s  ETA 10s  "
            "3 workers  all-reduce (ring)");
  // Narrower ones shorten the bar before they leave something out.
  EXPECT_EQ(ProgressBar(job, 80),
            "[=>   ]  25%  step 250/1000  loss 0.3412  19.2k samples/s  ETA 10s  3 workers");
  EXPECT_EQ(ProgressBar(job, 60), " 25%  step 250/1000  loss 0.3412  19.2k samples/s  ETA 10s");
  EXPECT_EQ(ProgressBar(job, 40), " 25%  step 250/1000  loss 0.3412");
  for (int columns = 30; columns < 130; ++columns) {
    EXPECT_LT(ProgressBar(job, columns).size(), static_cast<size_t>(columns));
  }
}

TEST(JobTextTest, PathsAndStragglersAreShown) {
  v1::Job job = RunningJob();
  v1::PathInUse* path = job.add_paths();
  for (const int rank : {0, 1, 2}) path->add_ranks(rank);
  path->mutable_path()->set_transport("tcp");
  path->set_text("tcp (asked for)");
  v1::Straggler* straggler = job.add_stragglers();
  straggler->set_worker("worker-1");
  straggler->set_held_up_seconds(1.25);
  straggler->set_text("worker-1 (rank 1) holds up 2 ranks");
  EXPECT_EQ(SyncPathText(job), "all-reduce (ring) over tcp");
  EXPECT_THAT(ProgressLine(job), HasSubstr("held up 1.2 s by worker-1"));
  EXPECT_THAT(JobDetails(job), HasSubstr("path         tcp (asked for)\n"));
  EXPECT_THAT(JobDetails(job), HasSubstr("straggler    worker-1 (rank 1) holds up 2 ranks\n"));

  // Ranks on another path stand apart.
  path->mutable_ranks()->RemoveLast();
  v1::PathInUse* other = job.add_paths();
  other->add_ranks(2);
  other->mutable_path()->set_transport("ofi");
  other->mutable_path()->set_provider("efa");
  other->set_text("ofi efa");
  EXPECT_EQ(SyncPathText(job), "all-reduce (ring) over libfabric (efa), tcp");
  EXPECT_THAT(JobDetails(job), HasSubstr("path         rank 0, 1: tcp (asked for)\n"));
  EXPECT_THAT(JobDetails(job), HasSubstr("path         rank 2: ofi efa\n"));
  job.mutable_description()->mutable_communication()->set_algorithm(
      v1::Communication::HALVING_DOUBLING);
  EXPECT_EQ(SyncPathText(job), "all-reduce (halving doubling) over libfabric (efa), tcp");
  // A switch has named another one since.
  job.mutable_view()->mutable_strategy()->set_algorithm(v1::Communication::DIRECT);
  EXPECT_EQ(SyncPathText(job), "all-reduce (direct) over libfabric (efa), tcp");
  job.mutable_view()->mutable_strategy()->set_sync(v1::Strategy::PARAMETER_SERVER);
  EXPECT_EQ(SyncPathText(job), "parameter server over libfabric (efa), tcp");
  job.mutable_view()->mutable_strategy()->set_algorithm(v1::Communication::HIERARCHICAL);
  EXPECT_EQ(SyncPathText(job),
            "parameter server, inside each host first over libfabric (efa), tcp");
}

TEST(JobTextTest, ARestartSaysFromWhere) {
  v1::ViewChange change = Change(4, v1::VIEW_CHANGE_CAUSE_RESTART, "worker-1", 40);
  EXPECT_EQ(ViewChangeText(change),  // as an older coordinator tells it
            "epoch 4: restart of worker-1; 3 workers, first step after 40 ms");
  change.set_fresh_start("");
  EXPECT_EQ(ViewChangeText(change),
            "epoch 4: restart of worker-1 from step 0 (no checkpoint); 3 workers, first step after "
            "40 ms");
  change.set_fresh_start("/ck/step-00000100");
  change.set_resume_step(100);
  EXPECT_EQ(ViewChangeText(change),
            "epoch 4: restart of worker-1 from /ck/step-00000100; 3 workers, first step after 40 "
            "ms");
  change.set_cause(v1::VIEW_CHANGE_CAUSE_START);
  EXPECT_THAT(ViewChangeText(change), HasSubstr("start of worker-1 from /ck/step-00000100;"));
  change.set_fresh_start("");
  change.set_resume_step(0);
  EXPECT_THAT(ViewChangeText(change), HasSubstr("start of worker-1; 3 workers"));
}

TEST(JobTextTest, CheckpointsThatFailAreShown) {
  v1::Job job = RunningJob();
  EXPECT_THAT(JobDetails(job), Not(HasSubstr("failed")));
  AddFailedCheckpoint(&job, "disk full");
  EXPECT_THAT(JobDetails(job),
              HasSubstr("checkpoint failed  step 200 on worker-0, worker-2: disk full\n"));
  EXPECT_THAT(ProgressLine(job), HasSubstr("checkpoint of step 200 failed, 3 workers"));
  EXPECT_THAT(MessageToJson(job), HasSubstr("\"failed_checkpoints\":[{\"step\":200"));
}

TEST(JobTextTest, SaysWhoChoosesTheStrategyAndWhy) {
  v1::Job job = RunningJob();
  job.mutable_view()->mutable_strategy()->set_stage(2);
  *job.mutable_strategy() = job.view().strategy();
  EXPECT_THAT(JobDetails(job), Not(HasSubstr("policy")));
  job.mutable_strategy()->set_policy(v1::Strategy::AUTO);
  job.set_strategy_reason("the simplest that fits");
  EXPECT_THAT(JobDetails(job), HasSubstr("policy       auto: the simplest that fits\n"));
  EXPECT_THAT(JobDetails(job), Not(HasSubstr("switching to")));
}

TEST(JobTextTest, SaysWhoSharesOutTheStateOrWhyAllDo) {
  v1::Job job = RunningJob();
  job.mutable_view()->add_members()->set_name("worker-3");
  for (int i = 0; i < 4; ++i) {
    job.mutable_view()->mutable_members(i)->set_host(i % 2 == 0 ? "a" : "b");
  }
  v1::Strategy& strategy = *job.mutable_view()->mutable_strategy();
  strategy.set_stage(3);
  *job.mutable_strategy() = strategy;
  EXPECT_THAT(JobDetails(job), Not(HasSubstr("shard groups")));
  strategy.set_shard_group(v1::Strategy::HOST);
  *job.mutable_strategy() = strategy;
  EXPECT_THAT(JobDetails(job), HasSubstr("strategy      stage 3 within each host\n"));
  EXPECT_THAT(JobDetails(job), HasSubstr("shard groups  worker-0, worker-2; worker-1, worker-3\n"));
  job.set_strategy_reason("host a has one more");
  EXPECT_THAT(JobDetails(job), HasSubstr("shard groups  host a has one more\n"));
}

TEST(JobTextTest, AJobWithoutAViewShowsWhatItWillTrainBy) {
  v1::Job job = RunningJob();
  job.clear_view();
  job.set_state(v1::JOB_STATE_QUEUED);
  job.mutable_strategy()->set_stage(2);
  EXPECT_THAT(JobDetails(job), HasSubstr("strategy     stage 2, 1 replica\n"));
  job.mutable_strategy()->set_policy(v1::Strategy::AUTO);
  EXPECT_THAT(JobDetails(job), HasSubstr("strategy     policy auto\n"));
  job.mutable_ended_at();
  EXPECT_THAT(JobDetails(job), Not(HasSubstr("strategy")));
}

TEST(StrategyTextTest, ShowsEachCandidateWithMemoryTimeAndObstacle) {
  v1::ExplainStrategyResponse choice;
  choice.set_automatic(true);
  choice.set_workers(4);
  choice.set_servers(1);
  choice.set_reason("stage 2 takes less");
  v1::StrategyCandidate* candidate = choice.add_candidates();
  candidate->set_text("stage 2, 0 replicas");
  candidate->set_worker_bytes(5 << 20);
  candidate->set_fits(true);
  candidate->set_communication_seconds(0.0123);
  candidate->set_chosen(true);
  candidate = choice.add_candidates();
  candidate->set_text("replicated");
  candidate->set_worker_bytes(16 << 20);
  candidate->set_server_bytes(1 << 20);
  candidate->set_obstacle("worker w0 would take 16 MiB and may take 8 MiB");
  candidate->set_in_force(true);
  const std::string text = StrategyChoiceText(choice);
  EXPECT_THAT(text, HasSubstr("policy auto; 4 workers, 1 parameter server\n"));
  EXPECT_THAT(text,
              HasSubstr("stage 2, 0 replicas  5 MiB   -       12.3 ms        yes   the choice"));
  EXPECT_THAT(text, HasSubstr("replicated           16 MiB  1 MiB   not known      no    worker w0 "
                              "would take 16 MiB and may take 8 MiB"));
  EXPECT_THAT(text, HasSubstr("stage 2 takes less\n"));
}

TEST(JobTextTest, ServersAreCountedApart) {
  v1::Job job = RunningJob();
  v1::Member* server = job.mutable_view()->add_members();
  server->set_name("server-0");
  server->set_role(v1::Member::PARAMETER_SERVER);
  EXPECT_THAT(ProgressLine(job), HasSubstr("3 workers, 1 server"));
  job.mutable_view_changes(1)->set_world_size(4);
  job.mutable_view_changes(1)->set_servers(1);
  EXPECT_THAT(JobDetails(job), HasSubstr("death of worker-3; 3 workers, 1 server, first step"));
}

v1::GetOperationsResponse Operations(int count) {
  v1::GetOperationsResponse response;
  response.set_rank(1);
  response.set_worker("worker-1");
  response.mutable_operations()->set_epoch(3);
  for (int i = 0; i < count; ++i) {
    v1::Operation& operation = *response.mutable_operations()->add_operations();
    operation.set_number(static_cast<uint64_t>(i));
    operation.set_what("barrier #" + std::to_string(i));
    operation.mutable_issued()->set_seconds(1'700'000'000);
    operation.set_queued_us(2);
    operation.set_state(v1::Operation::QUEUED);
  }
  return response;
}

TEST(OperationsTextTest, ATableOfTheNewest) {
  v1::GetOperationsResponse response = Operations(3);
  v1::Operation& last = *response.mutable_operations()->mutable_operations(2);
  last.set_label("bucket\x1b 3");
  last.set_step(17);
  last.set_state(v1::Operation::FAILED);
  last.set_running_us(1'234'000);
  last.set_error("rank 2 is gone");
  EXPECT_EQ(OperationTable(response, 2),
            "rank 1 (worker-1), epoch 3\n"
            "NUMBER  ISSUED                STEP  LABEL      STATE   QUEUED  RUNNING  WHAT\n"
            "1       2023-11-14T22:13:20Z  -     -          queued  2 us    -        barrier #1\n"
            "2       2023-11-14T22:13:20Z  17    bucket  3  failed  2 us    1.2 s    barrier #2: "
            "rank 2 is gone\n");
  EXPECT_EQ(OperationTable(Operations(0), 5), "rank 1 (worker-1), epoch 3: no operations yet\n");
}

TEST(OperationsTextTest, ALineOfJsonForEach) {
  const std::vector<std::string> lines = OperationLines(Operations(5), 2);
  ASSERT_THAT(lines, SizeIs(2));
  const json line = json::parse(lines[0]);
  EXPECT_EQ(line["rank"], 1);
  EXPECT_EQ(line["worker"], "worker-1");
  EXPECT_EQ(line["epoch"], 3);
  EXPECT_EQ(line["number"], 3);
  EXPECT_EQ(line["what"], "barrier #3");
  EXPECT_EQ(line["state"], "queued");
  EXPECT_EQ(line["issued"], "2023-11-14T22:13:20Z");
  EXPECT_FALSE(line.contains("running_us"));
}

TEST(JobTextTest, AJobThatHasEndedHasNoTimeLeft) {
  v1::Job job = RunningJob();
  job.set_state(v1::JOB_STATE_SUCCEEDED);
  job.clear_view();
  EXPECT_EQ(ProgressLine(job),
            "mlp succeeded, step 250/1000, loss 0.3412, 19.2k samples/s, all-reduce (ring)");
}

TEST(JobTextTest, AJobThatDoesNotRunTellsWhy) {
  v1::Job job = RunningJob();
  job.set_state(v1::JOB_STATE_WAITING);
  job.set_reason("1 of at least 2 workers");
  EXPECT_EQ(ProgressBar(job, 120), "mlp waiting: 1 of at least 2 workers");
  EXPECT_THAT(ProgressLine(job), HasSubstr("mlp waiting: 1 of at least 2 workers, step 250/1000"));
}

TEST(JobTextTest, Numbers) {
  EXPECT_EQ(ShortNumber(950), "950");
  EXPECT_EQ(ShortNumber(999.7), "1.0k");
  EXPECT_EQ(ShortNumber(31'249), "31.2k");
  EXPECT_EQ(ShortNumber(999'960), "1.0M");
  EXPECT_EQ(ShortDuration(0.4), "0s");
  EXPECT_EQ(ShortDuration(185), "3m05s");
  EXPECT_EQ(ShortDuration(7620), "2h07m");
  EXPECT_EQ(ShortDuration(std::numeric_limits<double>::infinity()), "100000h00m");
}

TEST(JobTextTest, Tables) {
  EXPECT_EQ(FormatTable({{"A", "LONG", "C"}, {"xyz", "1", "2"}}), "A    LONG  C\nxyz  1     2\n");
  const std::string details = JobDetails(RunningJob());
  EXPECT_THAT(details, HasSubstr("epoch 3: worker-0, worker-1, worker-2"));
  EXPECT_THAT(details, HasSubstr("epoch 3: death of worker-3; 3 workers, first step after 84 ms"));
  EXPECT_THAT(JobTable({RunningJob()}), HasSubstr("job-1  mlp   running  250/1000"));
  EXPECT_EQ(JobTable({}), "no jobs\n");

  v1::ListMembersResponse members;
  EXPECT_EQ(MemberTable(members), "no members\n");
  v1::FleetMember* member = members.add_members();
  member->mutable_member()->set_name("worker-0");
  member->set_phase(v1::WORKER_PHASE_RUNNING);
  member->set_rank(-1);
  EXPECT_THAT(MemberTable(members), HasSubstr("worker-0  worker  running  -     -"));
  member->mutable_member()->set_role(v1::Member::PARAMETER_SERVER);
  EXPECT_THAT(MemberTable(members), HasSubstr("worker-0  server  running  -     -"));
}

TEST(MessageJsonTest, IsMadeForScripts) {
  v1::Job job = RunningJob();
  job.mutable_progress()->set_loss(std::numeric_limits<double>::quiet_NaN());
  job.mutable_submitted_at()->set_seconds(0);
  job.mutable_description()->mutable_data()->mutable_idx()->set_mean(0.286f);
  const json object = json::parse(MessageToJson(job));
  EXPECT_EQ(object["description"]["data"]["idx"]["mean"], 0.286);
  EXPECT_EQ(object["state"], "running");
  EXPECT_EQ(object["total_steps"], 1000);
  EXPECT_EQ(object["reason"], "");
  EXPECT_EQ(object["progress"]["loss"], nullptr);
  // What was not evaluated is not there, rather than a number that is none.
  EXPECT_FALSE(object["progress"].contains("test_accuracy"));
  EXPECT_FALSE(object["progress"].contains("test_loss"));
  job.mutable_progress()->set_test_accuracy(0);
  EXPECT_EQ(json::parse(MessageToJson(job))["progress"]["test_accuracy"], 0.0);
  EXPECT_EQ(object["view"]["members"][0]["incarnation"], "0000000000000abc");
  EXPECT_EQ(object["view_changes"][1]["cause"], "death");
  EXPECT_EQ(object["view_changes"][1]["workers"], json({"worker-3"}));
  EXPECT_EQ(object["submitted_at"], "1970-01-01T00:00:00Z");
  EXPECT_FALSE(object.contains("final_report"));
  EXPECT_EQ(object["description"]["communication"]["algorithm"], "ring");
}

TEST(RunSummaryTest, HasTheKeysScriptsRelyOn) {
  RunSummary summary;
  v1::Job job = RunningJob();
  summary.Update(job);
  // The list of view changes is limited: the oldest has gone, one has come.
  job.clear_view_changes();
  *job.add_view_changes() = Change(5, v1::VIEW_CHANGE_CAUSE_JOIN, "worker-3", 120);
  v1::ViewChange* last = job.add_view_changes();
  *last = Change(6, v1::VIEW_CHANGE_CAUSE_DEATH, "worker-1", 0);
  last->clear_duration_ms();
  // Cut off, it would have shown what there is to go on from.
  job.set_newest_checkpoint("runs/x/checkpoints/step-500");
  summary.Update(job);
  EXPECT_EQ(json::parse(summary.Json())["checkpoint"], "runs/x/checkpoints/step-500");
  EXPECT_THAT(summary.Text(absl::Seconds(1)), HasSubstr("runs/x/checkpoints/step-500"));
  EXPECT_THAT(JobDetails(job), HasSubstr("runs/x/checkpoints/step-500"));
  job.set_state(v1::JOB_STATE_SUCCEEDED);
  v1::FinalReport* report = job.mutable_final_report();
  *report->mutable_progress() = job.progress();
  report->mutable_progress()->set_step(1000);
  report->mutable_progress()->set_loss(0.25);
  report->mutable_progress()->set_test_accuracy(0.89);
  report->mutable_progress()->set_step_ms_p50(7.5);
  report->mutable_progress()->set_step_ms_p99(11);
  report->mutable_progress()->set_comm_wait_share(0.125);
  report->set_checkpoint("runs/x/checkpoints/step-1000");
  report->set_parameters_sha256("abcd");
  summary.Update(job);
  EXPECT_EQ(json::parse(summary.Json()), json::parse(R"({
    "job": "mlp", "steps": 1000, "final_loss": 0.25, "test_accuracy": 0.89,
    "view_changes": [
      {"epoch": 3, "cause": "death", "worker": "worker-3", "duration_ms": 84.2},
      {"epoch": 5, "cause": "join", "worker": "worker-3", "duration_ms": 120.0},
      {"epoch": 6, "cause": "death", "worker": "worker-1", "duration_ms": null}],
    "step_ms_p50": 7.5, "step_ms_p99": 11.0, "comm_wait_share": 0.125,
    "checkpoint": "runs/x/checkpoints/step-1000", "parameters_sha256": "abcd",
    "job_id": "job-1", "state": "succeeded", "reason": null})"));
  const std::string text = summary.Text(absl::Seconds(12.34));
  EXPECT_THAT(text, HasSubstr("1000 of 1000"));
  EXPECT_THAT(text, HasSubstr("0.8900"));
  EXPECT_THAT(text, HasSubstr("12.3 s"));
  EXPECT_THAT(text, HasSubstr("death of worker-3"));
}

TEST(RunSummaryTest, WhatIsNotKnownIsNull) {
  RunSummary summary;
  v1::Job job;
  job.set_state(v1::JOB_STATE_FAILED);
  job.set_reason("no data");
  summary.Update(job);
  const json object = json::parse(summary.Json());
  EXPECT_EQ(object["steps"], 0);
  for (const char* key : {"final_loss", "test_accuracy", "step_ms_p50", "step_ms_p99",
                          "comm_wait_share", "checkpoint", "parameters_sha256"}) {
    EXPECT_TRUE(object.at(key).is_null()) << key;
  }
  EXPECT_EQ(object["reason"], "no data");
  EXPECT_THAT(summary.Text(absl::Seconds(1)), HasSubstr("no data"));
}

}  // namespace
}  // namespace muster
