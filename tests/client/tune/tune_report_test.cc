#include "client/tune/tune_report.h"

#include <string>
#include <vector>

#include "client/tune/local_mesh.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/base/temporary_directory.h"

namespace muster {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(ParseSizesTest, ListsAndRangesByFours) {
  EXPECT_THAT(*ParseSizes("4096"), ElementsAre(4096));
  EXPECT_THAT(*ParseSizes("1KiB-100KiB"), ElementsAre(1024, 4096, 16384, 65536));
  EXPECT_THAT(*ParseSizes("1KiB-1KiB,64KiB,1MiB"), ElementsAre(1024, 65536, 1 << 20));
  EXPECT_THAT(*ParseSizes("4GiB"), ElementsAre(int64_t{1} << 32));
}

TEST(ParseSizesTest, WhatIsNoSizeIsRefusedByItsText) {
  for (const char* bad : {"", "x", "0", "-4", "3", "1kb", "4,", "5GiB", "4-", "64KiB-1KiB",
                          "9223372036854775807KiB", "1KiB-2KiB-4KiB"}) {
    EXPECT_EQ(ParseSizes(bad).status().code(), absl::StatusCode::kInvalidArgument) << bad;
  }
  EXPECT_THAT(std::string(ParseSizes("1KiB,7").status().message()), HasSubstr("got \"7\""));
}

class TuneReportTest : public testing::TestWithParam<const char*> {
 protected:
  TuneRequest Request() const {
    TuneRequest request;
    request.transport = GetParam();
    request.ranks = 3;
    request.bytes = {256, 64 << 10};
    request.budget = absl::Seconds(60);
    request.rounds = 1;
    request.host = "here";
    request.software_version = "test";
    return request;
  }
  PosixFileSystem files_;
};

TEST_P(TuneReportTest, ShowsAndVerifiesTheChoiceOfEachSize) {
  TuneRequest request = Request();
  request.verify = true;
  const auto report = MakeTuneReport(request, files_);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->model->ranks, 3);
  ASSERT_EQ(report->rows.size(), 2u);
  for (const TuneRow& row : report->rows) {
    EXPECT_EQ(row.measured.size(), row.choice.considered.size());
    EXPECT_GE(row.ratio(), 1);
    EXPECT_GT(row.best_seconds, 0);
  }
  const std::vector<std::string> lines = ReportLines(request, *report, /*explain=*/true);
  const std::string row = lines[lines.size() - 2];
  EXPECT_THAT(row, HasSubstr("64KiB"));
  EXPECT_THAT(row, HasSubstr(Name(report->rows[1].choice.algorithm)));
  EXPECT_THAT(lines.back(), HasSubstr("all-reduce of 64 KiB (f32) by 3 ranks"));
  EXPECT_EQ(ReportLines(request, *report, /*explain=*/false).size(), lines.size() - 2);
  const std::vector<std::string> objects = ReportJson(request, *report);
  ASSERT_EQ(objects.size(), 2u);
  const auto json = nlohmann::json::parse(objects[1]);
  EXPECT_EQ(json["bytes"], 64 << 10);
  EXPECT_EQ(json["transport"], GetParam());
  EXPECT_EQ(json["algorithm"], Name(report->rows[1].choice.algorithm));
  EXPECT_EQ(json["candidates"].size(), report->rows[1].measured.size());
  EXPECT_GT(json["candidates"][0]["measured_us"], 0);
  EXPECT_GE(json["ratio"], 1);
}

INSTANTIATE_TEST_SUITE_P(Transports, TuneReportTest, testing::Values("inproc", "shm", "tcp", "ofi"),
                         [](const auto& info) { return std::string(info.param); });

class TuneCollectivesTest : public TuneReportTest {};

TEST_P(TuneCollectivesTest, EveryCollectiveOfAllRanks) {
  for (const Collective collective : kAllCollectives) {
    if (collective == Collective::kSendReceive) continue;
    TuneRequest request = Request();
    request.collective = collective;
    request.bytes = {4096};
    request.any_order = true;
    request.verify = true;
    const auto report = MakeTuneReport(request, files_);
    ASSERT_TRUE(report.ok()) << Name(collective) << ": " << report.status();
    const auto json = nlohmann::json::parse(ReportJson(request, *report)[0]);
    EXPECT_EQ(json["collective"], Name(collective));
    EXPECT_FALSE(json["candidates"].empty());
  }
}

TEST_P(TuneCollectivesTest, AKeptModelIsTakenAndADamagedOneIsAWarning) {
  const TemporaryDirectory cache;
  TuneRequest request = Request();
  request.cache_directory = cache.path();
  ASSERT_TRUE(MakeTuneReport(request, files_).ok());
  const auto again = MakeTuneReport(request, files_);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_THAT(again->source, HasSubstr("file"));
  EXPECT_THAT(again->warnings, IsEmpty());
  const std::string name = files_.ListDirectory(cache.path())->front();
  ASSERT_TRUE(ReplaceFileAtomically(files_, cache.Path(name), "x\ny\nz").ok());
  const auto anew = MakeTuneReport(request, files_);
  ASSERT_TRUE(anew.ok()) << anew.status();
  EXPECT_THAT(anew->source, HasSubstr("measured"));
  EXPECT_THAT(ReportLines(request, *anew, false)[2], HasSubstr("warning"));
}

TEST_P(TuneCollectivesTest, ABudgetInWhichNothingIsMeasuredIsAnErrorAndKeepsNothing) {
  const TemporaryDirectory cache;
  TuneRequest request = Request();
  request.cache_directory = cache.path();
  request.budget = absl::Nanoseconds(1);
  const absl::Status status = MakeTuneReport(request, files_).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("--budget-ms"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("was not measured"));
  EXPECT_THAT(*files_.ListDirectory(cache.path()), IsEmpty());
}

INSTANTIATE_TEST_SUITE_P(InProcess, TuneCollectivesTest, testing::Values("inproc"));

TEST(LocalMeshTest, WhatItCannotBeIsAnError) {
  EXPECT_EQ(LocalMesh::Create("pigeon", 2, {}).status().code(), absl::StatusCode::kInvalidArgument);
}

// Each rank maps the memory of all: with all in one process that is the square of their number.
TEST(LocalMeshTest, AsManyRanksAsTheCommandTakesShareMemory) {
  const auto mesh = LocalMesh::Create("shm", 64, {});
  ASSERT_TRUE(mesh.ok()) << mesh.status();
  EXPECT_EQ((*mesh)->size(), 64);
  EXPECT_TRUE((*mesh)->Allocate(63, 1 << 20).ok());
}

TEST(LocalMeshTest, ARankThatFailsEndsTheWaitOfOthers) {
  const auto mesh = LocalMesh::Create("inproc", 3, {});
  ASSERT_TRUE(mesh.ok()) << mesh.status();
  const absl::Status status = (*mesh)->OnAllRanks([](Communicator& own) -> absl::Status {
    if (own.rank() == 1) return absl::DataLossError("spilled");
    return own.Barrier().Wait();
  });
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(std::string(status.message()), HasSubstr("spilled"));
}

}  // namespace
}  // namespace muster
