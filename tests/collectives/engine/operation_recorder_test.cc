#include "collectives/engine/operation_recorder.h"

#include <thread>

#include "collectives/engine/engine.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/collectives/engine/communicator_fixture.h"

namespace muster {
namespace {

using ::testing::HasSubstr;

TEST(OperationRecorderTest, KeepsTheLastOnesInOrder) {
  OperationRecorder recorder;
  EXPECT_TRUE(recorder.Records().empty());
  constexpr uint64_t kAdded = OperationRecorder::kCapacity + 7;
  for (uint64_t i = 0; i < kAdded; ++i) {
    auto operation = std::make_shared<Operation>();
    operation->step = static_cast<Step>(i);
    recorder.Add(operation);
  }
  const std::vector<OperationRecord> records = recorder.Records();
  ASSERT_EQ(records.size(), OperationRecorder::kCapacity);
  for (size_t i = 0; i < records.size(); ++i) {
    EXPECT_EQ(records[i].number, 7 + i);
    EXPECT_EQ(records[i].step, static_cast<Step>(7 + i));
  }
}

TEST(OperationRecorderTest, ACommunicatorTellsWhatItDidAndWhatItWasDoing) {
  TestFleet fleet = MakeFleet(MeshKind::kInProcess, 2);
  float input = 1, output = 0;
  CollectiveOptions options;
  options.label = "bucket-3";
  options.step = 17;
  std::thread other([&] {
    float theirs = 2, sum = 0;
    EXPECT_TRUE(fleet.ranks[1]
                    ->AllReduce(&theirs, &sum, 1, DType::kF32, ReduceOp::kSum, options)
                    .Wait()
                    .ok());
  });
  EXPECT_TRUE(fleet.ranks[0]
                  ->AllReduce(&input, &output, 1, DType::kF32, ReduceOp::kSum, options)
                  .Wait()
                  .ok());
  other.join();
  // Nobody answers these, of which one has to wait for the others.
  constexpr size_t kBarriers = Engine::kMostActive + 1;
  std::vector<Work> works;
  for (size_t i = 0; i < kBarriers; ++i) works.push_back(fleet.ranks[0]->Barrier());
  fleet.ranks[0]->Abort(absl::UnavailableError("rank 1 is gone"), 1);
  for (Work& work : works) EXPECT_FALSE(work.Wait().ok());

  const std::vector<OperationRecord> records = fleet.ranks[0]->RecentOperations();
  ASSERT_EQ(records.size(), 1 + kBarriers);
  EXPECT_THAT(records[0].what, HasSubstr("all-reduce #1"));
  EXPECT_EQ(records[0].label, "bucket-3");
  EXPECT_EQ(records[0].step, 17);
  EXPECT_EQ(records[0].state, OperationState::kDone);
  EXPECT_LE(records[0].issued_at, records[0].started_at);
  EXPECT_LE(records[0].started_at, records[0].ended_at);
  for (size_t i = 1; i <= kBarriers; ++i) {
    EXPECT_THAT(records[i].what, HasSubstr("barrier"));
    EXPECT_EQ(records[i].state, OperationState::kFailed);
    EXPECT_THAT(std::string(records[i].status.message()), HasSubstr("rank 1 is gone"));
    EXPECT_NE(records[i].ended_at, absl::InfiniteFuture());
  }
  EXPECT_EQ(records[kBarriers].started_at, absl::InfiniteFuture());
}

}  // namespace
}  // namespace muster
