// Counts beyond 2^31, where an int somewhere would wrap: run over transports, in memory that
// repeats; and all offsets of window schedules, beyond what any machine has.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>

#include "collectives/schedule/window_schedule.h"
#include "tests/collectives/engine/communicator_fixture.h"

namespace muster {
namespace {

// `bytes` of memory that show the same few pages again and again: costs no memory, and no time to
// touch it.
class RepeatedMemory {
 public:
  static constexpr int64_t kPeriod = (1 << 20) + 4096;  // No power of two, so that a shift shows.

  explicit RepeatedMemory(int64_t bytes) : bytes_((bytes + kPeriod - 1) / kPeriod * kPeriod) {
    const int fd = memfd_create("big-counts", 0);
    EXPECT_EQ(ftruncate(fd, kPeriod), 0);
    base_ = static_cast<uint8_t*>(mmap(nullptr, static_cast<size_t>(bytes_), PROT_NONE,
                                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    for (int64_t at = 0; at < bytes_; at += kPeriod) {
      EXPECT_EQ(mmap(base_ + at, kPeriod, PROT_READ | PROT_WRITE,
                     MAP_SHARED | MAP_FIXED | MAP_POPULATE, fd, 0),
                base_ + at);
    }
    close(fd);
  }
  ~RepeatedMemory() { munmap(base_, static_cast<size_t>(bytes_)); }
  uint8_t* data() const { return base_; }

 private:
  const int64_t bytes_;
  uint8_t* base_;
};

class BigCountsTest : public testing::TestWithParam<MeshKind> {};

TEST_P(BigCountsTest, AllReduceBeyondTwoToThe31Elements) {
  // A maximum in place is the same however often it is taken, so the repetition does no harm.
  constexpr int64_t kCount = (int64_t{1} << 31) + 5;
  const RepeatedMemory memory[2] = {RepeatedMemory(kCount), RepeatedMemory(kCount)};
  const auto value = [](int64_t i, Rank r) {
    return static_cast<uint8_t>((i % 251) / (i % 2 == r ? 1 : 2));
  };
  for (Rank r = 0; r < 2; ++r) {
    for (int64_t i = 0; i < RepeatedMemory::kPeriod; ++i) memory[r].data()[i] = value(i, r);
  }
  CommunicatorOptions options;
  options.segment_bytes = 4 << 20;
  TestFleet fleet = MakeFleet(GetParam(), 2, options);
  RunRanks(2, [&](Rank r) {
    CollectiveOptions call;
    call.timeout = absl::Seconds(200);
    uint8_t* const data = memory[r].data();
    Work work = fleet.ranks[r]->AllReduce(data, data, kCount, DType::kU8, ReduceOp::kMax, call);
    ASSERT_TRUE(work.Wait().ok()) << work.status();
  });
  for (Rank r = 0; r < 2; ++r) {
    for (int64_t i = 0; i < RepeatedMemory::kPeriod; ++i) {
      ASSERT_EQ(memory[r].data()[i], std::max(value(i, 0), value(i, 1))) << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Meshes, BigCountsTest,
                         testing::Values(MeshKind::kInProcess, MeshKind::kTcp, MeshKind::kShm),
                         [](const auto& info) { return NameOf(info.param); });

// Of an all-reduce of 2^40 elements by 3 ranks, the steps of one rank that write to its output.
std::vector<WindowStep> WritesToOwnOutput(WindowMode mode, int64_t half_elements, int64_t interval,
                                          Rank rank, int64_t count) {
  ScheduleRequest request;
  request.collective = Collective::kAllReduce;
  request.algorithm = Algorithm::kWindow;
  request.size = 3;
  request.rank = rank;
  request.count = count;
  std::vector<WindowStep> result;
  for (WindowStep& step : WindowSchedule(request, mode, half_elements, 0).Steps(interval)) {
    for (const WindowSlice& target : step.targets) {
      if (target.buffer == WindowBuffer::kOutput && target.rank == rank) {
        result.push_back(step);
        break;
      }
    }
  }
  return result;
}

TEST(BigWindowSchedulesTest, TheDirectWayReachesTheLastElement) {
  constexpr int64_t kCount = (int64_t{1} << 40) + 1;
  int64_t covered = 0;
  for (Rank rank = 0; rank < 3; ++rank) {
    const auto steps = WritesToOwnOutput(WindowMode::kDirect, 1 << 10, 1, rank, kCount);
    ASSERT_EQ(steps.size(), 1u);
    EXPECT_EQ(steps[0].sources[0].offset, covered);
    covered += steps[0].count;
  }
  EXPECT_EQ(covered, kCount);
}

TEST(BigWindowSchedulesTest, TheStagedWayEndsWithTheLastElement) {
  constexpr int64_t kCount = (int64_t{1} << 40) + 1;
  constexpr int64_t kHalf = 3 << 20;
  ScheduleRequest request;
  request.collective = Collective::kAllReduce;
  request.algorithm = Algorithm::kWindow;
  request.size = 3;
  request.count = kCount;
  const WindowSchedule schedule(request, WindowMode::kStaged, kHalf, 0);
  // A piece of each chunk at a time, and three intervals to start, work and end.
  const int64_t longest = (kCount + 2) / 3;
  EXPECT_EQ(schedule.intervals(), (longest + kHalf / 3 - 1) / (kHalf / 3) + 3);
  int64_t end = 0;
  for (int64_t i = schedule.intervals() - 3; i < schedule.intervals(); ++i) {
    for (Rank rank = 0; rank < 3; ++rank) {
      for (const WindowStep& step :
           WritesToOwnOutput(WindowMode::kStaged, kHalf, i, rank, kCount)) {
        for (const WindowSlice& target : step.targets) {
          if (target.buffer == WindowBuffer::kOutput) {
            end = std::max(end, target.offset + step.count);
          }
        }
      }
    }
  }
  EXPECT_EQ(end, kCount);
}

}  // namespace
}  // namespace muster
