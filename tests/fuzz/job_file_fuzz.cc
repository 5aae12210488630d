// Job files in each of their formats.
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "client/job_file.h"
#include "google/protobuf/text_format.h"
#include "google/protobuf/util/json_util.h"
#include "proto/convert/job.h"
#include "tests/fuzz/targets.h"
#include "tests/proto/convert/valid_job.h"

namespace muster {
namespace {

std::string AsTextproto(const v1::JobDescription& job) {
  std::string text;
  MUSTER_CHECK(google::protobuf::TextFormat::PrintToString(job, &text));
  return text;
}

template <JobFileFormat kFormat>
FuzzOutcome Run(absl::string_view text) {
  const absl::StatusOr<v1::JobDescription> job = ParseJob(text, kFormat, "job");
  if (!job.ok()) {
    MUSTER_CHECK(job.status().message().substr(0, 4) == "job:") << job.status().ToString();
    return Refused(job.status(), {absl::StatusCode::kInvalidArgument});
  }
  MUSTER_CHECK(JobSpecFromProto(*job).ok());
  // The same job, however it is written.
  const absl::StatusOr<v1::JobDescription> again =
      ParseJob(AsTextproto(*job), JobFileFormat::kTextproto, "again");
  MUSTER_CHECK(again.ok()) << again.status().ToString();
  MUSTER_CHECK(again->SerializeAsString() == job->SerializeAsString());
  return FuzzOutcome::kAccepted;
}

std::vector<std::string> TextprotoSeeds() {
  return {AsTextproto(ValidJob()),
          "# Comments\nmodel: <mlp: <hidden: [8, 4]>>\n"
          "data { idx { train_images: \"/d/\" 'i' train_labels: '/l' } }\n"
          "training { epochs: 1e1 global_batch: 0x10 micro_batch: 4 optimizer { sgd {} }\n"
          "  learning_rate { peak: .1f } }\n"};
}

std::vector<std::string> JsonSeeds() {
  std::string json;
  MUSTER_CHECK(google::protobuf::util::MessageToJsonString(ValidJob(), &json).ok());
  return {json};
}

std::vector<std::string> YamlSeeds() {
  // JSON is YAML, and block style is what people write.
  std::vector<std::string> seeds;
  seeds.push_back(
      "# Comment\nname: a-b\nmodel:\n  cnn: {channels: [8, 16], hidden: [32]}\n"
      "data:\n  idx:\n    train_images: \"/d/i\"\n    train_labels: '/d/l'\n"
      "training:\n  steps: 100\n  global_batch: 64\n  micro_batch: 16\n  seed: 1\n"
      "  optimizer:\n    adamw: {beta1: 0.8}\n    weight_decay: 1e-3\n"
      "  learning_rate:\n    peak: 0.1\n    schedule: linear\n    warmup_steps: 5\n");
  seeds.push_back(
      "model: {mlp: {}}\ndata: {idx: {train_images: /i, train_labels: /l}}\n"
      "training: {steps: 1, global_batch: 2, micro_batch: 1, optimizer: {sgd: {}},\n"
      "           learning_rate: {peak: 1}}\ncheckpoints:\n  directory: >-\n    /folded\n");
  return seeds;
}

}  // namespace

const FuzzTarget kJobYamlTarget = {"job_yaml", Run<JobFileFormat::kYaml>, YamlSeeds, 4'096};
const FuzzTarget kJobJsonTarget = {"job_json", Run<JobFileFormat::kJson>, JsonSeeds, 4'096};
const FuzzTarget kJobTextprotoTarget = {"job_textproto", Run<JobFileFormat::kTextproto>,
                                        TextprotoSeeds, 4'096};

}  // namespace muster
