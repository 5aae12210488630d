#include "base/command_line.h"

#include <CLI/CLI.hpp>
#include <optional>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster {
namespace {

using ::testing::HasSubstr;
using ::testing::internal::CaptureStderr;
using ::testing::internal::CaptureStdout;
using ::testing::internal::GetCapturedStderr;
using ::testing::internal::GetCapturedStdout;

std::optional<int> Read(CLI::App& app, std::vector<std::string> arguments) {
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  return ReadArguments(app, static_cast<int>(argv.size()), argv.data());
}

TEST(CommandLineTest, GoesOnWithFlagsOfTheLog) {
  CLI::App app("Does nothing.", "a-daemon");
  LogFlags log;
  log.Declare(app);
  EXPECT_EQ(Read(app, {"a-daemon", "--log-format", "json", "--log-level=warning"}), std::nullopt);
  const auto options = log.ToOptions("a process");
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_EQ(options->process, "a process");
  EXPECT_EQ(options->format, LogFormat::kJson);
  EXPECT_EQ(options->level, LogLevel::kWarning);
}

TEST(CommandLineTest, AWrongValueNamesItsFlag) {
  LogFlags format{.format = "loud", .level = "info"};
  EXPECT_THAT(format.ToOptions("p").status().message(), HasSubstr("--log-format"));
  LogFlags level{.format = "text", .level = "loud"};
  EXPECT_THAT(level.ToOptions("p").status().message(), HasSubstr("--log-level"));
}

TEST(CommandLineTest, AnUnknownFlagEndsTheProgramWithALine) {
  CLI::App app("Does nothing.", "a-daemon");
  CaptureStderr();
  EXPECT_EQ(Read(app, {"a-daemon", "--unheard-of"}), 2);
  const std::string line = GetCapturedStderr();
  EXPECT_THAT(line, HasSubstr("a-daemon: "));
  EXPECT_THAT(line, HasSubstr("--unheard-of"));
  EXPECT_THAT(line, HasSubstr("(see --help)"));
}

TEST(CommandLineTest, HelpEndsTheProgramWell) {
  CLI::App app("Does nothing.", "a-daemon");
  CaptureStdout();
  EXPECT_EQ(Read(app, {"a-daemon", "--help"}), 0);
  EXPECT_THAT(GetCapturedStdout(), HasSubstr("Does nothing."));
}

}  // namespace
}  // namespace muster
