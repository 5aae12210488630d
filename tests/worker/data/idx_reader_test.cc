#include "worker/data/idx_reader.h"

#include <zlib.h>

#include <filesystem>
#include <string>
#include <vector>

#include "base/random.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/base/temporary_directory.h"

namespace muster {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string Word(uint32_t value) {
  return {static_cast<char>(value >> 24), static_cast<char>(value >> 16),
          static_cast<char>(value >> 8), static_cast<char>(value)};
}

std::string Images(uint32_t count, uint32_t rows, uint32_t columns) {
  std::string bytes = Word(0x803) + Word(count) + Word(rows) + Word(columns);
  for (uint32_t i = 0; i < count * rows * columns; ++i) bytes.push_back(static_cast<char>(i * 7));
  return bytes;
}

std::string Labels(std::vector<uint8_t> labels) {
  return Word(0x801) + Word(static_cast<uint32_t>(labels.size())) +
         std::string(labels.begin(), labels.end());
}

std::string Gzip(const std::string& bytes) {
  z_stream stream = {};
  EXPECT_EQ(deflateInit2(&stream, 9, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
  std::string out(deflateBound(&stream, bytes.size()) + 64, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

class IdxReaderTest : public ::testing::Test {
 protected:
  absl::StatusOr<Dataset> Read(const std::string& images, const std::string& labels,
                               const IdxOptions& options = {}) {
    WriteTestFile(images_path_, images);
    WriteTestFile(labels_path_, labels);
    return ReadIdxDataset(files_, images_path_, labels_path_, options);
  }

  // Expects an error of this code that names the images file and all of `parts`.
  void ExpectImagesError(const std::string& images, absl::StatusCode code,
                         std::vector<std::string> parts, const IdxOptions& options = {}) {
    const absl::Status status = Read(images, Labels({1, 2, 3}), options).status();
    EXPECT_EQ(status.code(), code) << status;
    const std::string message(status.message());
    EXPECT_THAT(message, HasSubstr(images_path_));
    for (const std::string& part : parts) EXPECT_THAT(message, HasSubstr(part));
  }

  TemporaryDirectory directory_;
  PosixFileSystem files_;
  const std::string images_path_ = directory_.Path("images");
  const std::string labels_path_ = directory_.Path("labels");
};

TEST_F(IdxReaderTest, ReadsPlainAndGzip) {
  for (const bool gzip : {false, true}) {
    const std::string images = Images(3, 2, 4), labels = Labels({9, 0, 5});
    const auto dataset = gzip ? Read(Gzip(images), Gzip(labels)) : Read(images, labels);
    ASSERT_TRUE(dataset.ok()) << dataset.status();
    EXPECT_EQ(dataset->size(), 3);
    EXPECT_THAT(dataset->feature_shape(), ElementsAre(1, 2, 4));
    std::vector<float> inputs(16);
    std::vector<int32_t> ids(2);
    dataset->Gather({2, 0}, absl::MakeSpan(inputs), absl::MakeSpan(ids));
    EXPECT_THAT(ids, ElementsAre(5, 9));
    for (int i = 0; i < 8; ++i) {
      EXPECT_EQ(inputs[i], ((16 + i) * 7 % 256) / 255.0f);
      EXPECT_EQ(inputs[8 + i], (i * 7) / 255.0f);
    }
  }
}

TEST_F(IdxReaderTest, ReadsGzipOfSeveralMembersAndManyChunks) {
  const std::string images = Images(3, 400, 500), labels = Labels({1, 2, 3});
  // Cut inside the header, and inside the data.
  const auto dataset = Read(
      Gzip(images.substr(0, 5)) + Gzip(images.substr(5, 300'000)) + Gzip(images.substr(300'005)),
      labels);
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  std::vector<float> inputs(200'000);
  std::vector<int32_t> ids(1);
  dataset->Gather({2}, absl::MakeSpan(inputs), absl::MakeSpan(ids));
  EXPECT_EQ(inputs.back(), (599'999 * 7 % 256) / 255.0f);
}

TEST_F(IdxReaderTest, MissingFilesAreNamed) {
  const auto result = ReadIdxDataset(files_, images_path_, labels_path_, {});
  EXPECT_EQ(result.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(result.status().message()), HasSubstr(labels_path_));
  ASSERT_TRUE(WriteFileDurably(files_, labels_path_, Labels({1})).ok());
  const auto second = ReadIdxDataset(files_, images_path_, labels_path_, {});
  EXPECT_EQ(second.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(second.status().message()), HasSubstr(images_path_));
}

TEST_F(IdxReaderTest, AWrongMagicNumberIsNamed) {
  ExpectImagesError(Labels({1, 2, 3}), absl::StatusCode::kInvalidArgument,
                    {"expected an IDX file of images", "0x00000803", "0x00000801"});
  ExpectImagesError("PNG\r and so on", absl::StatusCode::kInvalidArgument, {"0x504e470d"});
  std::string floats = Images(3, 2, 2);
  floats[2] = 0x0d;
  ExpectImagesError(floats, absl::StatusCode::kInvalidArgument, {"0x00000d03"});
  const absl::Status swapped = Read(Images(3, 2, 2), Images(3, 2, 2)).status();
  EXPECT_THAT(std::string(swapped.message()),
              AllOf(HasSubstr(labels_path_), HasSubstr("IDX file of labels")));
}

TEST_F(IdxReaderTest, EveryTruncationIsFound) {
  const std::string images = Images(3, 2, 2);
  for (size_t size = 0; size < images.size(); ++size) {
    ExpectImagesError(images.substr(0, size), absl::StatusCode::kDataLoss,
                      {"truncated", size < 16 ? "header" : "need 12 bytes"});
  }
  const std::string compressed = Gzip(images);
  for (size_t size = 2; size < compressed.size(); ++size) {
    ExpectImagesError(compressed.substr(0, size), absl::StatusCode::kDataLoss, {"truncated"});
  }
  // A whole gzip file of too few bytes.
  ExpectImagesError(Gzip(images.substr(0, 20)), absl::StatusCode::kDataLoss,
                    {"truncated", "has 4", "decompressed"});
}

TEST_F(IdxReaderTest, BytesAfterTheEndAreFound) {
  const std::string images = Images(3, 2, 2);
  ExpectImagesError(images + "x", absl::StatusCode::kDataLoss, {"expected the end of the file"});
  ExpectImagesError(Gzip(images + "x"), absl::StatusCode::kDataLoss,
                    {"expected the end of the decompressed file"});
  ExpectImagesError(Gzip(images) + "x", absl::StatusCode::kDataLoss, {});
  ExpectImagesError(Gzip(images) + std::string(64, '\0'), absl::StatusCode::kDataLoss, {"gzip"});
}

TEST_F(IdxReaderTest, HeadersThatAskForTooMuchAllocateNothing) {
  const uint32_t most = 0xffffffff;
  ExpectImagesError(Word(0x803) + Word(most) + Word(most) + Word(most),
                    absl::StatusCode::kResourceExhausted, {"limit", "4294967295"});
  ExpectImagesError(Images(3, 10, 10), absl::StatusCode::kResourceExhausted, {"limit of 299"},
                    {.max_bytes = 299});
  // Within the limit, but more than the file can hold, even compressed.
  const std::string lie = Word(0x803) + Word(1 << 10) + Word(1 << 10) + Word(1 << 10);
  ExpectImagesError(lie, absl::StatusCode::kDataLoss, {"truncated", "need 1073741824 bytes"});
  ExpectImagesError(Gzip(lie), absl::StatusCode::kDataLoss, {"truncated", "at most"});
}

TEST_F(IdxReaderTest, ADimensionOfZeroIsNamed) {
  ExpectImagesError(Word(0x803) + Word(3) + Word(0) + Word(2), absl::StatusCode::kInvalidArgument,
                    {"dimension 1 of the images is zero"});
}

TEST_F(IdxReaderTest, CountsMustAgree) {
  ExpectImagesError(Images(4, 2, 2), absl::StatusCode::kInvalidArgument,
                    {"4 images", "3 labels", labels_path_});
}

TEST_F(IdxReaderTest, ALabelOutOfRangeIsNamedWithItsIndex) {
  const absl::Status status = Read(Images(3, 2, 2), Labels({9, 10, 0})).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(
      std::string(status.message()),
      AllOf(HasSubstr(labels_path_), HasSubstr("label 10 of sample 1"), HasSubstr("10 classes")));
  EXPECT_TRUE(Read(Images(3, 2, 2), Labels({9, 10, 0}), {.class_count = 11}).ok());
}

// Any flipped bit of a gzip file is an error, or leaves the decoded bytes as they were (the header
// holds a time and flags that do not matter).
TEST_F(IdxReaderTest, EveryFlippedBitOfAGzipFileIsFoundOrHarmless) {
  const std::string images = Images(3, 4, 4);
  const std::string compressed = Gzip(images);
  const auto reference = Read(compressed, Labels({1, 2, 3}));
  ASSERT_TRUE(reference.ok());
  std::vector<float> expected(48), actual(48);
  std::vector<int32_t> ids(3);
  reference->Gather({0, 1, 2}, absl::MakeSpan(expected), absl::MakeSpan(ids));
  int errors = 0;
  for (size_t bit = 0; bit < compressed.size() * 8; ++bit) {
    std::string flipped = compressed;
    flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ (1 << (bit % 8)));
    const auto dataset = Read(flipped, Labels({1, 2, 3}));
    if (!dataset.ok()) {
      ++errors;
      EXPECT_THAT(std::string(dataset.status().message()), HasSubstr(images_path_));
      continue;
    }
    dataset->Gather({0, 1, 2}, absl::MakeSpan(actual), absl::MakeSpan(ids));
    ASSERT_EQ(actual, expected) << "bit " << bit;
  }
  EXPECT_GT(errors, static_cast<int>(compressed.size() * 8 * 3 / 4));
}

// Random damage: never a crash, and what reads has the shape that its header says.
TEST_F(IdxReaderTest, SurvivesRandomDamage) {
  const RandomStream random(1, "damage");
  uint64_t draw = 0;
  const std::string plain = Images(3, 4, 4), compressed = Gzip(plain);
  for (int trial = 0; trial < 3000; ++trial) {
    std::string bytes = random.Below(draw++, 2) == 0 ? plain : compressed;
    for (uint64_t flips = random.Below(draw++, 6); flips > 0; --flips) {
      const uint64_t at = random.Below(draw++, bytes.size());
      bytes[at] = static_cast<char>(bytes[at] ^ (1 << random.Below(draw++, 8)));
    }
    if (random.Below(draw++, 3) == 0) bytes.resize(random.Below(draw++, bytes.size() + 1));
    const auto dataset = Read(bytes, Labels({1, 2, 3}), {.max_bytes = 1 << 20});
    if (dataset.ok()) {
      EXPECT_EQ(dataset->size(), 3);
      EXPECT_EQ(dataset->feature_count(),
                dataset->feature_shape()[1] * dataset->feature_shape()[2]);
    } else {
      EXPECT_FALSE(dataset.status().message().empty());
    }
  }
}

// The real data set, where its package is installed.
TEST_F(IdxReaderTest, ReadsFashionMnist) {
  const std::string folder = "/usr/share/datasets/fashion-mnist/";
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << "dataset-fashion-mnist is not installed";
  const auto dataset = ReadIdxDataset(files_, folder + "t10k-images-idx3-ubyte.gz",
                                      folder + "t10k-labels-idx1-ubyte.gz", {});
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_EQ(dataset->size(), 10'000);
  EXPECT_THAT(dataset->feature_shape(), ElementsAre(1, 28, 28));
  std::vector<int> counts(10, 0);
  std::vector<float> inputs(784);
  std::vector<int32_t> label(1);
  double sum = 0;
  for (int64_t id = 0; id < dataset->size(); ++id) {
    dataset->Gather({id}, absl::MakeSpan(inputs), absl::MakeSpan(label));
    ++counts[static_cast<size_t>(label[0])];
    for (const float value : inputs) sum += value;
  }
  for (const int count : counts) EXPECT_EQ(count, 1000);
  // The published mean of the test images.
  EXPECT_NEAR(sum / (784 * 10'000.0), 0.2868, 1e-4);
}

}  // namespace
}  // namespace muster
