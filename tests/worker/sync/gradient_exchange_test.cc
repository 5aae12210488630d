#include "worker/sync/gradient_exchange.h"

#include <cmath>
#include <cstring>
#include <thread>

#include "collectives/transport/in_process_transport.h"
#include "gtest/gtest.h"
#include "state/bucket_slices.h"
#include "state/clip_norm.h"
#include "state/view_map.h"
#include "tests/collectives/engine/communicator_fixture.h"

namespace muster {
namespace {

constexpr Step kStep = 9;

// Three blocks, of which the first is so small that some ranks own nothing of it.
Layout TestLayout() {
  std::vector<TensorSpec> tensors(3);
  const int64_t counts[] = {10, 3000, 1111};
  for (int i = 0; i < 3; ++i) {
    tensors[i].name = absl::StrCat("tensor", i);
    tensors[i].shape = {counts[i]};
    tensors[i].block = i;
  }
  return Layout::Create(std::move(tensors), 1024).value();
}

std::vector<float> Gradient(const Layout& layout, Rank rank) {
  const Bytes bytes = RandomElements(DType::kF32, layout.padded_count(), 3, rank);
  std::vector<float> gradient(static_cast<size_t>(layout.padded_count()));
  std::memcpy(gradient.data(), bytes.data(), bytes.size());
  return gradient;
}

struct Path {
  MeshKind kind;
  Algorithm algorithm;
};

class GradientExchangeTest : public testing::TestWithParam<Path> {};

// Replicated gradients have, bit for bit, the sums that owners of slices make of them by
// themselves: a sharded strategy may take over at any step.
TEST_P(GradientExchangeTest, SumsEachSliceInTheOrderOfItsOwner) {
  for (const int size : {1, 2, 3, 5}) {
    SCOPED_TRACE(absl::StrCat(size, " ranks"));
    const Layout layout = TestLayout();
    const BucketSlices slices = BucketSlices::Even(layout, size).value();
    std::vector<std::vector<float>> contributions;
    for (Rank r = 0; r < size; ++r) contributions.push_back(Gradient(layout, r));
    std::vector<float> expected(contributions[0].size());
    for (const OwnedRange& piece : slices.PiecesOf({0, layout.padded_count()})) {
      for (int64_t i = piece.range.offset; i < piece.range.end(); ++i) {
        float sum = contributions[(piece.owner + 1) % size][i];
        for (int k = 2; k <= size; ++k) sum += contributions[(piece.owner + k) % size][i];
        expected[i] = sum;
      }
    }
    TestFleet fleet = MakeFleet(GetParam().kind, size);
    RunRanks(size, [&](Rank r) {
      GradientExchangeOptions options;
      options.algorithm = GetParam().algorithm;
      View view;
      view.members.resize(size);
      GradientExchange exchange(ShardMesh(*fleet.ranks[r]), layout, view, options);
      std::vector<float> gradient = contributions[r];
      for (int block = layout.block_count() - 1; block >= 0; --block) {
        exchange.Start(kStep, block, gradient.data() + layout.RangeOfBlock(block).offset);
      }
      const absl::Status status = exchange.Finish();
      ASSERT_TRUE(status.ok()) << status;
      ASSERT_EQ(gradient, expected) << "rank " << r;
    });
  }
}

// The same sums where the state is in shards: of each slice at its owner and its replicas, whether
// blocks are finished one by one or all at the end.
TEST_P(GradientExchangeTest, HandsEachSliceToAllWhoHoldItsShard) {
  for (const int size : {1, 2, 3, 5}) {
    for (const int replicas : {0, 1, 2}) {
      SCOPED_TRACE(absl::StrCat(size, " ranks, ", replicas, " replicas"));
      const Layout layout = TestLayout();
      View view;
      view.members.resize(size);
      view.strategy.stage = 2;
      view.strategy.replicas = replicas;
      const ViewMap map = MapOf(view, layout).value();
      std::vector<std::vector<float>> contributions;
      for (Rank r = 0; r < size; ++r) contributions.push_back(Gradient(layout, r));
      TestFleet fleet = MakeFleet(GetParam().kind, size);
      RunRanks(size, [&](Rank r) {
        GradientExchangeOptions options;
        options.algorithm = GetParam().algorithm;
        GradientExchange exchange(ShardMesh(*fleet.ranks[r]), layout, view, options);
        std::vector<float> gradient = contributions[r];
        for (int block = layout.block_count() - 1; block >= 0; --block) {
          exchange.Start(kStep, block, gradient.data() + layout.RangeOfBlock(block).offset);
          if (block == 1) {
            ASSERT_TRUE(exchange.FinishBlock(2).ok());
          }
        }
        const absl::Status status = exchange.Finish();
        ASSERT_TRUE(status.ok()) << status;
        for (const Range& held : map.map.RangesHeldBy(r)) {
          for (int64_t i = held.offset; i < held.end(); ++i) {
            const Rank owner = map.map.OwnerOf(i);
            float sum = contributions[(owner + 1) % size][i];
            for (int k = 2; k <= size; ++k) sum += contributions[(owner + k) % size][i];
            ASSERT_EQ(gradient[i], sum) << "rank " << r << ", element " << i;
          }
        }
      });
    }
  }
}

// First over the members of each group in its order, then over the groups in the order of
// AllReduce: the same on all holders of a shard. With one group that is the plain sum.
TEST_P(GradientExchangeTest, SumsWithinGroupsAndThenAcross) {
  struct Case {
    int groups;
    int size;
  };
  for (const Case& each : {Case{1, 3}, Case{2, 2}, Case{3, 1}, Case{2, 3}, Case{4, 2}}) {
    SCOPED_TRACE(absl::StrCat(each.groups, " groups of ", each.size));
    const int ranks = each.groups * each.size;
    const Layout layout = TestLayout();
    View view;
    view.members.resize(static_cast<size_t>(ranks));
    view.strategy.stage = 2;
    view.strategy.replicas = 0;
    view.strategy.group_size = each.size;
    const ViewMap map = MapOf(view, layout).value();
    const BucketSlices slices = BucketSlices::Even(layout, each.size).value();
    std::vector<std::vector<float>> contributions;
    for (Rank r = 0; r < ranks; ++r) contributions.push_back(Gradient(layout, r));
    std::vector<float> expected(contributions[0].size());
    const auto of_group = [&](int group, Rank place, int64_t element) {
      const auto of = [&](int member) {
        return contributions[static_cast<size_t>(group * each.size + member % each.size)]
                            [static_cast<size_t>(element)];
      };
      float sum = of(place + 1);
      for (int k = 2; k <= each.size; ++k) sum += of(place + k);
      return sum;
    };
    for (size_t bucket = 0; bucket < layout.buckets().size(); ++bucket) {
      for (Rank place = 0; place < each.size; ++place) {
        const Range slice = slices.SliceOf(static_cast<int>(bucket), place);
        for (int64_t i = 0; i < slice.count; ++i) {
          int c = 0;  // whose chunk of the all-reduce across the element is
          while (i >= ChunkOf(slice.count, each.groups, c).offset +
                          ChunkOf(slice.count, each.groups, c).count) {
            ++c;
          }
          float sum = of_group((c + 1) % each.groups, place, slice.offset + i);
          for (int k = 2; k <= each.groups; ++k) {
            sum += of_group((c + k) % each.groups, place, slice.offset + i);
          }
          expected[static_cast<size_t>(slice.offset + i)] = sum;
        }
      }
    }
    TestFleet fleet = MakeFleet(GetParam().kind, ranks);
    RunRanks(ranks, [&](Rank r) {
      GradientExchangeOptions options;
      options.algorithm = GetParam().algorithm;
      const auto mesh = ShardMesh::Connect(*fleet.ranks[r], view, options.timeout);
      ASSERT_TRUE(mesh.ok()) << mesh.status();
      EXPECT_EQ(mesh->across() != nullptr, each.groups > 1);
      GradientExchange exchange(*mesh, layout, view, options);
      std::vector<float> gradient = contributions[r];
      for (int block = layout.block_count() - 1; block >= 0; --block) {
        exchange.Start(kStep, block, gradient.data() + layout.RangeOfBlock(block).offset);
        if (block == 0) {
          ASSERT_TRUE(exchange.FinishBlock(2).ok());
        }
      }
      const absl::Status status = exchange.Finish();
      ASSERT_TRUE(status.ok()) << status;
      for (const Range& held : map.map.RangesHeldBy(r)) {
        for (int64_t i = held.offset; i < held.end(); ++i) {
          ASSERT_EQ(gradient[i], expected[i]) << "rank " << r << ", element " << i;
        }
      }
      // Each element counts once.
      CommitContribution mine{.samples = 1};
      for (const Range& range : exchange.NormRanges()) {
        AddTrainedSquares(layout, range,
                          absl::MakeConstSpan(gradient).subspan(range.offset, range.count),
                          mine.squared_gradient);
      }
      const auto record = exchange.Commit(kStep, 4, mine);
      ASSERT_TRUE(record.ok()) << record.status();
      SquaredSum whole;
      AddTrainedSquares(layout, {0, layout.padded_count()}, expected, whole);
      EXPECT_EQ(record->gradient_norm, MeanGradientNorm(whole, ranks));
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Paths, GradientExchangeTest,
                         testing::Values(Path{MeshKind::kInProcess, Algorithm::kRing},
                                         Path{MeshKind::kInProcess, Algorithm::kDirect},
                                         Path{MeshKind::kTcp, Algorithm::kAuto},
                                         Path{MeshKind::kShm, Algorithm::kAuto}),
                         [](const auto& info) {
                           return absl::StrCat(NameOf(info.param.kind),
                                               info.param.algorithm == Algorithm::kAuto ? "Auto"
                                               : info.param.algorithm == Algorithm::kRing
                                                   ? "Ring"
                                                   : "Direct");
                         });

// Three buckets in two blocks; the first is of a frozen tensor alone, the second of both kinds.
Layout HalfFrozen() {
  return Layout::Create({{.name = "a", .shape = {64}, .frozen = true},
                         {.name = "b", .shape = {64}, .block = 1, .frozen = true},
                         {.name = "c", .shape = {64}, .block = 1},
                         {.name = "d", .shape = {128}, .block = 1}},
                        128)
      .value();
}

// Rank r's gradient is r + 1 everywhere; sums over three ranks are 6. A NaN in what is frozen is
// nobody's concern.
TEST(FrozenGradientsTest, AreNeitherSummedNorMeasured) {
  constexpr int kRanks = 3;
  const Layout layout = HalfFrozen();
  ASSERT_EQ(layout.buckets().size(), 3u);
  auto mesh = MakeInProcessMesh(kRanks);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kRanks; ++rank) {
    threads.emplace_back([&, rank] {
      const auto communicator = Communicator::Create(std::move(mesh[rank])).value();
      View view;
      view.members.resize(kRanks);
      GradientExchange exchange(ShardMesh(*communicator), layout, view, {});
      std::vector<float> gradient(layout.padded_count(), static_cast<float>(rank + 1));
      if (rank == 1) gradient[layout.Find("b")->offset] = NAN;
      for (int block = 1; block >= 0; --block) {
        exchange.Start(1, block, gradient.data() + layout.RangeOfBlock(block).offset);
      }
      ASSERT_TRUE(exchange.Finish().ok());
      for (const char* summed : {"c", "d"}) {
        EXPECT_EQ(gradient[layout.Find(summed)->offset + 5], 6) << summed;
      }
      EXPECT_EQ(gradient[layout.Find("a")->offset + 5], rank + 1) << "moved for nothing";

      CommitContribution mine{.loss_sum = 1, .samples = 2};
      for (const Range& range : exchange.NormRanges()) {
        AddTrainedSquares(layout, range,
                          absl::MakeConstSpan(gradient).subspan(range.offset, range.count),
                          mine.squared_gradient);
      }
      const auto record = exchange.Commit(1, 4, mine);
      ASSERT_TRUE(record.ok()) << record.status();
      EXPECT_TRUE(record->finite);
      // 192 elements of 6, six samples.
      EXPECT_DOUBLE_EQ(record->gradient_norm, 6 * std::sqrt(192.0) / 6);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace muster
