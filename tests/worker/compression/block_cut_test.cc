#include "worker/compression/block_cut.h"

#include <set>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/random.h"
#include "gtest/gtest.h"

namespace muster {
namespace {

constexpr GradientCompression kCompressions[] = {
    {.kind = GradientCompression::Kind::kInt8},
    {.kind = GradientCompression::Kind::kTopK, .top_k_fraction = 0.01}};

// Tensors of all sizes in three layers, each frozen or not, in buckets of 5000 elements at most.
Layout RandomLayout(uint64_t seed) {
  const RandomStream random(seed, "block cut");
  uint64_t draws = 0;
  std::vector<TensorSpec> tensors;
  for (int i = 0; i < 30; ++i) {
    TensorSpec spec;
    spec.name = absl::StrCat("t", i);
    spec.shape = {static_cast<int64_t>(1 + random.Below(draws++, i % 3 == 0 ? 9000 : 300))};
    spec.block = i / 10;
    spec.frozen = i > 0 && random.Below(draws++, 3) == 0;
    tensors.push_back(std::move(spec));
  }
  return Layout::Create(std::move(tensors), 5000).value();
}

// The block each element of the bucket is in, -1: in none.
std::vector<int> BlockOfEach(const BlockCut& cut, const Bucket& bucket) {
  std::vector<int> block_of(static_cast<size_t>(bucket.count), -1);
  int64_t bytes = 0;
  for (int i = 0; i < cut.all().last; ++i) {
    const BlockCut::Block block = cut.At(i);
    EXPECT_EQ(block.bytes_at, bytes);
    EXPECT_EQ(cut.BytesAt(i, cut.all()), bytes);
    bytes += block.bytes;
    EXPECT_GT(block.elements.count, 0);
    for (int64_t e = block.elements.offset; e < block.elements.end(); ++e) {
      int& of = block_of.at(static_cast<size_t>(e - bucket.offset));
      EXPECT_EQ(of, -1) << "element " << e << " is in two blocks";
      of = i;
    }
  }
  EXPECT_EQ(cut.BytesOf(cut.all()), bytes);
  return block_of;
}

TEST(BlockCutTest, CoversWhatTrainsOnceInOrder) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const Layout layout = RandomLayout(seed);
    std::set<int64_t> trained;
    for (const Range& range : layout.trained_ranges()) {
      for (int64_t e = range.offset; e < range.end(); ++e) trained.insert(e);
    }
    for (const GradientCompression& compression : kCompressions) {
      const GradientCodec codec(compression);
      for (int b = 0; b < static_cast<int>(layout.buckets().size()); ++b) {
        const Bucket& bucket = layout.buckets()[static_cast<size_t>(b)];
        const BlockCut cut(layout, b, codec);
        const std::vector<int> block_of = BlockOfEach(cut, bucket);
        for (int64_t e = bucket.offset; e < bucket.offset + bucket.count; ++e) {
          EXPECT_EQ(block_of[static_cast<size_t>(e - bucket.offset)] >= 0, trained.contains(e));
        }
        for (int i = 0; i < cut.all().last; ++i) {
          EXPECT_LE(cut.At(i).elements.count, codec.block_elements());
          EXPECT_EQ(cut.At(i).bytes, codec.BytesOf(cut.At(i).elements.count));
        }
      }
    }
  }
}

TEST(BlockCutTest, KnowsWhichBlocksARangeTouches) {
  for (uint64_t seed = 0; seed < 10; ++seed) {
    const Layout layout = RandomLayout(seed);
    const RandomStream random(seed, "ranges");
    uint64_t draws = 0;
    for (const GradientCompression& compression : kCompressions) {
      for (int b = 0; b < static_cast<int>(layout.buckets().size()); ++b) {
        const Bucket& bucket = layout.buckets()[static_cast<size_t>(b)];
        const BlockCut cut(layout, b, GradientCodec(compression));
        const std::vector<int> block_of = BlockOfEach(cut, bucket);
        for (int n = 0; n < 50; ++n) {
          const auto from =
              static_cast<int64_t>(random.Below(draws++, static_cast<uint64_t>(bucket.count)));
          const auto count = static_cast<int64_t>(
              random.Below(draws++, static_cast<uint64_t>(bucket.count - from + 1)));
          std::set<int> touched;
          for (int64_t e = from; e < from + count; ++e) {
            const int block = block_of[static_cast<size_t>(e)];
            if (block >= 0) touched.insert(block);
          }
          const BlockCut::Blocks blocks = cut.Touching({bucket.offset + from, count});
          int64_t bytes = 0;
          for (const int block : touched) bytes += cut.At(block).bytes;
          ASSERT_EQ(cut.BytesOf(blocks), bytes);
          ASSERT_EQ(static_cast<size_t>(blocks.last - blocks.first), touched.size());
          if (!touched.empty()) {
            ASSERT_EQ(blocks.first, *touched.begin());
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace muster
