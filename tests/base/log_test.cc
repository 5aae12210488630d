#include "base/log.h"

#include <fcntl.h>
#include <unistd.h>

#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace muster {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;
using ::testing::SizeIs;

// A logger whose lines end in a vector.
class Lines {
 public:
  explicit Lines(LogFormat format, LogLevel level = LogLevel::kInfo)
      : logger_(
            {.process = "worker-2",
             .host = "node1",
             .level = level,
             .format = format,
             .write = [this](LogLevel, absl::string_view line) { lines_.emplace_back(line); }}) {}
  Logger& logger() { return logger_; }
  const std::vector<std::string>& all() const { return lines_; }
  const std::string& last() const { return lines_.back(); }

 private:
  std::vector<std::string> lines_;
  Logger logger_;
};

TEST(LogTest, JsonLineCarriesEverything) {
  Lines lines(LogFormat::kJson);
  lines.logger().SetContext(1, 3, 120);
  lines.logger().Info("joined", "joined the fleet",
                      {{"peer", "worker-1"}, {"count", 7u}, {"ratio", 0.5}, {"late", false}});
  const json line = json::parse(lines.last());
  EXPECT_EQ(line["level"], "info");
  EXPECT_EQ(line["host"], "node1");
  EXPECT_EQ(line["process"], "worker-2");
  EXPECT_EQ(line["rank"], 1);
  EXPECT_EQ(line["epoch"], 3);
  EXPECT_EQ(line["step"], 120);
  EXPECT_EQ(line["event"], "joined");
  EXPECT_EQ(line["text"], "joined the fleet");
  EXPECT_EQ(line["fields"],
            json({{"peer", "worker-1"}, {"count", 7}, {"ratio", 0.5}, {"late", false}}));
  EXPECT_THAT(line["time"].get<std::string>(),
              MatchesRegex("[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}.[0-9]{6}Z"));
}

TEST(LogTest, TextLineCarriesEverything) {
  Lines lines(LogFormat::kText);
  lines.logger().Warning("late", "peer is late", {{"peer", "worker 1"}, {"ms", 250}});
  EXPECT_THAT(lines.last(), HasSubstr(" W node1/worker-2 r- e0 s0 late: peer is late "
                                      "peer=\"worker 1\" ms=250"));
  lines.logger().SetContext(0, 2, 9);
  lines.logger().Error("gone", "x");
  EXPECT_THAT(lines.last(), HasSubstr(" E node1/worker-2 r0 e2 s9 gone: x"));
}

TEST(LogTest, HostileTextStaysOneValidLine) {
  const std::string hostile = std::string("a\nb\033[2J\"\\\xff\x80") + '\0' + "end";
  Lines as_json(LogFormat::kJson);
  as_json.logger().Info("event", hostile, {{"value", hostile}});
  EXPECT_THAT(as_json.last(), Not(HasSubstr("\n")));
  EXPECT_THAT(json::parse(as_json.last())["text"].get<std::string>(), HasSubstr("a\nb"));

  Lines as_text(LogFormat::kText);
  as_text.logger().Info("event", hostile, {{"value", hostile}});
  EXPECT_THAT(as_text.last(), Not(HasSubstr("\n")));
  EXPECT_THAT(as_text.last(), Not(HasSubstr("\033")));
}

TEST(LogTest, NumbersJsonCannotHoldAreText) {
  Lines lines(LogFormat::kJson);
  lines.logger().Info("event", "x",
                      {{"nan", std::numeric_limits<double>::quiet_NaN()},
                       {"low", -std::numeric_limits<double>::infinity()},
                       {"big", std::numeric_limits<uint64_t>::max()}});
  const json fields = json::parse(lines.last())["fields"];
  EXPECT_EQ(fields["nan"], "NaN");
  EXPECT_EQ(fields["low"], "-Infinity");
  EXPECT_EQ(fields["big"], std::numeric_limits<uint64_t>::max());
}

