// What a terminal, a pipe and a program see of a job that is followed.
#include "client/output/job_display.h"

#include <cstdio>
#include <string>
#include <vector>

#include "client/output/console.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/client/output/running_job.h"

namespace muster {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::SizeIs;

// What a console wrote to a file.
class Capture {
 public:
  explicit Capture(bool is_terminal) : file_(std::tmpfile()), console_(file_, is_terminal) {}
  ~Capture() { console_.Status(""), std::fclose(file_); }
  Console& console() { return console_; }
  std::string Text() {
    std::string text(static_cast<size_t>(std::ftell(file_)), '\0');
    std::rewind(file_);
    EXPECT_EQ(std::fread(text.data(), 1, text.size(), file_), text.size());
    return text;
  }

 private:
  std::FILE* const file_;
  Console console_;
};

TEST(ConsoleTest, LinesGoAboveTheStatus) {
  Capture capture(true);
  capture.console().Status("busy");
  capture.console().Line("news");
  capture.console().Status("");
  EXPECT_EQ(capture.Text(), "\r\033[Kbusy\r\033[Knews\nbusy\r\033[K");
}

TEST(ConsoleTest, WithoutATerminalThereAreOnlyLines) {
  Capture capture(false);
  capture.console().Status("busy");
  capture.console().Line("news");
  EXPECT_EQ(capture.Text(), "news\n");
}

TEST(ConsoleTest, AReaderThatIsGoneIsNoticed) {
  std::FILE* full = std::fopen("/dev/full", "w");
  ASSERT_NE(full, nullptr);
  {
    Console console(full, false);
    EXPECT_TRUE(console.write_status().ok());
    console.Line("x");
    EXPECT_EQ(console.write_status(),
              absl::UnavailableError("cannot write the output: No space left on device"));
  }
  std::fclose(full);
}

TEST(JobDisplayTest, PlainLinesComeWithChangesAndThenSeldom) {
  Capture capture(false);
  JobDisplay display(&capture.console(), /*json=*/false);
  absl::Time now = absl::UnixEpoch();
  v1::Job job = RunningJob();
  for (int i = 0; i < 41; ++i, now += absl::Milliseconds(100)) {  // four seconds
    job.mutable_progress()->set_step(250 + i);
    display.Update(job, now);
  }
  job.set_state(v1::JOB_STATE_SUCCEEDED);
  display.Update(job, now);
  const std::string text = capture.Text();
  std::vector<std::string> lines = {};
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = text.find('\n', begin);
    lines.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  ASSERT_THAT(lines, SizeIs(6));
  EXPECT_THAT(lines[0], HasSubstr("mlp epoch 1: start"));
  EXPECT_THAT(lines[1], HasSubstr("mlp epoch 3: death of worker-3"));
  EXPECT_THAT(lines[2], HasSubstr("mlp running, step 250/1000"));
  EXPECT_THAT(lines[3], HasSubstr("step 270/1000"));
  EXPECT_THAT(lines[4], HasSubstr("step 290/1000"));
  EXPECT_THAT(lines[5], HasSubstr("mlp succeeded"));
}

TEST(JobDisplayTest, TellsOnceThatCheckpointsFailAndOnceThatTheyNoLongerDo) {
  Capture capture(false);
  JobDisplay display(&capture.console(), /*json=*/false);
  v1::Job job = RunningJob();
  job.clear_view_changes();
  display.Update(job, absl::UnixEpoch());
  AddFailedCheckpoint(&job, "disk full");
  display.Update(job, absl::UnixEpoch());
  job.mutable_failed_checkpoints(0)->set_step(240);
  display.Update(job, absl::UnixEpoch());
  job.clear_failed_checkpoints();
  job.set_newest_checkpoint("/ck/step-00000280");
  display.Update(job, absl::UnixEpoch());
  const std::string text = capture.Text();
  EXPECT_THAT(text.substr(text.find('\n') + 1),
              "mlp checkpoint failed: step 200 on worker-0, worker-2: disk full\n"
              "mlp checkpoints are written again: /ck/step-00000280\n");
}

TEST(JobDisplayTest, JsonIsOneObjectALine) {
  Capture capture(false);
  JobDisplay display(&capture.console(), /*json=*/true);
  display.Update(RunningJob(), absl::UnixEpoch());
  display.Update(RunningJob(), absl::UnixEpoch());
  const std::string text = capture.Text();
  const size_t newline = text.find('\n');
  EXPECT_TRUE(json::accept(text.substr(0, newline)));
  EXPECT_EQ(text.substr(0, newline), text.substr(newline + 1, newline));
}

}  // namespace
}  // namespace muster
