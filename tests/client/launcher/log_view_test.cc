#include "client/launcher/log_view.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

TEST(LogViewTest, ReadsWhatTheLoggerWrites) {
  std::string written;
  Logger logger({.process = "worker-2",
                 .format = LogFormat::kJson,
                 .write = [&](LogLevel, absl::string_view line) { written = std::string(line); }});
  logger.Warning("late", "peer is late", {{"peer", "worker-1"}, {"reason", ""}, {"ms", 250}});
  LogLine line = ReadLogLine(written);
  EXPECT_EQ(line.level, LogLevel::kWarning);
  // After the time of day. A field without a value says nothing.
  EXPECT_EQ(line.text.substr(13), "W late: peer is late ms=250 peer=worker-1");
  logger.SetContext(1, 3, 120);
  logger.Error("gone", "x");
  line = ReadLogLine(written);
  EXPECT_EQ(line.level, LogLevel::kError);
  EXPECT_EQ(line.text.substr(13), "E gone: x (rank 1, epoch 3, step 120)");
}

TEST(LogViewTest, OtherLinesAreShownAsTheyAre) {
  for (const char* text :
       {"check.cc:3: check failed: x", "{\"a\": 1}", "[1]", "{\"event\"", "7", "null"}) {
    const LogLine line = ReadLogLine(text);
    EXPECT_EQ(line.text, text);
    EXPECT_EQ(line.level, LogLevel::kError);
  }
}

TEST(LogViewTest, WrongTypesAndControlCharactersDoNoHarm) {
  const LogLine line = ReadLogLine(
      R"({"event": 1, "text": ["x"], "level": 5, "time": "?", "fields": 3, "epoch": "x"})");
  EXPECT_EQ(line.text, "I : ");
  EXPECT_EQ(ReadLogLine("a\033[2Jb\tc").text, "a [2Jb c");
}

TEST(LineSplitterTest, CutsAtNewlinesWhereverTheBytesCome) {
  LineSplitter splitter;
  EXPECT_THAT(splitter.Add("one\ntw"), ElementsAre("one"));
  EXPECT_THAT(splitter.Add(""), IsEmpty());
  EXPECT_THAT(splitter.Add("o\n\nthree"), ElementsAre("two", ""));
  EXPECT_EQ(splitter.Rest(), "three");
  EXPECT_EQ(splitter.Rest(), "");
}

TEST(LineSplitterTest, ALineWithoutEndIsCut) {
  LineSplitter splitter;
  const std::string chunk(100'000, 'x');
  size_t bytes = 0;
  for (int i = 0; i < 10; ++i) {
    for (const std::string& line : splitter.Add(chunk)) {
      EXPECT_THAT(line, SizeIs(65'536));
      bytes += line.size();
    }
  }
  EXPECT_EQ(bytes + splitter.Rest().size(), 1'000'000u);
}

}  // namespace
}  // namespace muster
