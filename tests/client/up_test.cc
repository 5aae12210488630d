// How `muster up` changes a job before it submits it.
#include "client/commands/up.h"

#include <sys/stat.h>

#include <filesystem>

#include "client/commands/job_commands.h"
#include "client/job_file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/base/temporary_directory.h"

namespace muster {
namespace {

using ::testing::HasSubstr;

v1::JobDescription Example() { return ReadJobFile("examples/fashion-mnist-mlp.yaml").value(); }

TEST(AdaptJobTest, StartsWithAllWorkersAndKeepsCheckpointsInTheRun) {
  UpOptions options;
  options.workers = 3;
  options.run_directory = "runs/x";
  const auto job = AdaptJob(Example(), options);
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->workers().start(), 3);
  EXPECT_EQ(job->checkpoints().directory(), "runs/x/checkpoints");
  EXPECT_EQ(job->training().epochs(), Example().training().epochs());
}

TEST(AdaptJobTest, WhatTheJobSaysStands) {
  v1::JobDescription original = Example();
  original.mutable_checkpoints()->set_directory("elsewhere");
  original.mutable_workers()->set_max(2);
  UpOptions options;
  options.workers = 4;
  options.run_directory = "runs/x";
  const auto job = AdaptJob(original, options);
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->checkpoints().directory(), "elsewhere");
  EXPECT_EQ(job->workers().start(), 2);
}

TEST(AdaptJobTest, StepsReplaceEpochs) {
  UpOptions options;
  options.steps = 60;
  const auto job = AdaptJob(Example(), options);
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->training().steps(), 60);
  EXPECT_EQ(job->training().epochs(), 0);
}

TEST(AdaptJobTest, FewStepsShortenTheWarmUp) {
  UpOptions options;
  options.steps = 3;
  const auto job = AdaptJob(Example(), options);
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->training().learning_rate().warmup_steps(), 1);
}

TEST(AdaptJobTest, ContradictionsAreErrors) {
  v1::JobDescription big = Example();
  big.mutable_workers()->set_min(8);
  EXPECT_THAT(std::string(AdaptJob(big, UpOptions()).status().message()),
              HasSubstr("at least 8 workers (workers.min), but --workers is 4"));
}

TEST(CheckCanBeWrittenTest, LooksWhereTheFileWillBe) {
  const TemporaryDirectory directory;
  PosixFileSystem files;
  const auto check = [&](const std::string& name) {
    return CheckCanBeWritten(files, directory.Path(name), "--flag");
  };
  EXPECT_TRUE(CheckCanBeWritten(files, "", "--flag").ok());
  EXPECT_TRUE(check("new").ok());
  EXPECT_EQ(check("no/such").code(), absl::StatusCode::kInvalidArgument);
  // Whether somebody reads it in the end is not known yet, and nobody is to see an end before it.
  ASSERT_EQ(mkfifo(directory.Path("pipe").c_str(), 0600), 0);
  EXPECT_TRUE(check("pipe").ok());
  std::filesystem::create_symlink("later", directory.Path("dangling"));
  EXPECT_TRUE(check("dangling").ok());
  std::filesystem::create_symlink("no/such", directory.Path("nowhere"));
  EXPECT_EQ(check("nowhere").code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(check("nowhere").message()),
              HasSubstr("there is no directory " + directory.Path("no")));
  std::filesystem::create_symlink(".", directory.Path("directory"));
  EXPECT_THAT(std::string(check("directory").message()), HasSubstr("is a directory"));
  std::filesystem::create_symlink("round", directory.Path("round"));
  EXPECT_FALSE(check("round").ok());
}

}  // namespace
}  // namespace muster
