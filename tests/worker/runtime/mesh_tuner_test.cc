// Members of a view tune their mesh: what each logs and keeps.
#include "worker/runtime/mesh_tuner.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "tests/base/temporary_directory.h"
#include "tests/collectives/engine/communicator_fixture.h"

namespace muster {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

View ViewOf(int members, Epoch epoch) {
  View view;
  view.epoch = epoch;
  for (int i = 0; i < members; ++i) {
    Member member;
    member.host = i < 2 ? "first" : "second";
    view.members.push_back(member);
  }
  return view;
}

// What a worker keeps from view to view.
class TestWorker {
 public:
  explicit TestWorker(const std::string& cache)
      : logger_({.process = "w",
                 .write = [this](LogLevel, absl::string_view line) { lines_.emplace_back(line); }}),
        tuner_(cache, files_, logger_) {}

  MeshTuner& tuner() { return tuner_; }
  std::vector<std::string> TakeLines() { return std::exchange(lines_, {}); }

 private:
  std::vector<std::string> lines_;  // written under the logger's lock, by its only thread
  PosixFileSystem files_;
  Logger logger_;
  MeshTuner tuner_;
};

class MeshTunerTest : public testing::Test {
 protected:
  void Tune(std::vector<TestWorker*> members, Epoch epoch, const CommunicationSpec& spec = {}) {
    const int size = static_cast<int>(members.size());
    CommunicatorOptions options;
    options.any_order = spec.summation_order == CommunicationSpec::SummationOrder::kAny;
    options.hosts = HostsOf(ViewOf(size, epoch));
    fleet_ = MakeFleet(MeshKind::kInProcess, size, options);
    RunRanks(size, [&](Rank r) {
      const absl::Status status =
          members[r]->tuner().Tune(*fleet_.ranks[r], ViewOf(size, epoch), spec, "");
      EXPECT_TRUE(status.ok()) << status;
    });
  }
  std::string Why() {
    return fleet_.ranks[0]->ExplainChoice(Collective::kAllReduce, 1000, DType::kF32).why;
  }

  const TemporaryDirectory cache_;
  TestFleet fleet_;
};

TEST_F(MeshTunerTest, SaysWhatAutoStandsForAndWhy) {
  TestWorker a(cache_.path()), b(cache_.path());
  Tune({&a, &b}, 3);
  const std::vector<std::string> lines = a.TakeLines();
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_THAT(lines[0], AllOf(HasSubstr("algorithms_chosen"), HasSubstr("measured in"),
                              HasSubstr("all-reduce of 1 MiB (f32) by 2 ranks over in-process"),
                              HasSubstr("(i64)")));
  EXPECT_THAT(Why(), HasSubstr("predicted"));
  const std::optional<LinkSpeeds> speeds = a.tuner().SpeedsFor(64 << 10);
  ASSERT_TRUE(speeds.has_value());
  EXPECT_EQ(speeds->ranks, 2);
  EXPECT_GT(speeds->latency_seconds, 0);
  EXPECT_GE(speeds->one_way_seconds, speeds->wire_seconds / 2);
  EXPECT_LE(speeds->one_way_seconds, speeds->wire_seconds);
  EXPECT_EQ(speeds->shared_seconds, 0);
  EXPECT_EQ(b.tuner().SpeedsFor(64 << 10), speeds) << "all ranks go by the same";
  // The next worker process finds the file.
  TestWorker c(cache_.path()), d(cache_.path());
  Tune({&c, &d}, 4);
  EXPECT_THAT(c.TakeLines()[0], HasSubstr("from a file of rank 0"));
}

TEST_F(MeshTunerTest, ALaterViewMeasuresOnlyWhenItHasGrown) {
  TestWorker a(""), b(""), c("");
  Tune({&a, &b, &c}, 1);
  EXPECT_THAT(a.TakeLines()[0], HasSubstr("measured in"));
  Tune({&a, &b, &c}, 2);
  EXPECT_THAT(a.TakeLines()[0], HasSubstr("known to rank 0"));
  Tune({&a, &b}, 3);
  EXPECT_THAT(a.TakeLines()[0], HasSubstr("measured with 3 ranks"));
  TestWorker d("");
  Tune({&d, &a, &b, &c}, 4);
  EXPECT_THAT(d.TakeLines()[0], HasSubstr("measured in"));
}

TEST_F(MeshTunerTest, AJobThatNamesItsAlgorithmIsNotMeasured) {
  TestWorker a(""), b("");
  Tune({&a, &b}, 1, {.algorithm = CommunicationSpec::Algorithm::kRing});
  EXPECT_THAT(a.TakeLines(), IsEmpty());
  EXPECT_THAT(Why(), HasSubstr("not measured"));
  EXPECT_FALSE(a.tuner().SpeedsFor(1 << 20).has_value());
}

TEST_F(MeshTunerTest, AnySummationOrderWidensTheChoice) {
  TestWorker a(""), b(""), c("");
  Tune({&a, &b, &c}, 1);
  EXPECT_THAT(Why(), HasSubstr("left out"));
  Tune({&a, &b, &c}, 2, {.summation_order = CommunicationSpec::SummationOrder::kAny});
  EXPECT_THAT(Why(), AllOf(HasSubstr("hierarchical"), Not(HasSubstr("left out"))));
}

TEST_F(MeshTunerTest, AWorkerAloneHasNothingToMeasure) {
  TestWorker a("");
  Tune({&a}, 1);
  EXPECT_THAT(a.TakeLines(), IsEmpty());
}

TEST(HostsOfTest, MembersOfOneHostHaveOneNumber) {
  EXPECT_EQ(HostsOf(ViewOf(4, 1)), (std::vector<int32_t>{0, 0, 1, 1}));
}

}  // namespace
}  // namespace muster
