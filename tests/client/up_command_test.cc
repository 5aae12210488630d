// `muster up` from start to end, with stand-ins for the daemons (tests/client/fake).
#include <signal.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/time/clock.h"
#include "client/commands/up.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/base/temporary_directory.h"
#include "tests/wait_until.h"

namespace muster {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kJob[] = R"(name: NAME
model: {mlp: {hidden: [8]}}
data: {idx: {train_images: a, train_labels: b}}
training:
  steps: 5
  global_batch: 4
  micro_batch: 2
  optimizer: {sgd: {}}
  learning_rate: {peak: 0.1}
)";

class UpCommandTest : public ::testing::Test {
 protected:
  UpCommandTest() {
    options_.binary_directory = MUSTER_FAKE_DAEMONS;
    options_.run_directory = directory_.Path("run");
    options_.summary_file = directory_.Path("summary.json");
    options_.pid_file = directory_.Path("pids.json");
    options_.job_file = directory_.Path("job.yaml");
    options_.workers = 2;
  }

  void SetJob(const std::string& name) {
    WriteTestFile(options_.job_file, absl::StrReplaceAll(kJob, {{"NAME", name}}));
  }

  std::string Read(const std::string& path) {
    std::ifstream stream(path);
    std::ostringstream text;
    text << stream.rdbuf();
    return text.str();
  }

  // Runs the command; what it said is in output_ afterwards.
  int Run() {
    const std::string path = directory_.Path("output");
    std::FILE* file = std::fopen(path.c_str(), "w");
    int code;
    {
      Console console(file, false);
      code = UpCommand(options_, &console);
    }
    std::fclose(file);
    output_ = Read(path);
    return code;
  }

  // While the command runs, from a thread: sends it `signals` once all workers are there and it has
  // said `said`.
  std::thread SignalLater(std::vector<int> signals, std::string said = "") {
    return std::thread([this, signals, said] {
      sigset_t set;
      sigfillset(&set);
      pthread_sigmask(SIG_BLOCK, &set, nullptr);
      EXPECT_TRUE(WaitUntil([&] {
        return Read(options_.pid_file).find("worker-1") != std::string::npos &&
               Read(directory_.Path("output")).find(said) != std::string::npos;
      }));
      pids_ = json::parse(Read(options_.pid_file));
      for (const int signal : signals) kill(getpid(), signal);
    });
  }

  void ExpectNothingIsLeft() {
    EXPECT_EQ(json::parse(Read(options_.pid_file)), json::object());
    for (const auto& [name, pid] : pids_.items()) {
      EXPECT_NE(kill(pid.get<pid_t>(), 0), 0) << name << " still runs";
    }
  }

  TemporaryDirectory directory_;
  UpOptions options_;
  std::string output_;
  json pids_ = json::object();
};

TEST_F(UpCommandTest, RunsAJobToItsSummary) {
  SetJob("succeed");
  EXPECT_EQ(Run(), 0) << output_;
  EXPECT_THAT(output_, HasSubstr("worker-1    | worker-1 is up"));
  EXPECT_THAT(output_, HasSubstr("succeed succeeded, step 5/5, loss 0.2000"));
  EXPECT_THAT(output_, HasSubstr("5 of 5"));
  const json summary = json::parse(Read(options_.summary_file));
  EXPECT_EQ(summary["job"], "succeed");
  EXPECT_EQ(summary["steps"], 5);
  EXPECT_EQ(summary["checkpoint"], options_.run_directory + "/checkpoints");
  EXPECT_EQ(summary["parameters_sha256"], "abcd");
  EXPECT_THAT(Read(options_.run_directory + "/logs/worker-0.log"), HasSubstr("worker-0 is up"));
  ExpectNothingIsLeft();
}

TEST_F(UpCommandTest, AFailedJobIsAFailure) {
  SetJob("fail");
  EXPECT_EQ(Run(), 1);
  EXPECT_THAT(output_, HasSubstr("the data is unreadable"));
  EXPECT_EQ(json::parse(Read(options_.summary_file))["parameters_sha256"], nullptr);
  ExpectNothingIsLeft();
}

TEST_F(UpCommandTest, AnInterruptEndsAll) {
  SetJob("hang");
  std::thread signals = SignalLater({SIGINT}, "hang running");
  EXPECT_EQ(Run(), 1);
  signals.join();
  EXPECT_THAT(output_, HasSubstr("ending; once more to kill all at once"));
  EXPECT_THAT(output_, HasSubstr("hang (job-1) cancelled"));
  EXPECT_THAT(output_, HasSubstr("muster up was interrupted"));
  EXPECT_EQ(pids_.size(), 3u);
  ExpectNothingIsLeft();
}