TEST(LogTest, LongLinesAreCutAndStayValid) {
  Lines lines(LogFormat::kJson);
  lines.logger().Info("event", std::string(100'000, '\x01'), {{"more", std::string(100'000, 'x')}});
  EXPECT_LT(lines.last().size(), 4096u);
  EXPECT_EQ(json::parse(lines.last())["fields"]["truncated"], true);
}

TEST(LogTest, LevelsFilter) {
  Lines lines(LogFormat::kText, LogLevel::kWarning);
  lines.logger().Info("a", "x");
  lines.logger().Warning("b", "x");
  EXPECT_THAT(lines.all(), SizeIs(1));
  lines.logger().SetLevel(LogLevel::kDebug);
  lines.logger().Debug("c", "x");
  EXPECT_THAT(lines.all(), SizeIs(2));
  lines.logger().SetLevel(LogLevel::kOff);
  lines.logger().Error("d", "x");
  EXPECT_THAT(lines.all(), SizeIs(2));
  EXPECT_FALSE(lines.logger().Enabled(LogLevel::kError));
  EXPECT_FALSE(MakeSilentLogger()->Enabled(LogLevel::kError));
}

TEST(LogTest, NamesParse) {
  for (const LogLevel level :
       {LogLevel::kDebug, LogLevel::kInfo, LogLevel::kWarning, LogLevel::kError, LogLevel::kOff}) {
    EXPECT_EQ(ParseLogLevel(Name(level)).value(), level);
  }
  EXPECT_THAT(ParseLogLevel("loud").status().message(), HasSubstr("\"loud\" is not one of debug"));
  EXPECT_EQ(ParseLogFormat("json").value(), LogFormat::kJson);
  EXPECT_THAT(ParseLogFormat("xml").status().message(), HasSubstr("\"xml\" is not one of auto"));
}

TEST(LogTest, ThreadsDoNotMixLines) {
  Lines lines(LogFormat::kJson);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&lines, t] {
      for (int i = 0; i < 200; ++i) {
        lines.logger().SetContext(t, 1, i);
        lines.logger().Info("event", "text", {{"i", i}});
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  ASSERT_THAT(lines.all(), SizeIs(800));
  for (const std::string& line : lines.all()) EXPECT_TRUE(json::accept(line)) << line;
}

// A pipe whose reader does nothing until asked.
class Pipe {
 public:
  Pipe() { EXPECT_EQ(pipe(ends_), 0); }
  ~Pipe() {
    close(ends_[0]);
    close(ends_[1]);
  }
  int write_end() const { return ends_[1]; }
  std::string ReadAvailable() {
    fcntl(ends_[0], F_SETFL, O_NONBLOCK);
    std::string all;
    char buffer[65'536];
    ssize_t count;
    while ((count = read(ends_[0], buffer, sizeof buffer)) > 0) all.append(buffer, count);
    return all;
  }

 private:
  int ends_[2] = {-1, -1};
};

TEST(LogTest, AStalledReaderCostsLinesAndNotTheProgram) {
  Pipe pipe;
  Logger logger({.process = "p", .format = LogFormat::kJson, .descriptor = pipe.write_end()});
  // Far more than a pipe holds: would hang if a write could wait without bound.
  for (int i = 0; i < 2000; ++i) logger.Info("event", std::string(200, 'x'), {{"i", i}});
  const std::string before = pipe.ReadAvailable();
  logger.Info("last", "back again");
  const std::vector<std::string> after =
      absl::StrSplit(pipe.ReadAvailable(), '\n', absl::SkipEmpty());
  ASSERT_THAT(after, SizeIs(2));
  const size_t kept = static_cast<size_t>(std::count(before.begin(), before.end(), '\n'));
  const json notice = json::parse(after[0]);
  EXPECT_EQ(notice["event"], "log_lines_dropped");
  EXPECT_EQ(notice["count"].get<size_t>(), 2000 - kept);
  EXPECT_EQ(json::parse(after[1])["event"], "last");
}

TEST(LogTest, AReaderThatWentAwayIsNoError) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  close(ends[0]);
  Logger logger({.process = "p", .descriptor = ends[1]});
  logger.Info("event", "nobody reads this");  // no SIGPIPE
  close(ends[1]);
}

}  // namespace
}  // namespace muster
