#include "server/rpc/job_files.h"

#include <zlib.h>

#include <nlohmann/json.hpp>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/sha256.h"
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

  // A checkpoint of one file, as the worker's writer leaves it.
  std::string WriteCheckpoint(int64_t step, uint64_t branch, const std::string& contents) {
    const std::string name = absl::StrFormat("ckpt/step-%08d", step);
    Write(name + "/model.bin", contents);
    nlohmann::json manifest = {
        {"format", 1},
        {"step", step},
        {"branch", branch},
        {"epoch", 3},
        {"parameters_sha256", "p" + std::to_string(step)},
        {"files",
         {{{"name", "model.bin"}, {"bytes", contents.size()}, {"sha256", Sha256Hex(contents)}}}}};
    manifest["checksum"] = Sha256Hex(manifest.dump());
    Write(name + "/manifest.json", manifest.dump(2));
    return JoinPath(directory_, name);
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

TEST_F(JobFilesTest, FindsTheNewestIntactCheckpoint) {
  const std::string directory = JoinPath(directory_, "ckpt");
  EXPECT_EQ(FindResumePoint(files_, directory)->newest, std::nullopt);
  WriteCheckpoint(100, 1, "a");
  const std::string newest = WriteCheckpoint(200, 1, "b");
  Write("ckpt/notes.txt", "not a checkpoint");
  const absl::StatusOr<ResumePoint> found = FindResumePoint(files_, directory);
  ASSERT_TRUE(found.ok()) << found.status();
  ASSERT_TRUE(found->newest.has_value());
  EXPECT_EQ(found->newest->tag, (StateTag{.branch = 1, .step = 200, .epoch = 3}));
  EXPECT_EQ(found->newest->path, newest);
  EXPECT_EQ(found->newest->checksum, "p200");
  EXPECT_TRUE(found->warnings.empty());
}

TEST_F(JobFilesTest, AHigherBranchIsNewer) {
  WriteCheckpoint(300, 1, "old branch");
  WriteCheckpoint(200, 2, "new branch");
  EXPECT_EQ(FindResumePoint(files_, JoinPath(directory_, "ckpt"))->newest->tag.step, 200);
}

TEST_F(JobFilesTest, PassesOverTornAndCorruptOnes) {
  WriteCheckpoint(100, 1, "good");
  WriteCheckpoint(200, 1, "to be changed");
  WriteCheckpoint(300, 1, "to be cut");
  WriteCheckpoint(400, 1, "manifest to be changed");
  WriteCheckpoint(500, 1, "manifest to be lost");
  Write("ckpt/step-00000200/model.bin", "TO be changed");
  Write("ckpt/step-00000300/model.bin", "to be");
  const std::string manifest = JoinPath(directory_, "ckpt/step-00000400/manifest.json");
  std::string text = *ReadFile(files_, manifest, 1 << 20);
  text.replace(text.find("\"step\": 400"), 11, "\"step\": 900");
  Write("ckpt/step-00000400/manifest.json", text);
  ASSERT_TRUE(files_.RemoveAll(JoinPath(directory_, "ckpt/step-00000500/manifest.json")).ok());
  const absl::StatusOr<ResumePoint> found = FindResumePoint(files_, JoinPath(directory_, "ckpt"));
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(found->newest->tag.step, 100);
  EXPECT_THAT(found->warnings,
              testing::UnorderedElementsAre(
                  HasSubstr("step-00000200/model.bin: does not match the manifest's checksum"),
                  HasSubstr("step-00000300/model.bin: has 5 bytes, the manifest says 9"),
                  HasSubstr("step-00000400/manifest.json: does not match its checksum"),
                  HasSubstr("step-00000500/manifest.json")));
}

TEST_F(JobFilesTest, EpochsNeedReadableData) {
  JobSpec spec;
  spec.training.epochs = 2;
  spec.training.global_batch = 100;
  spec.training.micro_batch = 100;
  spec.data.train_images = Write("images", IdxHeader(1'000));
  EXPECT_EQ(ResolveJobFiles(files_, spec)->total_steps, 20);
  spec.data.train_images = directory_ + "/absent";
  const absl::Status status = ResolveJobFiles(files_, spec).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), StartsWith("training.epochs: the coordinator cannot"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("give training.steps instead"));
}

TEST_F(JobFilesTest, ResumingAFinishedJobIsRefused) {
  WriteCheckpoint(100, 1, "all done");
  JobSpec spec;
  spec.training.steps = 100;
  spec.checkpoints = {.directory = JoinPath(directory_, "ckpt"), .resume = true};
  EXPECT_THAT(std::string(ResolveJobFiles(files_, spec).status().message()),
              StartsWith("checkpoints.resume: "));
  spec.training.steps = 101;
  EXPECT_EQ(ResolveJobFiles(files_, spec)->resume.newest->tag.step, 100);
}

}  // namespace
}  // namespace muster
