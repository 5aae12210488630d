// The tree obeys its rules, and each rule notices when it is broken.
#include "tests/tidy/tidy.h"

#include <filesystem>
#include <fstream>
#include <sstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

Problems Includes(const std::string& path, const std::string& included) {
  Problems problems;
  CheckIncludes({path, absl::StrCat("#include ", included, "\n")}, &problems);
  return problems;
}

Problems Calls(const std::string& path, const std::string& line) {
  Problems problems;
  CheckCalls({path, line + "\n"}, &problems);
  return problems;
}

Problems Form(const std::string& path, const std::string& text) {
  Problems problems;
  CheckForm({path, text}, &problems);
  return problems;
}

TEST(TidyRulesTest, IncludesPointDownwards) {
  EXPECT_THAT(Includes("server/rpc/a.cc", "\"worker/core/b.h\""),
              ElementsAre("server/rpc/a.cc:1: server/ may not include worker/core/b.h"));
  EXPECT_THAT(Includes("worker/sync/a.cc", "\"server/core/b.h\""), SizeIs(1));
  EXPECT_THAT(Includes("base/a.h", "\"state/layout.h\""), SizeIs(1));
  EXPECT_THAT(Includes("client/a.cc", "\"server/core/b.h\""), SizeIs(1));
  EXPECT_THAT(Includes("collectives/transport/a.cc", "\"collectives/engine/b.h\""), SizeIs(1));
  EXPECT_THAT(Includes("collectives/engine/a.cc", "\"collectives/transport/b.h\""), IsEmpty());
  EXPECT_THAT(Includes("worker/sync/a.cc", "\"state/layout.h\""), IsEmpty());
  EXPECT_THAT(Includes("tests/server/core/a_test.cc", "\"worker/core/b.h\""), IsEmpty());
}

TEST(TidyRulesTest, PureFoldersSeeNothingOfTheWorld) {
  for (const char* included :
       {"<thread>", "<mutex>", "<chrono>", "<sys/socket.h>", "<fstream>", "\"absl/time/clock.h\"",
        "\"absl/synchronization/mutex.h\"", "\"base/file.h\"", "<grpcpp/channel.h>"}) {
    EXPECT_THAT(Includes("server/core/a.cc", included), SizeIs(1)) << included;
    EXPECT_THAT(Includes("worker/core/a.h", included), SizeIs(1)) << included;
    EXPECT_THAT(Includes("collectives/schedule/a.h", included), SizeIs(1)) << included;
    EXPECT_THAT(Includes("state/layout.cc", included), SizeIs(1)) << included;
    EXPECT_THAT(Includes("worker/rpc/a.cc", included), IsEmpty()) << included;
  }
  EXPECT_THAT(Includes("server/core/a.cc", "\"absl/time/time.h\""), IsEmpty());
  EXPECT_THAT(Includes("server/core/a.cc", "<map>"), IsEmpty());
}

TEST(TidyRulesTest, MessagesStayAtTheEdge) {
  EXPECT_THAT(Includes("worker/runtime/a.cc", "\"muster/v1/job.pb.h\""), SizeIs(1));
  EXPECT_THAT(Includes("worker/rpc/a.cc", "\"muster/v1/job.pb.h\""), IsEmpty());
  EXPECT_THAT(Includes("proto/convert/a.cc", "<grpcpp/channel.h>"), SizeIs(1));
  EXPECT_THAT(Includes("client/commands/a.cc", "<CLI/CLI.hpp>"), SizeIs(1));
  EXPECT_THAT(Includes("client/muster_main.cc", "<CLI/CLI.hpp>"), IsEmpty());
}

TEST(TidyRulesTest, BannedCalls) {
  EXPECT_THAT(Calls("state/a.cc", "  std::cout << 1;"), SizeIs(1));
  EXPECT_THAT(Calls("state/a.cc", "  exit(1);"), SizeIs(1));
  EXPECT_THAT(Calls("state/a.cc", "  std::exit(1);"), SizeIs(1));
  EXPECT_THAT(Calls("client/x_main.cc", "  std::exit(1);"), IsEmpty());
  EXPECT_THAT(Calls("bench/x_main.cc", "  return app.exit(error);"), IsEmpty());
  EXPECT_THAT(Calls("client/a.cc", "  _exit(1);"), IsEmpty());
  EXPECT_THAT(Calls("client/a.cc", "  OnExit(1);"), IsEmpty());
  EXPECT_THAT(Calls("client/a.cc", "  Say(\"exit(1)\");  // exit(1)"), IsEmpty());
  EXPECT_THAT(Calls("worker/a.cc", "  const char* x = getenv(\"X\");"), SizeIs(1));
  EXPECT_THAT(Calls("tests/a_test.cc", "  int x = rand();"), SizeIs(1));
  EXPECT_THAT(Calls("tests/a_test.cc", "  int y = brand(1'000, 'x');"), IsEmpty());
  EXPECT_THAT(Calls("base/a.h", "#pragma once"), SizeIs(1));
}

