// The formulas of base/control/state_memory.h against what is allocated, and what is refused.
#include "worker/runtime/job_memory.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/control/state_memory.h"
#include "base/text.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "state/view_map.h"
#include "tests/base/temporary_directory.h"
#include "tests/worker/runtime/small_job.h"
#include "tests/worker/runtime/trainer_rig.h"
#include "worker/runtime/replica.h"

namespace muster {
namespace {

using ::testing::HasSubstr;

// `blocks` of 40,000 parameters each.
Layout BlocksOf(int blocks) {
  std::vector<TensorSpec> tensors;
  for (int block = 0; block < blocks; ++block) {
    tensors.push_back({.name = absl::StrCat("w", block), .shape = {200, 200}, .block = block});
  }
  return Layout::Create(std::move(tensors), 1 << 14).value();
}

View ViewWith(const Strategy& strategy, const CrewSize& crew) {
  View view = ViewOf(crew.workers + crew.servers, 1);
  view.strategy = strategy;
  for (int i = 0; i < crew.workers + crew.servers; ++i) {
    Member& member = view.members[static_cast<size_t>(i)];
    member.incarnation = Incarnation{static_cast<uint64_t>(i) + 1};
    member.host = absl::StrCat("h", i);
    if (i >= crew.workers) member.role = MemberRole::kParameterServer;
  }
  return view;
}

class StateBytesTest : public testing::Test {
 protected:
  // What the member of that rank really allocates.
  int64_t Allocated(const Layout& layout, const View& view, const StateSize& size, Rank rank) {
    const auto rule = UpdateRule::Create(AdamWOptions{}, layout).value();
    Replica replica(layout, *rule, LearningRateOptions{}, 0);
    const bool computes = rank < view.workers();
    replica.Initialize(1, StateTag{},
                       view.strategy.sharded() ? MapOf(view, layout).value().map.RangesHeldBy(rank)
                                               : std::vector<Range>{{0, layout.padded_count()}});
    const auto type = [](int32_t bytes) { return bytes == 2 ? DType::kBF16 : DType::kF32; };
    EXPECT_TRUE(replica
                    .Equip({.stage = view.strategy.sharded_stage(),
                            .accumulates = computes && size.micro_batches > view.workers(),
                            .computes = computes,
                            .parameters = type(size.parameter_bytes),
                            .gradients = type(size.gradient_bytes)})
                    .ok());
    return replica.buffers().bytes() +
           replica.part().element_count() * Replica::FloatsPerElement(*rule) * 4;
  }

  void Compare(const Layout& layout, const Strategy& strategy, const CrewSize& crew,
               int32_t parameter_bytes, int32_t gradient_bytes, int32_t micro_batches) {
    StateSize size{.elements = layout.padded_count(),
                   .gathered_blocks = StepBuffers::GatheredBlocks(layout),
                   .bucket = 1 << 14,
                   .slots = 2,
                   .parameter_bytes = parameter_bytes,
                   .gradient_bytes = gradient_bytes,
                   .micro_batches = micro_batches};
    for (int block = 0; block < layout.block_count(); ++block) {
      size.largest_block = std::max(size.largest_block, layout.RangeOfBlock(block).count);
    }
    const View view = ViewWith(strategy, crew);
    int64_t most[2] = {0, 0};
    for (Rank rank = 0; rank < crew.workers + crew.servers; ++rank) {
      int64_t& of_role = most[rank < crew.workers ? 0 : 1];
      of_role = std::max(of_role, Allocated(layout, view, size, rank));
    }
    for (const MemberRole role : {MemberRole::kWorker, MemberRole::kParameterServer}) {
      if (role == MemberRole::kParameterServer && crew.servers == 0) continue;
      const auto real = static_cast<double>(most[role == MemberRole::kWorker ? 0 : 1]);
      const auto formula = static_cast<double>(StateBytes(size, strategy, crew, role));
      // Replicas of an uneven cut are counted as the largest there may be.
      const bool uneven = strategy.mixed && strategy.replicas > 0;
      EXPECT_LE(real, 1.01 * formula) << ToString(strategy) << ", " << Name(role);
      if (!uneven) {
        EXPECT_GE(real, 0.99 * formula) << ToString(strategy) << ", " << Name(role);
      }
    }
  }
};

TEST_F(StateBytesTest, AreThoseAllocated) {
  // Of two blocks each has a place of its own.
  for (const int blocks : {2, 12}) {
    const Layout layout = BlocksOf(blocks);
    for (const auto& [parameters, gradients] : {std::pair(4, 4), {4, 2}, {2, 2}}) {
      for (const int micro_batches : {1, 16}) {
        for (const int replicas : {0, 1}) {
          for (int32_t stage = 0; stage <= kMaxStage; ++stage) {
            const Strategy strategy{.stage = stage, .replicas = replicas};
            for (const int workers : {1, 2, 4}) {
              Compare(layout, strategy, {.workers = workers}, parameters, gradients, micro_batches);
            }
          }
          for (const int32_t stage : {1, 2, 3}) {
            const Strategy strategy{.stage = stage, .replicas = replicas, .group_size = 2};
            Compare(layout, strategy, {.workers = 4, .groups = 2}, parameters, gradients,
                    micro_batches);
          }
          for (const int servers : {1, 2}) {
            for (const bool mixed : {false, true}) {
              const Strategy strategy{.sync = SyncPath::kParameterServer,
                                      .replicas = replicas,
                                      .servers = servers,
                                      .mixed = mixed};
              Compare(layout, strategy, {.workers = 3, .servers = servers}, parameters, gradients,
                      micro_batches);
            }
          }
        }
      }
    }
  }
}

class CheckMemoryTest : public testing::Test {
 protected:
  std::unique_ptr<JobContext> Job(const JobSpec& spec) {
    return JobContext::Create("job", spec, files_, *device_).value();
  }

