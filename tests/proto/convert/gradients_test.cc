// How gradients are sent, as a job says it.
#include <functional>
#include <limits>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/convert/job.h"
#include "tests/proto/convert/valid_job.h"

namespace muster {
namespace {

using Kind = GradientCompression::Kind;
using Sent = v1::Communication;

// A job that leaves everything about gradients open.
v1::JobDescription PlainJob() {
  v1::JobDescription job = ValidJob();
  job.clear_communication();
  job.clear_strategy();
  job.clear_switches();
  job.mutable_training()->clear_precision();
  return job;
}

TEST(GradientsTest, CompressedOnesHaveSumsInBF16) {
  v1::JobDescription job = PlainJob();
  EXPECT_EQ(JobSpecFromProto(job)->communication.compression.kind, Kind::kNone);

  job.mutable_communication()->set_gradients(Sent::INT8);
  CommunicationSpec spec = JobSpecFromProto(job)->communication;
  EXPECT_EQ(spec.gradients, DType::kBF16);
  EXPECT_EQ(spec.compression, GradientCompression{.kind = Kind::kInt8});

  job.mutable_communication()->set_gradients(Sent::TOP_K);
  EXPECT_EQ(JobSpecFromProto(job)->communication.compression.top_k_fraction, 0.01);
  job.mutable_communication()->set_top_k_fraction(0.25);
  job.mutable_training()->set_precision(v1::Training::BF16);
  spec = JobSpecFromProto(job)->communication;
  EXPECT_EQ(spec.gradients, DType::kBF16);
  EXPECT_EQ(spec.compression, (GradientCompression{.kind = Kind::kTopK, .top_k_fraction = 0.25}));
}

struct BadCase {
  const char* label;
  std::function<void(v1::JobDescription&)> spoil;
  const char* message;
};

class BadGradientsTest : public ::testing::TestWithParam<BadCase> {};

TEST_P(BadGradientsTest, AreRefusedByFieldName) {
  v1::JobDescription job = PlainJob();
  GetParam().spoil(job);
  const absl::StatusOr<JobSpec> spec = JobSpecFromProto(job);
  ASSERT_FALSE(spec.ok());
  EXPECT_EQ(spec.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(std::string(spec.status().message()), GetParam().message);
}

INSTANTIATE_TEST_SUITE_P(
    Fields, BadGradientsTest,
    ::testing::Values(
        BadCase{"UnlikeParameters",
                [](auto& j) {
                  j.mutable_training()->set_precision(v1::Training::BF16);
                  j.mutable_communication()->set_gradients(Sent::F16);
                },
                "communication.gradients: must be BF16, INT8, TOP_K or absent with "
                "training.precision BF16, got F16"},
        BadCase{"Unknown",
                [](auto& j) {
                  j.mutable_communication()->set_gradients(static_cast<Sent::GradientType>(9));
                },
                "communication.gradients: must be F32, BF16, F16, INT8, TOP_K or absent, got "
                "number 9"},
        BadCase{"FractionOfNothing",
                [](auto& j) {
                  j.mutable_communication()->set_gradients(Sent::INT8);
                  j.mutable_communication()->set_top_k_fraction(0.25);
                },
                "communication.top_k_fraction: must be absent unless communication.gradients is "
                "TOP_K, got 0.25"},
        BadCase{"FractionTooSmall",
                [](auto& j) {
                  j.mutable_communication()->set_gradients(Sent::TOP_K);
                  j.mutable_communication()->set_top_k_fraction(0.0001);
                },
                "communication.top_k_fraction: must be 0.001 to 0.5 (beyond, gradients BF16 are as "
                "few bytes), got 0.0001"},
        BadCase{"FractionThatIsNone",
                [](auto& j) {
                  j.mutable_communication()->set_gradients(Sent::TOP_K);
                  j.mutable_communication()->set_top_k_fraction(
                      std::numeric_limits<double>::quiet_NaN());
                },
                "communication.top_k_fraction: must be 0.001 to 0.5 (beyond, gradients BF16 are as "
                "few bytes), got nan"},
        BadCase{"CompressedByAStar",
                [](auto& j) {
                  j.mutable_communication()->set_gradients(Sent::INT8);
                  j.mutable_communication()->set_algorithm(Sent::STAR);
                },
                "strategy.algorithm: must be RING, DIRECT or absent with communication.gradients "
                "INT8 or TOP_K, whose contributions are exchanged directly, got star"}),
    [](const auto& info) { return std::string(info.param.label); });

}  // namespace
}  // namespace muster