TEST(TidyRulesTest, TestsDoNotSleep) {
  for (const char* call : {"  absl::SleepFor(x);", "  std::this_thread::sleep_for(x);",
                           "  usleep(5);", "  sleep(1);"}) {
    EXPECT_THAT(Calls("tests/a_test.cc", call), SizeIs(1)) << call;
    EXPECT_THAT(Calls("tests/sim/a.h", call), SizeIs(1)) << call;
    EXPECT_THAT(Calls("tests/wait_until.h", call), IsEmpty()) << call;
    EXPECT_THAT(Calls("worker/runtime/a.cc", call), IsEmpty()) << call;
  }
  EXPECT_THAT(Calls("tests/a_test.cc", "  LetTimePass(x, \"sleep(\");"), IsEmpty());
  EXPECT_THAT(Calls("tests/integration/a_test.py", "    time.sleep(1)"), SizeIs(1));
  EXPECT_THAT(Calls("tests/integration/harness.py", "    time.sleep(1)"), IsEmpty());
}

TEST(TidyRulesTest, Form) {
  const std::string header =
      "// What.\n#ifndef MUSTER_STATE_A_B_H_\n#define MUSTER_STATE_A_B_H_\n#endif\n";
  EXPECT_THAT(Form("state/a_b.h", header), IsEmpty());
  EXPECT_THAT(Form("state/c.h", header), ElementsAre(HasSubstr("MUSTER_STATE_C_H_")));
  EXPECT_THAT(Form("state/a_b.h", header.substr(9)), SizeIs(2));  // no comment, no guard after it
  EXPECT_THAT(Form("a.cc", absl::StrCat(std::string(100, 'x'), "\n")), IsEmpty());
  EXPECT_THAT(Form("a.cc", absl::StrCat(std::string(101, 'x'), "\n")), SizeIs(1));
  EXPECT_THAT(Form("a.cc", "int x;"), ElementsAre(HasSubstr("no newline")));
  std::string lines;
  for (int i = 0; i < 500; ++i) lines += "\n";
  EXPECT_THAT(Form("a.cc", lines), IsEmpty());
  EXPECT_THAT(Form("a.cc", absl::StrCat(lines, "\n")), ElementsAre(HasSubstr("501 lines")));
  EXPECT_THAT(Form("README.md", absl::StrCat("/ho", "me/somebody/x\n")),
              ElementsAre(HasSubstr("a path of one machine")));
}

TEST(TidyRulesTest, EveryFileIsRegistered) {
  const std::vector<SourceFile> files = {
      {"CMakeLists.txt", "add_subdirectory(client)\n"},
      {"client/CMakeLists.txt", "f(SRCS a.cc job/b.cc)  # d.cc\n"},
      {"client/a.cc", ""},
      {"client/job/b.cc", ""},
      {"client/job/c.cc", ""},
      {"client/d.cc", ""},
      {"client/aa.cc", ""},
      {"client/sub/a.cc", ""}};
  Problems problems;
  CheckRegistration(files, &problems);
  EXPECT_THAT(problems, ElementsAre(HasSubstr("client/job/c.cc:1:"), HasSubstr("client/d.cc:1:"),
                                    HasSubstr("client/aa.cc:1:"), HasSubstr("client/sub/a.cc:1:")));
}

// The files of the tree that people write. ctest runs this in the root of the sources.
std::vector<SourceFile> ReadTree() {
  std::vector<SourceFile> files;
  const auto read = [&files](const std::filesystem::path& path) {
    std::ifstream stream(path, std::ios::binary);
    std::ostringstream text;
    text << stream.rdbuf();
    files.push_back({path.lexically_relative(".").string(), text.str()});
  };
  for (const char* folder : {"base", "proto", "collectives", "state", "server", "worker", "client",
                             "tests", "bench", "deploy", "docs", "examples", "cmake", ".ci"}) {
    if (!std::filesystem::exists(folder)) continue;
    for (const auto& entry :
         std::filesystem::recursive_directory_iterator(std::filesystem::path(".") / folder)) {
      const std::string extension = entry.path().extension().string();
      // Fuzzers' inputs are bytes of any kind.
      if (absl::StrContains(entry.path().string(), "fuzz/corpus/")) continue;
      if (entry.is_regular_file() && extension != ".pyc") read(entry.path());
    }
  }
  for (const char* file :
       {"CMakeLists.txt", "README.md", "CONTRIBUTING.md", "CHANGELOG.md", "run", "test"}) {
    read(std::filesystem::path(".") / file);
  }
  return files;
}

TEST(TidyTest, TheTreeObeysItsRules) {
  const std::vector<SourceFile> files = ReadTree();
  // Found the tree at all.
  ASSERT_GT(files.size(), 100u);
  const Problems problems = CheckTree(files);
  EXPECT_THAT(problems, IsEmpty()) << absl::StrJoin(problems, "\n");
}

}  // namespace
}  // namespace muster