// A script finds its file whatever happened, and never that of an earlier run.
TEST_F(UpCommandTest, AnInterruptBeforeTheJobIsQueuedLeavesASummary) {
  SetJob("never-queued");
  WriteTestFile(options_.summary_file, "of an earlier run");
  std::thread signals = SignalLater({SIGINT});
  EXPECT_EQ(Run(), 1);
  signals.join();
  EXPECT_THAT(output_, Not(HasSubstr("never-queued (")));
  const json summary = json::parse(Read(options_.summary_file));
  EXPECT_EQ(summary["job"], "never-queued");
  EXPECT_EQ(summary["steps"], 0);
  EXPECT_EQ(summary["view_changes"], json::array());
  EXPECT_EQ(summary.at("final_loss"), nullptr);
  ExpectNothingIsLeft();
}

TEST_F(UpCommandTest, ALostOutputIsAFailureButEndsNothing) {
  SetJob("succeed");
  std::FILE* full = std::fopen("/dev/full", "w");
  ASSERT_NE(full, nullptr);
  {
    Console console(full, false);
    EXPECT_EQ(UpCommand(options_, &console), 1);
  }
  std::fclose(full);
  EXPECT_EQ(json::parse(Read(options_.summary_file))["steps"], 5);
}

TEST_F(UpCommandTest, WithoutAJobItWaitsForTheInterrupt) {
  options_.job_file.clear();
  options_.summary_file.clear();
  std::thread signals = SignalLater({SIGTERM});
  EXPECT_EQ(Run(), 0);
  signals.join();
  EXPECT_THAT(output_, HasSubstr("no job; submit one"));
  ExpectNothingIsLeft();
}

TEST_F(UpCommandTest, WithoutAnyWorkerLeftItFails) {
  SetJob("hang");
  // Read by the stand-in only; no other thread runs here.
  ASSERT_EQ(putenv(const_cast<char*>("MUSTER_TEST_DIE=1")), 0);
  EXPECT_EQ(Run(), 1);
  ASSERT_EQ(unsetenv("MUSTER_TEST_DIE"), 0);
  EXPECT_THAT(output_, HasSubstr("exited with code 7"));
  ExpectNothingIsLeft();
}

TEST_F(UpCommandTest, BadInputIsUsage) {
  WriteTestFile(options_.job_file, "name: 5\nmodle: {}\n");
  EXPECT_EQ(Run(), 2);
  SetJob("succeed");
  options_.summary_file = directory_.Path("no/such/directory/summary.json");
  EXPECT_EQ(Run(), 2);
  options_.summary_file = directory_.path();  // it would not be noticed before the job's end
  EXPECT_EQ(Run(), 2);
  EXPECT_FALSE(std::filesystem::exists(options_.run_directory));
}

TEST_F(UpCommandTest, OptionsThatContradictEachOtherAreUsage) {
  SetJob("succeed");
  options_.lease_ms = 499;  // the default heartbeat's double is 500
  EXPECT_EQ(Run(), 2);
  options_.lease_ms = 500;
  options_.listen = "nowhere";
  EXPECT_EQ(Run(), 2);
  options_.listen = "127.0.0.1:0";
  options_.job_file.clear();  // and the summary of what?
  EXPECT_EQ(Run(), 2);
  options_.summary_file.clear();
  options_.steps = 3;
  EXPECT_EQ(Run(), 2);
  EXPECT_FALSE(std::filesystem::exists(options_.run_directory));
}

TEST_F(UpCommandTest, CheckpointsMayLeaveTheDirectoryToTheRun) {
  SetJob("succeed");
  WriteTestFile(options_.job_file, Read(options_.job_file) + "checkpoints: {every: 2}\n");
  EXPECT_EQ(Run(), 0) << output_;
  EXPECT_EQ(json::parse(Read(options_.summary_file))["checkpoint"],
            options_.run_directory + "/checkpoints");
}

TEST_F(UpCommandTest, AMissingDaemonIsAFailure) {
  SetJob("succeed");
  options_.binary_directory = directory_.path();
  EXPECT_EQ(Run(), 1);
}

}  // namespace
}  // namespace muster
