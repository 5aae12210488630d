// Gradients whose contributions are compressed, under every strategy, against the definition.
#include "worker/sync/compressed_sums.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/float16.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/collectives/engine/communicator_fixture.h"
#include "worker/sync/gradient_exchange.h"

namespace muster {
namespace {

constexpr Step kStep = 9;
constexpr GradientCompression kInt8 = {.kind = GradientCompression::Kind::kInt8};

GradientCompression TopK(double fraction) {
  return {.kind = GradientCompression::Kind::kTopK, .top_k_fraction = fraction};
}

// Three blocks, the first so small that most ranks own nothing of it; the second has a frozen
// tensor amid, and one bucket of that alone.
Layout TestLayout() {
  std::vector<TensorSpec> tensors;
  const auto add = [&](int64_t count, int block, bool frozen) {
    tensors.push_back({.name = absl::StrCat("tensor", tensors.size()),
                       .shape = {count},
                       .block = block,
                       .frozen = frozen});
  };
  add(10, 0, false);
  add(2900, 1, false);
  add(4500, 1, true);
  add(1777, 1, false);
  add(2048, 2, false);
  return Layout::Create(std::move(tensors), 2048).value();
}

std::vector<bool> Trained(const Layout& layout) {
  std::vector<bool> trained(static_cast<size_t>(layout.padded_count()), false);
  for (const Range& range : layout.trained_ranges()) {
    for (int64_t i = range.offset; i < range.end(); ++i) trained[static_cast<size_t>(i)] = true;
  }
  return trained;
}

std::vector<float> Gradient(const Layout& layout, Rank rank) {
  const Bytes bytes = RandomElements(DType::kF32, layout.padded_count(), 3, rank);
  std::vector<float> gradient(static_cast<size_t>(layout.padded_count()));
  std::memcpy(gradient.data(), bytes.data(), bytes.size());
  const std::vector<bool> trained = Trained(layout);
  // What is frozen is nobody's concern, whatever is there.
  for (size_t i = 0; i < gradient.size(); ++i) {
    if (!trained[i]) gradient[i] = i % 2 == 0 ? NAN : 1e30f;
  }
  return gradient;
}

// What is sent of a gradient: `gradient` becomes what is not, if the codec carries.
std::vector<float> Sent(const Layout& layout, const GradientCompression& compression,
                        std::vector<float>& gradient) {
  const GradientCodec codec(compression);
  std::vector<float> sent(gradient.size(), 0);
  for (int b = 0; b < static_cast<int>(layout.buckets().size()); ++b) {
    const BlockCut cut(layout, b, codec);
    for (int i = 0; i < cut.all().last; ++i) {
      const BlockCut::Block block = cut.At(i);
      const auto at = static_cast<size_t>(block.elements.offset);
      const auto count = static_cast<size_t>(block.elements.count);
      std::vector<std::byte> bytes(static_cast<size_t>(block.bytes));
      codec.Encode(absl::MakeSpan(gradient).subspan(at, count), absl::MakeSpan(bytes));
      EXPECT_TRUE(codec
                      .Add(bytes, block.elements.count, 0, /*starts=*/true,
                           absl::MakeSpan(sent).subspan(at, count))
                      .ok());
    }
  }
  return sent;
}

// Bits, so that NaN equals itself.
std::vector<uint16_t> ExpectedSums(const Layout& layout, const View& view,
                                   const std::vector<std::vector<float>>& sent) {
  const int workers = view.workers();
  const BucketSlices slices = BucketSlices::Even(layout, workers).value();
  std::vector<uint16_t> sums(sent[0].size());
  for (const OwnedRange& piece : slices.PiecesOf({0, layout.padded_count()})) {
    for (int64_t i = piece.range.offset; i < piece.range.end(); ++i) {
      const auto at = static_cast<size_t>(i);
      float sum = sent[static_cast<size_t>((piece.owner + 1) % workers)][at];
      for (int k = 2; k <= workers; ++k) {
        sum += sent[static_cast<size_t>((piece.owner + k) % workers)][at];
      }
      sums[at] = F32ToBF16(sum);
    }
  }
  return sums;
}

View ViewOf(int workers, const Strategy& strategy) {
  View view;
  view.strategy = strategy;
  view.members.resize(static_cast<size_t>(workers + strategy.servers));
  for (size_t i = 0; i < view.members.size(); ++i) {
    view.members[i].incarnation = Incarnation{i + 1};
    if (static_cast<int>(i) >= workers) view.members[i].role = MemberRole::kParameterServer;
  }
  return view;
}

struct Case {
  MeshKind kind;
  Algorithm algorithm;
};

class CompressedSumsTest : public testing::TestWithParam<Case> {};

TEST_P(CompressedSumsTest, AreTheDecodedContributionsInCanonicalOrderUnderEveryStrategy) {
  const Layout layout = TestLayout();
  const std::vector<bool> trained = Trained(layout);
  // By few or many bytes: everybody sums for himself, or owners do.
  for (const GradientCompression& compression : {kInt8, TopK(0.01), TopK(0.5)}) {
    for (const int workers : {1, 2, 3, 5}) {
      const Strategy strategies[] = {
          {},
          {.stage = 2, .replicas = 1},
          {.stage = 3, .replicas = 2},
          {.sync = SyncPath::kParameterServer},
          {.sync = SyncPath::kParameterServer, .servers = 2},
          {.sync = SyncPath::kParameterServer, .servers = 1, .mixed = true},
      };
      for (const Strategy& strategy : strategies) {
        SCOPED_TRACE(absl::StrCat(workers, " workers, ", ToString(strategy)));
        const View view = ViewOf(workers, strategy);
        const int ranks = static_cast<int>(view.members.size());
        const ViewMap map = MapOf(view, layout).value();
        std::vector<std::vector<float>> gradients;
        std::vector<std::vector<float>> lacks;
        std::vector<std::vector<float>> sent;
        for (Rank r = 0; r < workers; ++r) {
          gradients.push_back(Gradient(layout, r));
          lacks.push_back(gradients.back());
          sent.push_back(Sent(layout, compression, lacks.back()));
        }
        const std::vector<uint16_t> expected = ExpectedSums(layout, view, sent);
        TestFleet fleet = MakeFleet(GetParam().kind, ranks);
        RunRanks(ranks, [&](Rank r) {
          GradientExchangeOptions options;
          options.algorithm = GetParam().algorithm;
          options.dtype = DType::kBF16;
          options.compression = compression;
          GradientExchange exchange(ShardMesh(*fleet.ranks[r]), layout, view, options);
          std::vector<float> mine;
          if (r < workers) mine = gradients[static_cast<size_t>(r)];
          std::vector<uint16_t> sums(static_cast<size_t>(layout.padded_count()), 0x7fc0);
          for (int block = layout.block_count() - 1; block >= 0; --block) {
            const int64_t begin = layout.RangeOfBlock(block).offset;
            exchange.Start(kStep, block, sums.data() + begin,
                           mine.empty() ? nullptr : mine.data() + begin);
            if (block == 1) {
              const absl::Status status = exchange.FinishBlock(2);
              ASSERT_TRUE(status.ok()) << status;
            }
          }
          const absl::Status status = exchange.Finish();
          ASSERT_TRUE(status.ok()) << status;
          for (const Range& held : map.map.RangesHeldBy(r)) {
            for (int64_t i = held.offset; i < held.end(); ++i) {
              const auto at = static_cast<size_t>(i);
              if (!trained[at]) continue;
              ASSERT_EQ(sums[at], expected[at]) << "rank " << r << ", element " << i;
            }
          }
          for (size_t i = 0; i < mine.size(); ++i) {
            if (!trained[i]) continue;
            ASSERT_EQ(mine[i], lacks[static_cast<size_t>(r)][i])
                << "rank " << r << ", left of " << i;
          }
        });
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Paths, CompressedSumsTest,
                         testing::Values(Case{MeshKind::kInProcess, Algorithm::kAuto},
                                         Case{MeshKind::kInProcess, Algorithm::kRing},
                                         Case{MeshKind::kTcp, Algorithm::kDirect},
                                         Case{MeshKind::kShm, Algorithm::kAuto}),
                         [](const auto& info) {
                           return absl::StrCat(NameOf(info.param.kind),
                                               static_cast<int>(info.param.algorithm));
                         });

TEST(CompressedGradientsTest, WhatIsNotFiniteAnywhereIsNotFiniteInTheSum) {
  const Layout layout = TestLayout();
  const auto bad = static_cast<size_t>(layout.Find("tensor3")->offset + 500);
  for (const GradientCompression& compression : {kInt8, TopK(0.01)}) {
    for (const float value : {NAN, std::numeric_limits<float>::infinity()}) {
      const View view = ViewOf(2, {.stage = 2});
      const ViewMap map = MapOf(view, layout).value();
      const Rank owner = map.map.OwnerOf(static_cast<int64_t>(bad));
      TestFleet fleet = MakeFleet(MeshKind::kInProcess, 2);
      RunRanks(2, [&](Rank r) {
        GradientExchange exchange(ShardMesh(*fleet.ranks[r]), layout, view,
                                  {.dtype = DType::kBF16, .compression = compression});
        std::vector<float> gradient(static_cast<size_t>(layout.padded_count()), 1e-3f);
        if (r == 1) gradient[bad] = value;
        std::vector<uint16_t> sums(gradient.size());
        for (int block = layout.block_count() - 1; block >= 0; --block) {
          const int64_t begin = layout.RangeOfBlock(block).offset;
          exchange.Start(kStep, block, sums.data() + begin, gradient.data() + begin);
        }
        ASSERT_TRUE(exchange.Finish().ok());
        if (r == owner) {
          EXPECT_FALSE(std::isfinite(BF16ToF32(sums[bad])));
        }
      });
    }
  }
}

TEST(CompressedGradientsTest, WhatIsNoCodeIsAnErrorThatNamesItsSender) {
  const Layout layout = TestLayout();
  const View view = ViewOf(2, {});
  const ViewMap map = MapOf(view, layout).value();
  TestFleet fleet = MakeFleet(MeshKind::kInProcess, 2);
  RunRanks(2, [&](Rank r) {
    CompressedSums sums(*fleet.ranks[r], layout, map, /*shared=*/true, TopK(0.01));
    const Bucket& bucket = layout.buckets()[1];
    std::vector<float> gradient(static_cast<size_t>(bucket.count), 1);
    CompressedSums::Exchange exchange = sums.Start(1, gradient.data(), {});
    ASSERT_TRUE(exchange.work.Wait().ok());
    std::memset(exchange.received.data() + exchange.received.size() / 2, 0xff, 2);
    std::vector<uint16_t> into(static_cast<size_t>(bucket.count));
    const absl::Status status = sums.Sum(std::move(exchange), into.data());
    EXPECT_TRUE(absl::IsDataLoss(status)) << status;
    EXPECT_THAT(std::string(status.message()),
                testing::AllOf(testing::HasSubstr("bucket 1, gradient from rank 1"),
                               testing::HasSubstr("element 65535 follows -1")));
    EXPECT_EQ(sums.culprit(), 1);
  });
}

}  // namespace
}  // namespace muster