  PosixFileSystem files_;
  std::unique_ptr<Device> device_ = CreateDevice("cpu", {}).value();
  TemporaryDirectory directory_;
  JobSpec spec_ = SmallJob(files_, directory_.path());
};

TEST_F(CheckMemoryTest, LooksAtEveryStrategyOfTheSchedule) {
  spec_.workers.start = 4;
  spec_.strategy = {.stage = 3, .replicas = 0};
  const StateSize size = StateSizeOf(*Job(spec_));
  EXPECT_EQ(size.slots, 2);
  EXPECT_EQ(size.micro_batches, 12);
  const int64_t whole = StateBytes(size, {.stage = 1}, {.workers = 1}, MemberRole::kWorker);
  const int64_t sharded = StateBytes(size, spec_.strategy, {.workers = 4}, MemberRole::kWorker);
  ASSERT_LT(sharded, whole);
  EXPECT_TRUE(CheckMemory(*Job(spec_), MemberRole::kWorker, sharded).ok());
  EXPECT_TRUE(CheckMemory(*Job(spec_), MemberRole::kWorker, std::nullopt).ok());
  EXPECT_FALSE(CheckMemory(*Job(spec_), MemberRole::kWorker, sharded - 1).ok());
  spec_.switches = {{.after = 7, .strategy = {.stage = 1, .replicas = 3}}};
  const absl::Status refused = CheckMemory(*Job(spec_), MemberRole::kWorker, sharded);
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(refused.message(), HasSubstr("(stage 1, 3 replicas, after step 7)"));
  // As policy auto writes bytes, down to the smallest.
  EXPECT_THAT(refused.message(), HasSubstr(absl::StrCat(ByteText(sharded), " are available")));
  EXPECT_THAT(CheckMemory(*Job(spec_), MemberRole::kWorker, 512).message(),
              HasSubstr(absl::StrCat("state take ", ByteText(sharded), " (stage 3, 0 replicas), ",
                                     "512 B are available")));
  // What the coordinator chooses it compares itself.
  spec_.switches[0].automatic = true;
  EXPECT_TRUE(CheckMemory(*Job(spec_), MemberRole::kWorker, sharded).ok());
  spec_.automatic = true;
  EXPECT_TRUE(CheckMemory(*Job(spec_), MemberRole::kWorker, 1).ok());
}

// Of groups each holds all of it; which hosts there will be a worker does not know.
TEST_F(CheckMemoryTest, CountsTheMembersOfAGroup) {
  spec_.workers.start = 4;
  const StateSize size = StateSizeOf(*Job(spec_));
  const auto bytes = [&](int workers) {
    return StateBytes(size, {.stage = 1, .replicas = 0}, {.workers = workers}, MemberRole::kWorker);
  };
  spec_.strategy = {.stage = 1, .group_size = 2};
  EXPECT_TRUE(CheckMemory(*Job(spec_), MemberRole::kWorker, bytes(2)).ok());
  EXPECT_FALSE(CheckMemory(*Job(spec_), MemberRole::kWorker, bytes(2) - 1).ok());
  spec_.strategy = {.stage = 1, .host_groups = true};
  EXPECT_TRUE(CheckMemory(*Job(spec_), MemberRole::kWorker, bytes(4)).ok());
  EXPECT_FALSE(CheckMemory(*Job(spec_), MemberRole::kWorker, bytes(4) - 1).ok());
}

TEST_F(CheckMemoryTest, AServerNeedsNothingOfAJobWithoutServers) {
  EXPECT_TRUE(CheckMemory(*Job(spec_), MemberRole::kParameterServer, 1).ok());
  spec_.strategy = {.sync = SyncPath::kParameterServer, .servers = 2};
  EXPECT_FALSE(CheckMemory(*Job(spec_), MemberRole::kParameterServer, 1).ok());
}

}  // namespace
}  // namespace muster
