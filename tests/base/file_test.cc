#include "base/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/base/temporary_directory.h"

namespace muster {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class FileTest : public ::testing::Test {
 protected:
  std::string Path(const std::string& name) const { return directory_.Path(name); }

  TemporaryDirectory directory_;
  PosixFileSystem files_;
};

TEST_F(FileTest, WritesAppendsAndReads) {
  ASSERT_TRUE(WriteFileDurably(files_, Path("a"), "one").ok());
  auto file = files_.OpenToAppend(Path("a"));
  ASSERT_TRUE(file.ok()) << file.status();
  ASSERT_TRUE((*file)->Append(" two").ok());
  ASSERT_TRUE((*file)->Close().ok());
  EXPECT_EQ(ReadFile(files_, Path("a"), 100).value(), "one two");
  ASSERT_TRUE(WriteFileDurably(files_, Path("a"), "3").ok());
  EXPECT_EQ(ReadFile(files_, Path("a"), 100).value(), "3");
}

TEST_F(FileTest, ReadAtStopsAtTheEnd) {
  ASSERT_TRUE(WriteFileDurably(files_, Path("a"), "0123456789").ok());
  const auto file = files_.Open(Path("a"));
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ((*file)->size(), 10);
  char buffer[8] = {};
  EXPECT_EQ((*file)->ReadAt(3, absl::MakeSpan(buffer)).value(), 7u);
  EXPECT_EQ(std::string(buffer, 7), "3456789");
  EXPECT_EQ((*file)->ReadAt(10, absl::MakeSpan(buffer)).value(), 0u);
}

TEST_F(FileTest, APipeIsRefusedWithoutWaitingForAWriter) {
  ASSERT_EQ(mkfifo(Path("pipe").c_str(), 0600), 0);
  const absl::Status status = files_.Open(Path("pipe")).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("it is not a regular file"));
}

