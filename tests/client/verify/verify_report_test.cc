#include "client/verify/verify_report.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace muster {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

VerifyResult Result(const std::string& name, Verdict verdict) {
  VerifyResult result{.run = {.name = name}, .verdict = verdict, .steps = 50};
  result.parameters_sha256 = "0123456789abcdef0123";
  return result;
}

VerifyResult Killed() {
  VerifyResult result = Result("switches-kill-moving", Verdict::kEqual);
  result.run.kill = Kill::kMoving;
  result.run.strategy.stage = 1;
  result.run.switches = {{.after = 12, .strategy = {.algorithm = SyncAlgorithm::kRing}}};
  result.run.killed_worker = 2;
  result.killed_after = 14;
  return result;
}

VerifyResult Differing() {
  VerifyResult result = Result("stage-2-tcp", Verdict::kDiffers);
  result.run.strategy = {.stage = 2, .transport = SyncTransport::kTcp};
  FirstDifference first{
      .step = 8, .last_equal = 7, .paths = {"a/step-00000008", "b/step-00000008"}};
  first.difference = {.tensor = "fc1.weight",
                      .of = "parameters",
                      .what = "values",
                      .element = 64,
                      .index = {2, 4},
                      .bits = {"0x3f800000", "0x3f800001"},
                      .values = {"1", "1.00000012"},
                      .differing = 3,
                      .elements = 150,
                      .differing_tensors = 2,
                      .tensors = 8};
  result.location = Location{.first = first};
  return result;
}

TEST(VerifyReportTest, TheTableHasALineForEachRun) {
  EXPECT_EQ(HeadLine(), "RUN                           STEPS  PARAMETERS    VERDICT");
  EXPECT_EQ(ResultLine(Result("ring-tcp", Verdict::kReference)),
            "ring-tcp                         50  0123456789ab  reference");
  EXPECT_THAT(ResultLine(Differing()), HasSubstr("0123456789ab  DIFFERS"));
  VerifyResult skipped{.run = {.name = "stage-1-tcp"}, .verdict = Verdict::kSkipped};
  skipped.reason = "LAMB";
  EXPECT_EQ(ResultLine(skipped),
            "stage-1-tcp                       -  -             skipped: LAMB");
}

TEST(VerifyReportTest, SaysWhereRunsPart) {
  VerifyResult lost = Result("window-shm", Verdict::kDiffers);
  lost.location = Location{.problem = "a rerun was equal"};
  EXPECT_THAT(
      ClosingLines({Result("ring-tcp", Verdict::kReference), Differing(), Killed(), lost}),
      ElementsAre(
          "switches-kill-moving: stage 1, 1 replica; after step 12 replicated, ring; worker-2 "
          "killed "
          "after step 14",
          "stage-2-tcp differs after step 8 (equal after step 7), which was taken by \"stage 2, 1 "
          "replica, tcp\": tensor fc1.weight, element 64 at (2, 4): 0x3f800000 (1) in the "
          "reference, 0x3f800001 (1.00000012) here; 3 of its 150 elements differ, and 2 of 8 "
          "tensors; see muster-checkpoint diff a/step-00000008 b/step-00000008",
          "window-shm differs from the reference: a rerun was equal",
          "2 of 4 runs have equal bits, 2 differs"));
}

TEST(VerifyReportTest, OnlyEqualRunsMakeSuccess) {
  const VerifyResult reference = Result("ring-tcp", Verdict::kReference);
  const VerifyResult equal = Result("direct-tcp", Verdict::kEqual);
  const VerifyResult skipped = Result("stage-1-tcp", Verdict::kSkipped);
  EXPECT_TRUE(AllEqual({reference, equal, skipped}));
  EXPECT_FALSE(AllEqual({reference, equal, Differing()}));
  EXPECT_FALSE(AllEqual({reference, equal, Result("x", Verdict::kFailed)}));
  // Nothing was compared.
  EXPECT_FALSE(AllEqual({reference, skipped}));
  EXPECT_FALSE(AllEqual({}));
}

TEST(VerifyReportTest, JsonHasItAll) {
  const VerifyPlanOptions options{.workers = 4, .servers = 2, .steps = 50, .seed = 9};
  const json read = json::parse(
      VerifyJson("mlp", options, {Result("ring-tcp", Verdict::kReference), Killed(), Differing()}));
  EXPECT_EQ(read["job"], "mlp");
  EXPECT_EQ(read["seed"], 9);
  EXPECT_EQ(read["equal"], false);
  ASSERT_EQ(read["runs"].size(), 3u);
  EXPECT_EQ(read["runs"][0]["verdict"], "reference");
  EXPECT_EQ(read["runs"][0]["difference"], nullptr);
  EXPECT_EQ(read["runs"][0]["killed_worker"], nullptr);
  EXPECT_EQ(read["runs"][0]["parameters_sha256"], "0123456789abcdef0123");
  EXPECT_EQ(read["runs"][1]["killed_worker"], "worker-2");
  EXPECT_EQ(read["runs"][1]["killed_after_step"], 14);
  EXPECT_EQ(read["runs"][1]["switches"],
            json::parse(R"([{"after_step": 12, "strategy": "replicated, ring"}])"));
  const json& difference = read["runs"][2]["difference"];
  EXPECT_EQ(difference["step"], 8);
  EXPECT_EQ(difference["last_equal_step"], 7);
  EXPECT_EQ(difference["strategy"], "stage 2, 1 replica, tcp");
  EXPECT_EQ(difference["tensor"], "fc1.weight");
  EXPECT_EQ(difference["bits"], json::parse(R"(["0x3f800000", "0x3f800001"])"));
  EXPECT_EQ(difference["differing_elements"], 3);
}

}  // namespace
}  // namespace muster
