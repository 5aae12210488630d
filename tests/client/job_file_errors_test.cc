// What job files must not hold: each mistake is named with file, line, column and field.
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "client/job_file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr absl::string_view kYaml = R"(name: test
model:
  mlp:
    hidden: [8, 4]
data:
  idx:
    train_images: a
    train_labels: b
training:
  steps: 10
  global_batch: 4
  micro_batch: 2
  optimizer:
    sgd: {}
  learning_rate:
    peak: 0.1
)";

// The valid job above with `from` replaced by `to`.
std::string YamlError(absl::string_view from, absl::string_view to) {
  const std::string text = absl::StrReplaceAll(kYaml, {{from, to}});
  EXPECT_NE(text, kYaml) << "nothing was replaced";
  const auto job = ParseJob(text, JobFileFormat::kYaml, "j.yaml");
  EXPECT_EQ(job.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(job.status().message());
}

std::string Error(absl::string_view text, JobFileFormat format, const std::string& path) {
  const auto job = ParseJob(text, format, path);
  EXPECT_EQ(job.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(job.status().message());
}

TEST(JobFileErrorsTest, TheUnchangedJobIsValid) {
  const auto job = ParseJob(kYaml, JobFileFormat::kYaml, "j.yaml");
  EXPECT_TRUE(job.ok()) << job.status();
}

TEST(JobFileErrorsTest, UnknownFields) {
  EXPECT_EQ(YamlError("global_batch", "global_bach"),
            "j.yaml:11:3: training.global_bach: no such field; did you mean \"global_batch\"?");
  EXPECT_EQ(YamlError("global_batch", "batch"),
            "j.yaml:11:3: training.batch: no such field; did you mean \"global_batch\"?");
  EXPECT_EQ(YamlError("mlp:", "transformer:"),
            "j.yaml:3:3: model.transformer: no such field; expected one of mlp, cnn");
  // Names in YAML are those of the .proto file.
  EXPECT_THAT(YamlError("global_batch", "globalBatch"),
              HasSubstr("did you mean \"global_batch\"?"));
}

TEST(JobFileErrorsTest, WrongTypes) {
  EXPECT_EQ(YamlError("steps: 10", "steps: ten"),
            "j.yaml:10:10: training.steps: expected an integer from -9223372036854775808 to "
            "9223372036854775807, got ten");
  EXPECT_THAT(YamlError("steps: 10", "steps: 1.5"), HasSubstr("j.yaml:10:10: training.steps: "));
  EXPECT_THAT(YamlError("steps: 10", "steps: \"10\""), HasSubstr("got the text \"10\""));
  EXPECT_THAT(YamlError("steps: 10", "steps:"), HasSubstr("training.steps: expected an integer"));
  EXPECT_THAT(YamlError("steps: 10", "steps: [10]"), HasSubstr("got a list"));
  EXPECT_THAT(YamlError("[8, 4]", "8"),
              HasSubstr("j.yaml:4:13: model.mlp.hidden: expected a list"));
  EXPECT_THAT(YamlError("[8, 4]", "[8, x]"), HasSubstr("j.yaml:4:17: model.mlp.hidden[1]: "));
  EXPECT_THAT(YamlError("sgd: {}", "sgd:"),
              HasSubstr("training.optimizer.sgd: expected fields ({} "));
  EXPECT_THAT(YamlError("name: test", "name: {a: b}"),
              HasSubstr("name: expected text, got fields"));
  EXPECT_THAT(YamlError("sgd: {}", "sgd: {nesterov: yes}"),
              HasSubstr("j.yaml:14:21: training.optimizer.sgd.nesterov: expected true or false"));
  EXPECT_THAT(YamlError("peak: 0.1", "peak: fast"), HasSubstr("j.yaml:16:11: "));
}

TEST(JobFileErrorsTest, Ranges) {
  EXPECT_THAT(YamlError("global_batch: 4", "global_batch: 2147483648"),
              HasSubstr("expected an integer from -2147483648 to 2147483647, got 2147483648"));
  EXPECT_THAT(YamlError("peak: 0.1", "peak: 1e999"), HasSubstr("expected a number up to"));
  EXPECT_THAT(YamlError("steps: 10", "steps: 10\n  seed: -1"),
              HasSubstr("expected an integer from 0 to 18446744073709551615"));
}

TEST(JobFileErrorsTest, Enums) {
  EXPECT_EQ(YamlError("peak: 0.1", "peak: 0.1\n    schedule: cosin"),
            "j.yaml:17:15: training.learning_rate.schedule: no such value \"cosin\"; did you mean "
            "\"cosine\"?");
}

TEST(JobFileErrorsTest, GivenTwice) {
  EXPECT_EQ(YamlError("  micro_batch: 2", "  micro_batch: 2\n  steps: 11"),
            "j.yaml:13:3: training.steps: given twice; first in line 10");
  EXPECT_EQ(
      YamlError("    sgd: {}", "    sgd: {}\n    adamw: {}"),
      "j.yaml:15:5: training.optimizer.adamw: only one of sgd (line 14) and adamw may be given");
}

TEST(JobFileErrorsTest, MeaningIsCheckedWithThePositionOfTheField) {
  for (const char* text : {"nan", ".nan", ".inf", "-1", "0"}) {
    EXPECT_THAT(YamlError("peak: 0.1", absl::StrCat("peak: ", text)),
                HasSubstr("j.yaml:16:5: training.learning_rate.peak: "));
  }
  EXPECT_THAT(YamlError("micro_batch: 2", "micro_batch: 3"),
              HasSubstr("j.yaml:11:3: training.global_batch: "));
  // A field that is missing is reported where it belongs.
  EXPECT_THAT(YamlError("    sgd: {}", "    weight_decay: 0"),
              HasSubstr("j.yaml:13:3: training.optimizer: needs one of"));
  EXPECT_THAT(YamlError("[8, 4]", "[8, 0]"), HasSubstr("j.yaml:4:17: model.mlp.hidden[1]: "));
}

TEST(JobFileErrorsTest, YamlThatIsNone) {
  EXPECT_THAT(YamlError("name: test", "name: [test"), HasSubstr("not valid YAML"));
  EXPECT_THAT(YamlError("name: test", "name: &a test"), HasSubstr("anchors (&name)"));
  EXPECT_THAT(YamlError("name: test", "name: !!str test"), HasSubstr("tag"));
  EXPECT_THAT(YamlError("name: test", "[a]: test"), HasSubstr("j.yaml:1:1: "));
  EXPECT_THAT(Error("", JobFileFormat::kYaml, "e.yaml"), HasSubstr("e.yaml:1:1: "));
  EXPECT_THAT(Error("- a\n", JobFileFormat::kYaml, "e.yaml"),
              HasSubstr("expected fields, got a list"));
  EXPECT_THAT(Error(absl::StrCat(kYaml, "---\nname: b\n"), JobFileFormat::kYaml, "e.yaml"),
              HasSubstr("a second document"));
}

TEST(JobFileErrorsTest, HostileFilesAreRefusedQuickly) {
  for (const char* open : {"[", "{a: ", "- ", "? "}) {
    std::string deep;
    for (int i = 0; i < 10'000; ++i) deep += open;
    EXPECT_THAT(Error(deep, JobFileFormat::kYaml, "deep.yaml"), HasSubstr("deep.yaml:"));
  }
  EXPECT_THAT(Error(std::string(60'000, '['), JobFileFormat::kJson, "deep.json"),
              HasSubstr("nested deeper"));
  std::string nested;
  for (int i = 0; i < 9'000; ++i) nested += "model {";
  EXPECT_THAT(Error(nested, JobFileFormat::kTextproto, "deep.textproto"),
              HasSubstr("deep.textproto:1:"));
  std::string wide = "{\"name\": [";
  for (int i = 0; i < 20'000; ++i) wide += "1,";
  EXPECT_THAT(Error(wide, JobFileFormat::kJson, "wide.json"), HasSubstr("more than 10000 values"));
  // Each level refers twice to the one before: 2^30 values if it were expanded.
  std::string bomb = "a0: &a0 x\n";
  for (int i = 1; i < 30; ++i) {
    absl::StrAppend(&bomb, "a", i, ": &a", i, " [*a", i - 1, ", *a", i - 1, "]\n");
  }
  EXPECT_THAT(Error(bomb, JobFileFormat::kYaml, "bomb.yaml"), HasSubstr("anchors"));
  EXPECT_THAT(Error(std::string(kMaxJobFileBytes + 1, ' '), JobFileFormat::kYaml, "big.yaml"),
              HasSubstr("larger than"));
  EXPECT_THAT(Error(std::string("\x1f\x8b\x08\x00", 4), JobFileFormat::kYaml, "zip.yaml"),
              HasSubstr("not a text file"));
}

TEST(JobFileErrorsTest, Json) {
  EXPECT_EQ(Error("{\n  \"nam\": \"x\"\n}", JobFileFormat::kJson, "j.json").substr(0, 9),
            "j.json:2:");
  EXPECT_THAT(Error("{\n  \"nam\": \"x\"\n}", JobFileFormat::kJson, "j.json"),
              HasSubstr("nam: no such field; did you mean \"name\"?"));
  EXPECT_THAT(Error("{\"name\": \"x\",}", JobFileFormat::kJson, "j.json"),
              HasSubstr("not valid JSON"));
  EXPECT_THAT(Error("{\"name\": \"x\"} x", JobFileFormat::kJson, "j.json"),
              HasSubstr("not valid JSON"));
  EXPECT_THAT(Error("{\"name\": \"x\", // c\n}", JobFileFormat::kJson, "j.json"),
              HasSubstr("not valid JSON"));
  EXPECT_THAT(Error("{\"training\":\n {\"steps\":\n 1.5\n}}", JobFileFormat::kJson, "j.json"),
              HasSubstr("j.json:3:4: training.steps: expected an integer"));
  EXPECT_THAT(Error("{\"name\": \"x\",\n \"name\": \"y\"}", JobFileFormat::kJson, "j.json"),
              HasSubstr("name: given twice; first in line 1"));
  EXPECT_THAT(Error("{\"training\": {\"global_batch\": \"4\"}}", JobFileFormat::kJson, "j.json"),
              HasSubstr("training.global_batch: expected an integer"));
  EXPECT_THAT(Error("", JobFileFormat::kJson, "j.json"), HasSubstr("j.json:1:1: not valid JSON"));
}

TEST(JobFileErrorsTest, JsonTellsTextFromOtherValues) {
  for (const char* value : {"true", "false", "12", "-1.5e3"}) {
    EXPECT_EQ(Error(absl::StrCat("{\n \"name\":\n  ", value, "\n}"), JobFileFormat::kJson, "j.json")
                  .substr(0, 9),
              "j.json:3:");
    EXPECT_THAT(
        Error(absl::StrCat("{\"data\": {\"idx\": {\"trainImages\": ", value, "}}}"),
              JobFileFormat::kJson, "j.json"),
        HasSubstr(absl::StrCat("data.idx.train_images: expected text in quotes, got ", value)));
  }
  EXPECT_THAT(Error("{\"name\": null}", JobFileFormat::kJson, "j.json"),
              HasSubstr("name: expected text, got nothing"));
  EXPECT_THAT(Error("{\"training\": {\"learning_rate\": {\"schedule\": true}}}",
                    JobFileFormat::kJson, "j.json"),
              HasSubstr("training.learning_rate.schedule: no such value \"true\""));
}

TEST(JobFileErrorsTest, Textproto) {
  const auto error = [](absl::string_view text) {
    return Error(text, JobFileFormat::kTextproto, "j.textproto");
  };
  EXPECT_EQ(error("name: 'x'\ntraining {\n  step: 5\n}"),
            "j.textproto:3:7: training.step: no such field; did you mean \"steps\"?");
  EXPECT_THAT(error("training {\n  learning_rate { peak: 0.1\n schedule: COSIN }\n}"),
              HasSubstr("j.textproto:3:18: training.learning_rate.schedule: "));
  EXPECT_THAT(error("training { steps: 'x' }"), HasSubstr("training.steps: "));
  for (const char* value : {"true", "12"}) {
    EXPECT_THAT(error(absl::StrCat("data {\n idx {\n  train_images: ", value, " } }")),
                AllOf(HasSubstr("j.textproto:3:17: data.idx.train_images: "),
                      HasSubstr("xpected string, got: "), HasSubstr(value)));
  }
  EXPECT_THAT(error("training { steps: 5\n steps: 6 }"), HasSubstr("training.steps: "));
  EXPECT_THAT(error("model { mlp {}\n cnn {} }"), HasSubstr("model.cnn: "));
  EXPECT_THAT(error("name: '\\xff'"), HasSubstr("j.textproto:1:1: name: must be UTF-8"));
  EXPECT_THAT(
      error("model { mlp { hidden: [1, 0] } }\ndata { idx { train_images: 'a' train_labels: 'b' } }"
            "training { steps: 1 global_batch: 1 micro_batch: 1 }"),
      HasSubstr("j.textproto:1:15: model.mlp.hidden[1]: "));
}

}  // namespace
}  // namespace muster