TEST_F(FileTest, ErrorsNameOperationPathAndReason) {
  const absl::Status missing = files_.Open(Path("nowhere")).status();
  EXPECT_EQ(missing.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(missing.message()), HasSubstr("cannot open " + Path("nowhere")));
  EXPECT_THAT(std::string(missing.message()), HasSubstr("No such file"));

  EXPECT_EQ(files_.Create(Path("no/such")).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(files_.ListDirectory(Path("nowhere")).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(files_.Open(directory_.path()).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(files_.SyncDirectory(Path("nowhere")).code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(files_.Rename(Path("x"), Path("y")).code(), absl::StatusCode::kNotFound);
  ASSERT_TRUE(WriteFileDurably(files_, Path("f"), "1234").ok());
  EXPECT_EQ(files_.CreateDirectories(Path("f/below")).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ReadFile(files_, Path("f"), 3).status().code(), absl::StatusCode::kOutOfRange);
}

TEST_F(FileTest, RenameDoesNotReplaceADirectoryWithContent) {
  ASSERT_TRUE(files_.CreateDirectories(Path("a")).ok());
  ASSERT_TRUE(files_.CreateDirectories(Path("b/c")).ok());
  EXPECT_EQ(files_.Rename(Path("a"), Path("b")).code(), absl::StatusCode::kAlreadyExists);
}

TEST_F(FileTest, ListsInOrderAndRemovesTrees) {
  ASSERT_TRUE(files_.CreateDirectories(Path("d/e/f")).ok());
  ASSERT_TRUE(files_.CreateDirectories(Path("d/e/f")).ok());
  ASSERT_TRUE(WriteFileDurably(files_, Path("d/z"), "").ok());
  ASSERT_TRUE(WriteFileDurably(files_, Path("d/.a"), "").ok());
  EXPECT_THAT(files_.ListDirectory(Path("d")).value(), ElementsAre(".a", "e", "z"));
  EXPECT_TRUE(files_.Exists(Path("d")).value());
  ASSERT_TRUE(files_.RemoveAll(Path("d")).ok());
  EXPECT_FALSE(files_.Exists(Path("d")).value());
  EXPECT_TRUE(files_.RemoveAll(Path("d")).ok());
}

TEST_F(FileTest, RemoveAllDoesNotFollowLinks) {
  ASSERT_TRUE(files_.CreateDirectories(Path("kept")).ok());
  ASSERT_TRUE(WriteFileDurably(files_, Path("kept/file"), "x").ok());
  ASSERT_TRUE(files_.CreateDirectories(Path("gone")).ok());
  std::filesystem::create_directory_symlink(Path("kept"), Path("gone/link"));
  ASSERT_TRUE(files_.RemoveAll(Path("gone")).ok());
  EXPECT_TRUE(files_.Exists(Path("kept/file")).value());
}

TEST_F(FileTest, ReplaceLeavesOnlyTheNewContents) {
  ASSERT_TRUE(ReplaceFileAtomically(files_, Path("r"), "old").ok());
  ASSERT_TRUE(ReplaceFileAtomically(files_, Path("r"), "new").ok());
  EXPECT_EQ(ReadFile(files_, Path("r"), 100).value(), "new");
  EXPECT_THAT(files_.ListDirectory(directory_.path()).value(), ElementsAre("r"));
}

TEST_F(FileTest, AReplacementThatFailsLeavesNothingBehind) {
  ASSERT_TRUE(files_.CreateDirectories(Path("r/below")).ok());
  EXPECT_FALSE(ReplaceFileAtomically(files_, Path("r"), "new").ok());
  EXPECT_THAT(files_.ListDirectory(directory_.path()).value(), ElementsAre("r"));
}

TEST_F(FileTest, AReplacementFollowsLinks) {
  ASSERT_TRUE(files_.CreateDirectories(Path("d")).ok());
  ASSERT_TRUE(WriteFileDurably(files_, Path("d/file"), "old").ok());
  std::filesystem::create_symlink("file", Path("d/inner"));
  std::filesystem::create_symlink(Path("d/inner"), Path("link"));
  ASSERT_TRUE(ReplaceFileAtomically(files_, Path("link"), "new").ok());
  EXPECT_TRUE(std::filesystem::is_symlink(Path("link")));
  EXPECT_TRUE(std::filesystem::is_symlink(Path("d/inner")));
  EXPECT_EQ(ReadFile(files_, Path("d/file"), 100).value(), "new");
  EXPECT_THAT(files_.ListDirectory(Path("d")).value(), ElementsAre("file", "inner"));

  std::filesystem::create_symlink("d/later", Path("dangling"));
  ASSERT_TRUE(ReplaceFileAtomically(files_, Path("dangling"), "created").ok());
  EXPECT_TRUE(std::filesystem::is_symlink(Path("dangling")));
  EXPECT_EQ(ReadFile(files_, Path("d/later"), 100).value(), "created");

  std::filesystem::create_symlink("d", Path("directory"));
  EXPECT_EQ(ReplaceFileAtomically(files_, Path("directory"), "x").code(),
            absl::StatusCode::kInvalidArgument);
  std::filesystem::create_symlink("round", Path("round"));
  EXPECT_FALSE(ReplaceFileAtomically(files_, Path("round"), "x").ok());
  EXPECT_TRUE(std::filesystem::is_symlink(Path("round")));
}

TEST_F(FileTest, APipeIsWrittenAndStaysOne) {
  ASSERT_EQ(mkfifo(Path("pipe").c_str(), 0600), 0);
  std::filesystem::create_symlink("pipe", Path("link"));
  const absl::Status unread = ReplaceFileAtomically(files_, Path("link"), "x");
  EXPECT_EQ(unread.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(unread.message()), HasSubstr("nobody reads"));

  const int reader = open(Path("pipe").c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  ASSERT_GE(reader, 0);
  ASSERT_TRUE(ReplaceFileAtomically(files_, Path("link"), "text").ok());
  char buffer[8] = {};
  EXPECT_EQ(read(reader, buffer, sizeof(buffer)), 4);
  EXPECT_EQ(std::string(buffer), "text");
  close(reader);
  EXPECT_TRUE(std::filesystem::is_fifo(Path("pipe")));
  EXPECT_THAT(files_.ListDirectory(directory_.path()).value(), ElementsAre("link", "pipe"));
}

// As /dev/stdout is, when a shell sends it to a file.
TEST_F(FileTest, AnOpenDescriptorIsWrittenWhereItStands) {
  const int descriptor = open(Path("out").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
  ASSERT_GE(descriptor, 0);
  std::filesystem::create_symlink("/proc/self/fd/" + std::to_string(descriptor), Path("link"));
  ASSERT_EQ(write(descriptor, "before ", 7), 7);
  ASSERT_TRUE(ReplaceFileAtomically(files_, Path("link"), "between ").ok());
  ASSERT_EQ(write(descriptor, "after", 5), 5);
  close(descriptor);
  EXPECT_EQ(ReadFile(files_, Path("out"), 100).value(), "before between after");
}

TEST_F(FileTest, FindsWhereAFileGoes) {
  std::filesystem::create_symlink("nowhere/file", Path("link"));
  EXPECT_EQ(files_.FindDestination(Path("link")).value().path, Path("nowhere/file"));
  EXPECT_EQ(files_.FindDestination(Path("new")).value().path, Path("new"));
  EXPECT_FALSE(files_.FindDestination(Path("new")).value().is_stream);
  EXPECT_TRUE(files_.FindDestination("/dev/null").value().is_stream);
  EXPECT_EQ(files_.FindDestination(directory_.path()).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_F(FileTest, AFullDiskIsResourceExhausted) {
  auto file = files_.OpenToAppend("/dev/full");
  if (!file.ok()) GTEST_SKIP() << file.status();
  EXPECT_EQ((*file)->Append("x").code(), absl::StatusCode::kResourceExhausted);
}

TEST(PathTest, JoinsAndSplits) {
  EXPECT_EQ(JoinPath("a", "b"), "a/b");
  EXPECT_EQ(JoinPath("a/", "b"), "a/b");
  EXPECT_EQ(JoinPath("", "b"), "b");
  EXPECT_EQ(ParentDirectory("a/b"), "a");
  EXPECT_EQ(ParentDirectory("b"), ".");
  EXPECT_EQ(ParentDirectory("/b"), "/");
}

}  // namespace
}  // namespace muster
