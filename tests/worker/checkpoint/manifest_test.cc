#include "worker/checkpoint/manifest.h"

#include <string>

#include "absl/strings/str_replace.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster {
namespace {

using ::testing::HasSubstr;

Manifest Example() {
  return {.progress = {.step = 100,
                       .branch = 2,
                       .epoch = 0xffffffffffffffff,
                       .update_count = 98,
                       .nonfinite_in_row = 1,
                       .seed = 0xfedcba9876543210,
                       .job = "name: \"x\"\n",
                       .job_fingerprint = 0xff},
          .layout_fingerprint = 0x123,
          .tensors = {{"w", "abc"}, {"b", "abd"}},
          .files = {{"m.safetensors", CheckpointFileKind::kParameters, 10, "d", {0x1234}},
                    {"model.safetensors.index.json", CheckpointFileKind::kIndex, 11, "e", {}},
                    {"o.safetensors",
                     CheckpointFileKind::kOptimizer,
                     kCheckedBytes + 1,
                     "f",
                     {0, 0xffffffff}}}};
}

TEST(ManifestTest, WhatIsWrittenReadsBack) {
  const auto text = SerializeManifest(Example());
  ASSERT_TRUE(text.ok()) << text.status();
  const auto manifest = ParseManifest(*text, "m");
  ASSERT_TRUE(manifest.ok()) << manifest.status();
  EXPECT_EQ(*manifest, Example());
}

TEST(ManifestTest, EveryFlippedBitIsFoundOrOnlyWhiteSpace) {
  const std::string text = SerializeManifest(Example()).value();
  for (size_t bit = 0; bit < text.size() * 8; ++bit) {
    std::string flipped = text;
    flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ (1 << (bit % 8)));
    const auto manifest = ParseManifest(flipped, "m");
    if (manifest.ok()) {
      EXPECT_EQ(*manifest, Example()) << "bit " << bit;
    } else {
      EXPECT_EQ(manifest.status().code(), absl::StatusCode::kDataLoss) << manifest.status();
    }
  }
}

TEST(ManifestTest, EveryTruncationIsFound) {
  const std::string text = SerializeManifest(Example()).value();
  // The last byte is a line end.
  for (size_t size = 0; size + 1 < text.size(); ++size) {
    EXPECT_EQ(ParseManifest(text.substr(0, size), "m").status().code(),
              absl::StatusCode::kDataLoss);
  }
}

TEST(ManifestTest, ErrorsNameThePath) {
  EXPECT_THAT(std::string(ParseManifest("{}", "/a/manifest.json").status().message()),
              HasSubstr("/a/manifest.json"));
  const std::string text = SerializeManifest(Example()).value();
  const std::string altered = absl::StrReplaceAll(text, {{"\"step\": 100", "\"step\": 101"}});
  ASSERT_NE(altered, text);
  EXPECT_THAT(std::string(ParseManifest(altered, "m").status().message()), HasSubstr("corrupt"));
}

// A name with a directory could make a reader open any file.
TEST(ManifestTest, FilesOutsideTheDirectoryAreRefused) {
  for (const char* name : {"", ".", "..", "../x", "a/b", "/etc/passwd"}) {
    Manifest manifest = Example();
    manifest.files[0].name = name;
    const auto parsed = ParseManifest(SerializeManifest(manifest).value(), "m");
    EXPECT_EQ(parsed.status().code(), absl::StatusCode::kDataLoss) << name;
  }
  Manifest manifest = Example();
  manifest.files[1].name = manifest.files[0].name;
  EXPECT_THAT(
      std::string(ParseManifest(SerializeManifest(manifest).value(), "m").status().message()),
      HasSubstr("repeated"));
}

TEST(ManifestTest, PartsMakeTheManifestThatOneWriterWouldHaveWritten) {
  const Manifest whole = Example();
  Manifest first = whole, second = whole;
  first.tensors.erase("w");
  second.tensors.erase("b");
  first.files = {whole.files[2], whole.files[1]};
  second.files = {whole.files[0]};
  EXPECT_EQ(MergeParts({first, second}).value(), whole);
  EXPECT_EQ(MergeParts({whole}).value(), whole);
  for (const auto change :
       {+[](Manifest& m) { m.progress.epoch = 8; }, +[](Manifest& m) { m.progress.branch = 3; },
        +[](Manifest& m) { m.layout_fingerprint = 9; }}) {
    Manifest other = second;
    change(other);
    EXPECT_EQ(MergeParts({first, other}).status().code(), absl::StatusCode::kFailedPrecondition);
  }
}

TEST(ManifestTest, ChecksumsMustCoverTheFile) {
  Manifest manifest = Example();
  manifest.files[2].crc32c.pop_back();
  EXPECT_THAT(
      std::string(ParseManifest(SerializeManifest(manifest).value(), "m").status().message()),
      HasSubstr("crc32c"));
}

TEST(ManifestTest, AJobThatIsNotUtf8IsRefused) {
  Manifest manifest = Example();
  manifest.progress.job = "\xff";
  EXPECT_EQ(SerializeManifest(manifest).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace muster
