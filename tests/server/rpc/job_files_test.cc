#include "server/rpc/job_files.h"

#include <zlib.h>

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

class JobFilesTest : public ::testing::Test {
 protected:
  JobFilesTest() : directory_(testing::TempDir() + "/job_files_" + TestName()) {
    EXPECT_TRUE(files_.RemoveAll(directory_).ok());
    EXPECT_TRUE(files_.CreateDirectories(directory_).ok());
  }

  static std::string TestName() {
    return testing::UnitTest::GetInstance()->current_test_info()->name();
  }

  std::string Write(const std::string& name, const std::string& bytes) {
    const std::string path = JoinPath(directory_, name);
    EXPECT_TRUE(files_.CreateDirectories(ParentDirectory(path)).ok());
    EXPECT_TRUE(WriteFileDurably(files_, path, bytes).ok());
    return path;
  }

  PosixFileSystem files_;
  const std::string directory_;
};

std::string IdxHeader(uint32_t count) {
  std::string header("\0\0\x08\x03", 4);
  for (int shift = 24; shift >= 0; shift -= 8) header += static_cast<char>(count >> shift);
  return header;
}

std::string Gzip(const std::string& bytes) {
  z_stream stream = {};
  EXPECT_EQ(deflateInit2(&stream, 9, Z_DEFLATED, 16 + MAX_WBITS, 9, Z_DEFAULT_STRATEGY), Z_OK);
  std::string out(compressBound(bytes.size()) + 64, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  stream.avail_in = bytes.size();
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = out.size();
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

TEST_F(JobFilesTest, CountsItemsPlainAndCompressed) {
  const std::string data = IdxHeader(60'000) + std::string(100'000, 'x');
  EXPECT_EQ(*CountIdxItems(files_, Write("plain", data)), 60'000);
  EXPECT_EQ(*CountIdxItems(files_, Write("compressed.gz", Gzip(data))), 60'000);
}

TEST_F(JobFilesTest, RefusesWhatIsNoIdxFile) {
  for (const std::string& bytes :
       {std::string(), std::string("\0\0\x08", 3), std::string("P5 28 28 255 ..."), Gzip("abc"),
        std::string("\x1f\x8b garbage"), std::string("\0\0\x0d\x03\0\0\0\x05", 8)}) {
    const absl::StatusOr<int64_t> count = CountIdxItems(files_, Write("file", bytes));
    EXPECT_EQ(count.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(count.status().message()), HasSubstr("/file: is "));
  }
  EXPECT_TRUE(absl::IsNotFound(CountIdxItems(files_, directory_ + "/absent").status()));
}

TEST_F(JobFilesTest, EpochsNeedReadableData) {
  JobSpec spec;
  spec.training.epochs = 2;
  spec.training.global_batch = 100;
  spec.training.micro_batch = 100;
  spec.data.train_images = Write("images", IdxHeader(1'000));
  EXPECT_EQ(*ResolveTotalSteps(files_, spec), 20);
  spec.data.train_images = directory_ + "/absent";
  const absl::Status status = ResolveTotalSteps(files_, spec).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), StartsWith("training.epochs: the coordinator cannot"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("give training.steps instead"));
}

}  // namespace
}  // namespace muster
