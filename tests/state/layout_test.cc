#include "state/layout.h"

#include <limits>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<TensorSpec> TwoBlocks() {
  return {{.name = "a.weight", .shape = {100, 10}, .block = 0},
          {.name = "a.bias", .shape = {10}, .block = 0, .decay = false},
          {.name = "b.weight", .shape = {7}, .block = 1}};
}

TEST(LayoutTest, PlacesTensorsInOrderOnAlignedOffsets) {
  const Layout layout = Layout::Create(TwoBlocks(), 1 << 20).value();
  ASSERT_EQ(layout.tensors().size(), 3u);
  EXPECT_EQ(layout.tensors()[0].offset, 0);
  EXPECT_EQ(layout.tensors()[0].count, 1000);
  EXPECT_EQ(layout.tensors()[1].offset, 1024);
  EXPECT_EQ(layout.tensors()[2].offset, 1024 + 64);
  EXPECT_EQ(layout.padded_count(), 1024 + 64 + 64);
  EXPECT_EQ(layout.parameter_count(), 1017);
  EXPECT_EQ(layout.block_count(), 2);
  EXPECT_EQ(layout.Find("a.bias"), &layout.tensors()[1]);
  EXPECT_EQ(layout.Find("a"), nullptr);
}

TEST(LayoutTest, BucketsTileTheSpaceAndNeverStraddleBlocks) {
  std::vector<TensorSpec> tensors;
  for (int block = 0; block < 5; ++block) {
    for (int i = 0; i <= block; ++i) {
      tensors.push_back({.name = absl::StrCat("t", block, ".", i),
                         .shape = {37 * (block + 1), 5 + i},
                         .block = block});
    }
  }
  for (const int64_t limit : {64, 100, 128, 500, 1000, 100'000}) {
    const Layout layout = Layout::Create(tensors, limit).value();
    int64_t position = 0;
    for (const Bucket& bucket : layout.buckets()) {
      EXPECT_EQ(bucket.offset, position);
      EXPECT_EQ(bucket.offset % Layout::kAlignment, 0);
      EXPECT_GT(bucket.count, 0);
      EXPECT_LE(bucket.count, limit);
      position += bucket.count;
    }
    EXPECT_EQ(position, layout.padded_count());
    // The buckets of a block hold exactly the block's tensors.
    int next = 0;
    for (int block = 0; block < layout.block_count(); ++block) {
      const auto [first, last] = layout.BucketsOfBlock(block);
      EXPECT_EQ(first, next);
      EXPECT_GT(last, first);
      next = last;
      const int64_t begin = layout.buckets()[first].offset;
      const int64_t end = layout.buckets()[last - 1].offset + layout.buckets()[last - 1].count;
      for (const Tensor& tensor : layout.tensors()) {
        const bool inside = tensor.offset >= begin && tensor.offset + tensor.count <= end;
        EXPECT_EQ(inside, tensor.spec.block == block) << tensor.spec.name;
      }
      for (int i = first; i < last; ++i) EXPECT_EQ(layout.buckets()[i].block, block);
    }
    EXPECT_EQ(next, static_cast<int>(layout.buckets().size()));
  }
}

TEST(LayoutTest, BucketsOfABlockAreAsEqualAsTheAlignmentAllows) {
  const Layout layout =
      Layout::Create({{.name = "w", .shape = {64 * 10}, .block = 0}}, 64 * 4).value();
  ASSERT_EQ(layout.buckets().size(), 3u);
  EXPECT_EQ(layout.buckets()[0].count, 64 * 4);
  EXPECT_EQ(layout.buckets()[1].count, 64 * 3);
  EXPECT_EQ(layout.buckets()[2].count, 64 * 3);
}

TEST(LayoutTest, FingerprintTellsLayoutsApart) {
  const uint64_t reference = Layout::Create(TwoBlocks(), 1024).value().fingerprint();
  EXPECT_EQ(Layout::Create(TwoBlocks(), 1024).value().fingerprint(), reference);
  EXPECT_NE(Layout::Create(TwoBlocks(), 512).value().fingerprint(), reference);
  const auto changed = [&](auto change) {
    std::vector<TensorSpec> tensors = TwoBlocks();
    change(tensors[0]);
    return Layout::Create(tensors, 1024).value().fingerprint();
  };
  EXPECT_NE(changed([](TensorSpec& t) { t.name = "c.weight"; }), reference);
  EXPECT_NE(changed([](TensorSpec& t) { t.shape = {10, 100}; }), reference);
  EXPECT_NE(changed([](TensorSpec& t) { t.initializer = Initializer::kOne; }), reference);
  EXPECT_NE(changed([](TensorSpec& t) { t.scale = 0.5f; }), reference);
  EXPECT_NE(changed([](TensorSpec& t) { t.decay = false; }), reference);
  EXPECT_NE(changed([](TensorSpec& t) { t.weight_decay = 0; }), reference);
  EXPECT_NE(changed([](TensorSpec& t) { t.learning_rate_scale = 2; }), reference);
  EXPECT_NE(changed([](TensorSpec& t) { t.frozen = true; }), reference);
  EXPECT_NE(changed([](TensorSpec& t) { t.also_read_by = {1}; }), reference);
}

TEST(LayoutTest, KnowsWhatBlocksReadOfOthers) {
  std::vector<TensorSpec> tensors;
  for (int i = 0; i < 6; ++i) {
    tensors.push_back({.name = absl::StrCat("t", i), .shape = {40}, .block = i / 2});
  }
  EXPECT_EQ(Layout::Create(tensors, 64).value().most_tied_blocks(), 0);
  tensors[0].also_read_by = {1, 2};
  tensors[1].also_read_by = {2};
  tensors[3].also_read_by = {2};
  const Layout layout = Layout::Create(tensors, 64).value();
  EXPECT_THAT(layout.TiedTensors(0), ElementsAre());
  EXPECT_THAT(layout.TiedTensors(1), ElementsAre(0));
  EXPECT_THAT(layout.TiedTensors(2), ElementsAre(0, 1, 3));
  EXPECT_THAT(layout.TiedBlocks(0), ElementsAre());
  EXPECT_THAT(layout.TiedBlocks(1), ElementsAre(0));
  EXPECT_THAT(layout.TiedBlocks(2), ElementsAre(0, 1));
  EXPECT_EQ(layout.most_tied_blocks(), 2);
  EXPECT_EQ(layout.padded_count(), 6 * 64) << "every tensor is there once";

  const auto error = [&](std::vector<int> readers) {
    tensors[3].also_read_by = std::move(readers);
    const absl::Status status = Layout::Create(tensors, 64).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  EXPECT_THAT(error({1}), HasSubstr("tensor \"t3\": expected blocks that read it as well"));
  EXPECT_THAT(error({2, 2}), HasSubstr("in rising order above its own, 1, got [2, 2]"));
  EXPECT_THAT(error({3}), HasSubstr("read by block 3, but there are only 3 blocks"));
}

TEST(LayoutTest, WhatTrainsIsTheSpaceWithoutFrozenTensors) {
  // Offsets 0, 64, 128, 192, 256, 320; every tensor a bucket.
  std::vector<TensorSpec> tensors;
  for (int i = 0; i < 6; ++i) {
    tensors.push_back({.name = absl::StrCat("t", i), .shape = {40 + i}, .block = i / 2});
  }
  const Layout all = Layout::Create(tensors, 64).value();
  EXPECT_THAT(all.trained_ranges(), ElementsAre(Range{0, 320 + 45}));
  EXPECT_EQ(all.trained_parameter_count(), all.parameter_count());
  EXPECT_EQ(all.first_trained_block(), 0);
  for (const Bucket& bucket : all.buckets()) EXPECT_FALSE(bucket.frozen);

  for (const int i : {0, 1, 2, 4}) tensors[i].frozen = true;
  const Layout some = Layout::Create(tensors, 64).value();
  EXPECT_THAT(some.trained_ranges(), ElementsAre(Range{192, 43}, Range{320, 45}));
  EXPECT_EQ(some.trained_parameter_count(), 43 + 45);
  EXPECT_EQ(some.first_trained_block(), 1);
  std::vector<bool> frozen;
  for (const Bucket& bucket : some.buckets()) frozen.push_back(bucket.frozen);
  EXPECT_THAT(frozen, ElementsAre(true, true, true, false, true, false));
  // A bucket of two tensors needs its gradient for either.
  const Layout coarse = Layout::Create(tensors, 128).value();
  frozen.clear();
  for (const Bucket& bucket : coarse.buckets()) frozen.push_back(bucket.frozen);
  EXPECT_THAT(frozen, ElementsAre(true, false, false));
}

TEST(LayoutTest, RejectsWrongSpecsByName) {
  const auto error = [](std::vector<TensorSpec> tensors, int64_t bucket_elements) {
    const auto layout = Layout::Create(std::move(tensors), bucket_elements);
    EXPECT_EQ(layout.status().code(), absl::StatusCode::kInvalidArgument);
    return std::string(layout.status().message());
  };
  EXPECT_THAT(error({}, 64), HasSubstr("at least one tensor"));
  EXPECT_THAT(error(TwoBlocks(), 63), HasSubstr("bucket_elements: expected at least 64, got 63"));
  EXPECT_THAT(error({{.name = "", .shape = {1}}}, 64), HasSubstr("no name"));
  EXPECT_THAT(error({{.name = "w", .shape = {3, 0}}}, 64), HasSubstr("\"w\""));
  EXPECT_THAT(error({{.name = "w", .shape = {-1}}}, 64), HasSubstr("[-1]"));
  EXPECT_THAT(error({{.name = "w", .shape = {1}, .learning_rate_scale = 0}}, 64),
              HasSubstr("tensor \"w\": expected a finite learning rate scale above 0, got 0"));
  EXPECT_THAT(error({{.name = "w", .shape = {1}, .weight_decay = -1}}, 64),
              HasSubstr("tensor \"w\": expected a finite weight decay of at least 0, got -1"));
  EXPECT_THAT(error({{.name = "w", .shape = {1}, .frozen = true}}, 64), HasSubstr("are frozen"));
  EXPECT_THAT(error({{.name = "w", .shape = {1ll << 40, 1ll << 40}}}, 64), HasSubstr("2^48"));
  EXPECT_THAT(error({{.name = "w", .shape = {1ll << 48}}, {.name = "v", .shape = {1}}}, 64),
              HasSubstr("\"v\""));
  EXPECT_THAT(error({{.name = "w", .shape = {1}, .block = 1}}, 64), HasSubstr("block 0"));
  EXPECT_THAT(error({{.name = "w", .shape = {1}}, {.name = "v", .shape = {1}, .block = 2}}, 64),
              HasSubstr("\"v\": expected block 0 or 1"));
  EXPECT_THAT(error({{.name = "w", .shape = {1}}, {.name = "w", .shape = {1}}}, 64),
              HasSubstr("unique"));
  EXPECT_THAT(
      error({{.name = "w", .shape = {1}, .scale = std::numeric_limits<float>::quiet_NaN()}}, 64),
      HasSubstr("scale"));
}

}  // namespace
}  // namespace muster
