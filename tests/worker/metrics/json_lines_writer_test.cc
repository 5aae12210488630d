#include "worker/metrics/json_lines_writer.h"

#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/base/temporary_directory.h"

namespace muster {
namespace {

const absl::Time kNow = absl::FromUnixMillis(1'700'000'000'250);

class JsonLinesWriterTest : public ::testing::Test {
 protected:
  std::vector<std::string> Lines() {
    const auto text = ReadFile(files_, path_, 1 << 20);
    EXPECT_TRUE(text.ok()) << text.status();
    EXPECT_TRUE(text->empty() || text->back() == '\n');
    return absl::StrSplit(absl::string_view(*text).substr(0, text->size() - 1), '\n');
  }

  TemporaryDirectory directory_;
  PosixFileSystem files_;
  const std::string path_ = directory_.Path("runs/1/metrics.jsonl");
};

TEST_F(JsonLinesWriterTest, WritesOneWholeObjectPerLineAtOnce) {
  auto writer = JsonLinesWriter::Open(files_, path_);
  ASSERT_TRUE(writer.ok()) << writer.status();
  ASSERT_TRUE(writer
                  ->Write(kNow, StepMetrics{.step = 7,
                                            .loss = 0.5,
                                            .learning_rate = 0.1,
                                            .gradient_norm = 2,
                                            .update_skipped = true,
                                            .step_time_ms = 3.5,
                                            .samples_per_s = 1000,
                                            .comm_wait_share = 0.25,
                                            .data_epochs = 1.5,
                                            .epoch = 3,
                                            .world_size = 4})
                  .ok());
  // The writer is still open: what it wrote is there all the same.
  ASSERT_EQ(Lines().size(), 1u);
  EXPECT_EQ(Lines()[0],
            R"({"kind":"step","time":1700000000.25,"step":7,"loss":0.5,"learning_rate":0.1,)"
            R"("gradient_norm":2.0,"update_skipped":true,"step_time_ms":3.5,)"
            R"("samples_per_s":1000.0,"comm_wait_share":0.25,"data_epochs":1.5,"epoch":3,)"
            R"("world_size":4})");
  ASSERT_TRUE(
      writer->Write(kNow, EvaluationMetrics{.step = 7, .test_loss = 0.25, .test_accuracy = 0.875})
          .ok());
  ASSERT_EQ(Lines().size(), 2u);
  EXPECT_EQ(Lines()[1], R"({"kind":"evaluation","time":1700000000.25,"step":7,"test_loss":0.25,)"
                        R"("test_accuracy":0.875})");
  const CommunicationPath path{
      .transport = "tcp",
      .why = "asked for",
      .algorithms = {{"all-reduce", "ring", 8, 16, true, "least on each link"}}};
  ASSERT_TRUE(writer->Write(kNow, path, 3, 7).ok());
  ASSERT_EQ(Lines().size(), 3u);
  EXPECT_EQ(Lines()[2],
            R"({"kind":"communication","time":1700000000.25,"step":7,"epoch":3,)"
            R"("transport":"tcp","provider":"","why":"asked for","algorithms":[)"
            R"({"collective":"all-reduce","algorithm":"ring","least_bytes":8,"most_bytes":16,)"
            R"("automatic":true,"why":"least on each link"}]})");
}

TEST_F(JsonLinesWriterTest, NumbersThatAreNotFiniteAreNull) {
  auto writer = JsonLinesWriter::Open(files_, path_);
  ASSERT_TRUE(writer.ok()) << writer.status();
  ASSERT_TRUE(
      writer
          ->Write(kNow, StepMetrics{.loss = std::numeric_limits<double>::quiet_NaN(),
                                    .gradient_norm = std::numeric_limits<double>::infinity()})
          .ok());
  const auto record = nlohmann::json::parse(Lines()[0]);
  EXPECT_TRUE(record["loss"].is_null());
  EXPECT_TRUE(record["gradient_norm"].is_null());
}

TEST_F(JsonLinesWriterTest, GoesOnAfterATornLine) {
  ASSERT_TRUE(files_.CreateDirectories(ParentDirectory(path_)).ok());
  ASSERT_TRUE(WriteFileDurably(files_, path_, "{\"step\":1}\n{\"st").ok());
  for (int i = 0; i < 2; ++i) {
    auto writer = JsonLinesWriter::Open(files_, path_);
    ASSERT_TRUE(writer.ok()) << writer.status();
    ASSERT_TRUE(writer->Write(kNow, EvaluationMetrics{.step = 2 + i}).ok());
  }
  const auto lines = Lines();
  ASSERT_EQ(lines.size(), 4u);
  EXPECT_EQ(lines[0], "{\"step\":1}");
  EXPECT_EQ(lines[1], "{\"st");
  EXPECT_EQ(nlohmann::json::parse(lines[2])["step"], 2);
  EXPECT_EQ(nlohmann::json::parse(lines[3])["step"], 3);
}

TEST_F(JsonLinesWriterTest, APathThatCannotBeWrittenIsAnError) {
  ASSERT_TRUE(WriteFileDurably(files_, directory_.Path("file"), "").ok());
  const auto writer = JsonLinesWriter::Open(files_, directory_.Path("file/metrics.jsonl"));
  EXPECT_FALSE(writer.ok());
  EXPECT_THAT(std::string(writer.status().message()), ::testing::HasSubstr("file"));
}

}  // namespace
}  // namespace muster
