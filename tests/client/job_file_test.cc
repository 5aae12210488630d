// What job files may hold: three formats, one meaning.
#include "client/job_file.h"

#include <random>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/file.h"
#include "gmock/gmock.h"
#include "google/protobuf/util/message_differencer.h"
#include "gtest/gtest.h"

namespace muster {
namespace {

using google::protobuf::util::MessageDifferencer;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;

// The least valid job, as YAML.
constexpr absl::string_view kLeast = R"(
model: {mlp: {hidden: [8]}}
data: {idx: {train_images: a, train_labels: b}}
training:
  steps: 10
  global_batch: 4
  micro_batch: 2
  optimizer: {sgd: {}}
  learning_rate: {peak: 0.1}
)";

TEST(JobFileTest, FormatsGoByTheEnding) {
  EXPECT_EQ(JobFileFormatOf("a/b.yaml").value(), JobFileFormat::kYaml);
  EXPECT_EQ(JobFileFormatOf("b.YML").value(), JobFileFormat::kYaml);
  EXPECT_EQ(JobFileFormatOf("b.json").value(), JobFileFormat::kJson);
  EXPECT_EQ(JobFileFormatOf("b.textproto").value(), JobFileFormat::kTextproto);
  EXPECT_EQ(JobFileFormatOf("b.txtpb").value(), JobFileFormat::kTextproto);
  EXPECT_THAT(JobFileFormatOf("job.toml").status().message(), HasSubstr("job.toml: the ending"));
}

TEST(JobFileTest, ExamplesAreValid) {
  for (const char* path : {"examples/fashion-mnist-mlp.yaml", "examples/fashion-mnist-cnn.yaml"}) {
    const auto job = ReadJobFile(path);
    ASSERT_TRUE(job.ok()) << job.status();
    EXPECT_GT(job->training().epochs(), 0);
  }
}

TEST(JobFileTest, TheThreeFormatsOfOneJobAreEqual) {
  const auto yaml = ReadJobFile("examples/fashion-mnist-mlp.yaml");
  const auto json = ReadJobFile("examples/fashion-mnist-mlp.json");
  const auto textproto = ReadJobFile("examples/fashion-mnist-mlp.textproto");
  ASSERT_TRUE(yaml.ok()) << yaml.status();
  ASSERT_TRUE(json.ok()) << json.status();
  ASSERT_TRUE(textproto.ok()) << textproto.status();
  EXPECT_TRUE(MessageDifferencer::Equals(*yaml, *json)) << json->DebugString();
  EXPECT_TRUE(MessageDifferencer::Equals(*yaml, *textproto)) << textproto->DebugString();
  EXPECT_EQ(yaml->training().learning_rate().schedule(), v1::LearningRate::COSINE);
  EXPECT_THAT(yaml->model().mlp().hidden(), ElementsAre(256, 128));
}

TEST(JobFileTest, NameDefaultsToTheFile) {
  const auto job = ParseJob(kLeast, JobFileFormat::kYaml, "jobs/first.try.yaml");
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->name(), "first.try");
}

TEST(JobFileTest, YamlScalars) {
  const auto job = ParseJob(absl::StrCat(kLeast, R"(
  seed: 18446744073709551615
  max_nonfinite_steps: 3
name: "123"
checkpoints: {directory: 2024, resume: True}
communication: {algorithm: Ring}
)"),
                            JobFileFormat::kYaml, "x.yaml");
  // `seed` above continues `training`, the last field of kLeast.
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->training().seed(), 18446744073709551615u);
  EXPECT_EQ(job->name(), "123");
  EXPECT_EQ(job->checkpoints().directory(), "2024");
  EXPECT_TRUE(job->checkpoints().resume());
  EXPECT_EQ(job->communication().algorithm(), v1::Communication::RING);
}

TEST(JobFileTest, JsonFollowsProtobufsMapping) {
  const auto job = ParseJob(R"({
    "name": "json",
    "model": {"mlp": {"hidden": []}},
    "data": {"idx": {"trainImages": "a\/b", "train_labels": "j\u00fcrgen \ud83d\ude00"}},
    "training": {"steps": "10", "globalBatch": 4, "microBatch": 2, "seed": "7",
                 "optimizer": {"sgd": {}}, "learningRate": {"peak": 1E-1}}
  })",
                            JobFileFormat::kJson, "x.json");
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->data().idx().train_images(), "a/b");
  EXPECT_EQ(job->data().idx().train_labels(), "j\u00fcrgen \U0001F600");
  EXPECT_EQ(job->training().steps(), 10);
  EXPECT_EQ(job->training().global_batch(), 4);
  EXPECT_EQ(job->training().learning_rate().peak(), 0.1);
}

// Whatever a file holds: an answer, no crash, no hang, and an error names the file.
TEST(JobFileTest, RandomDamageIsAnError) {
  PosixFileSystem files;
  const struct {
    const char* path;
    JobFileFormat format;
  } kSeeds[] = {{"examples/fashion-mnist-mlp.yaml", JobFileFormat::kYaml},
                {"examples/fashion-mnist-mlp.json", JobFileFormat::kJson},
                {"examples/fashion-mnist-mlp.textproto", JobFileFormat::kTextproto}};
  std::mt19937 random(20240817);
  constexpr absl::string_view kSpice = "{}[]<>:,\"'#&*!|>-?%@`~\\\n\t \0x9e.";
  int accepted = 0, refused = 0;
  for (const auto& seed : kSeeds) {
    const std::string original = ReadFile(files, seed.path, kMaxJobFileBytes).value();
    for (int round = 0; round < 700; ++round) {
      std::string text = original;
      const int edits = 1 + static_cast<int>(random() % 4);
      for (int i = 0; i < edits; ++i) {
        const size_t at = random() % text.size();
        switch (random() % 4) {
          case 0:
            text[at] = kSpice[random() % kSpice.size()];
            break;
          case 1:
            text[at] = static_cast<char>(random());
            break;
          case 2:
            text.insert(at, text.substr(random() % text.size(), random() % 40));
            break;
          default:
            text.erase(at, 1 + random() % 20);
            break;
        }
        if (text.empty()) text = " ";
      }
      const auto job = ParseJob(text, seed.format, "damaged");
      if (job.ok()) {
        ++accepted;
        // What was accepted can be sent.
        v1::JobDescription copy;
        ASSERT_TRUE(copy.ParseFromString(job->SerializeAsString()));
      } else {
        ++refused;
        ASSERT_THAT(std::string(job.status().message()),
                    MatchesRegex("damaged:[0-9]+:[0-9]+: (.|\n)+"))
            << text;
      }
    }
  }
  // Both happen often, or the test is not testing.
  EXPECT_GT(accepted, 50);
  EXPECT_GT(refused, 500);
}

}  // namespace
}  // namespace muster
