// The launcher with shell scripts in place of the daemons.
#include "client/launcher/fleet.h"

#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <map>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/base/temporary_directory.h"

namespace muster {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Pair;
using ::testing::SizeIs;

// Only bounds a hang.
constexpr absl::Duration kPatience = absl::Seconds(60);

constexpr char kCoordinatorScript[] = R"(#!/bin/sh
while [ $# -gt 0 ]; do
  if [ "$1" = --ready-file ]; then ready=$2; fi
  shift
done
echo '{"rpc_address": "127.0.0.1:4711", "metrics_port": 0}' > "$ready.tmp"
mv "$ready.tmp" "$ready"
echo '{"level":"info","event":"listening","text":"up"}'
exec sleep 1000
)";
// Says its arguments, then waits for its end.
constexpr char kWorkerScript[] = R"(#!/bin/sh
echo "arguments: $*"
exec sleep 1000
)";

class FleetTest : public ::testing::Test {
 protected:
  FleetTest() {
    Script("muster-coordinator", kCoordinatorScript);
    Script("muster-worker", kWorkerScript);
    options_.binary_directory = directory_.path();
    options_.run_directory = directory_.path() + "/run";
    options_.pid_file = directory_.path() + "/pids.json";
    options_.workers = 2;
    options_.on_line = [this](const std::string& process, const LogLine& line) {
      lines_.emplace_back(process, line.text);
    };
  }

  void Script(const std::string& name, const std::string& text) {
    const std::string path = directory_.path() + "/" + name;
    std::ofstream(path) << text;
    ASSERT_EQ(chmod(path.c_str(), 0755), 0);
  }

  nlohmann::json Pids() {
    std::ifstream stream(options_.pid_file);
    return nlohmann::json::parse(stream);
  }

  // Looks after the fleet until `done`.
  static void Until(Fleet& fleet, const std::function<bool()>& done) {
    const absl::Time deadline = absl::Now() + kPatience;
    while (!done()) {
      ASSERT_LT(absl::Now(), deadline) << "gave up waiting";
      std::vector<pollfd> descriptors;
      fleet.AppendDescriptors(&descriptors);
      poll(descriptors.data(), descriptors.size(), 5);
      fleet.ReadOutput();
    }
  }

  void StartAll(Fleet& fleet) {
    ASSERT_TRUE(fleet.StartCoordinator().ok());
    Until(fleet, [&] { return fleet.CoordinatorAddress().value().has_value(); });
    const absl::Status started = fleet.StartWorkers();
    ASSERT_TRUE(started.ok()) << started;
  }

  TemporaryDirectory directory_;
  PosixFileSystem files_;
  FleetOptions options_;
  std::vector<std::pair<std::string, std::string>> lines_;
};

bool IsAlive(pid_t pid) { return kill(pid, 0) == 0; }

TEST_F(FleetTest, StartsMergesLogsAndEndsAll) {
  std::vector<pid_t> pids;
  {
    Fleet fleet(options_, &files_);
    StartAll(fleet);
    EXPECT_EQ(fleet.running_workers(), 2);
    EXPECT_TRUE(fleet.coordinator_running());
    const nlohmann::json file = Pids();
    ASSERT_THAT(file, SizeIs(3));
    for (const char* name : {"coordinator", "worker-0", "worker-1"}) {
      pids.push_back(file.at(name).get<pid_t>());
      EXPECT_TRUE(IsAlive(pids.back()));
    }
    Until(fleet, [&] { return lines_.size() >= 3; });
    EXPECT_THAT(lines_, Contains(Pair("coordinator", "I listening: up")));
    EXPECT_THAT(lines_, Contains(Pair("worker-1", HasSubstr("--coordinator 127.0.0.1:4711"))));
    EXPECT_THAT(lines_, Contains(Pair("worker-1", HasSubstr("--name worker-1"))));
  }
  for (const pid_t pid : pids) EXPECT_FALSE(IsAlive(pid));
  EXPECT_EQ(Pids(), nlohmann::json::object());
  std::ifstream log(options_.run_directory + "/logs/worker-0.log");
  std::string line;
  ASSERT_TRUE(std::getline(log, line));
  EXPECT_THAT(line, HasSubstr("arguments: "));
}

TEST_F(FleetTest, ReportsADeathOnceAndReplacesTheWorker) {
  Fleet fleet(options_, &files_);
  StartAll(fleet);
  const pid_t victim = Pids().at("worker-1").get<pid_t>();
  ASSERT_EQ(kill(victim, SIGKILL), 0);
  std::vector<Fleet::Exit> exits;
  Until(fleet, [&] {
    for (Fleet::Exit& exit : fleet.Reap()) exits.push_back(std::move(exit));
    return !exits.empty();
  });
  ASSERT_THAT(exits, SizeIs(1));
  EXPECT_EQ(exits[0].process, "worker-1");
  EXPECT_TRUE(exits[0].is_worker);
  EXPECT_EQ(WaitStatusText(exits[0].wait_status), "was killed by signal 9 (Killed)");
  EXPECT_EQ(fleet.running_workers(), 1);
  EXPECT_FALSE(Pids().contains("worker-1"));
  EXPECT_THAT(fleet.Reap(), SizeIs(0));

  ASSERT_TRUE(fleet.RestartWorker("worker-1").ok());
  EXPECT_EQ(fleet.running_workers(), 2);
  EXPECT_NE(Pids().at("worker-1").get<pid_t>(), victim);
  EXPECT_TRUE(absl::IsNotFound(fleet.RestartWorker("worker-7")));
}

TEST_F(FleetTest, TellsWhyAProcessEnded) {
  Script("muster-coordinator",
         "#!/bin/sh\n"
         "echo '{\"level\":\"error\",\"event\":\"start_failed\",\"text\":\"port in use\"}'\n"
         "exit 3\n");
  Fleet fleet(options_, &files_);
  ASSERT_TRUE(fleet.StartCoordinator().ok());
  std::vector<Fleet::Exit> exits;
  Until(fleet, [&] {
    exits = fleet.Reap();
    return !exits.empty();
  });
  EXPECT_EQ(WaitStatusText(exits[0].wait_status), "exited with code 3");
  EXPECT_THAT(exits[0].last_error, HasSubstr("port in use"));
  EXPECT_FALSE(fleet.coordinator_running());
}

TEST_F(FleetTest, AMissingProgramIsNamed) {
  options_.binary_directory = "/nonexistent";
  Fleet fleet(options_, &files_);
  EXPECT_THAT(std::string(fleet.StartCoordinator().message()),
              HasSubstr("cannot run /nonexistent/muster-coordinator: No such file"));
}

TEST_F(FleetTest, AReadyFileOfAnotherFormIsAnError) {
  Script("muster-coordinator", R"(#!/bin/sh
while [ $# -gt 0 ]; do
  if [ "$1" = --ready-file ]; then ready=$2; fi
  shift
done
echo 'nonsense' > "$ready.tmp"
mv "$ready.tmp" "$ready"
exec sleep 1000
)");
  Fleet fleet(options_, &files_);
  ASSERT_TRUE(fleet.StartCoordinator().ok());
  absl::Status status;
  Until(fleet, [&] {
    status = fleet.CoordinatorAddress().status();
    return !status.ok();
  });
  EXPECT_THAT(std::string(status.message()), HasSubstr("expected a JSON object with rpc_address"));
}

// Whatever happens to the launcher, nothing is left running.
TEST_F(FleetTest, AKilledLauncherTakesItsChildrenAlong) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const pid_t launcher = fork();
  ASSERT_GE(launcher, 0);
  if (launcher == 0) {
    Fleet fleet(options_, &files_);
    StartAll(fleet);
    const char done = 1;
    if (write(ends[1], &done, 1) != 1) _exit(1);
    while (true) pause();
  }
  close(ends[1]);
  char started = 0;
  ASSERT_EQ(read(ends[0], &started, 1), 1);
  std::vector<pid_t> pids;
  const nlohmann::json file = Pids();
  for (const auto& [name, pid] : file.items()) pids.push_back(pid.get<pid_t>());
  ASSERT_THAT(pids, SizeIs(3));
  ASSERT_EQ(kill(launcher, SIGKILL), 0);
  ASSERT_EQ(waitpid(launcher, nullptr, 0), launcher);
  // Their output closes with their end; the pipe was inherited by none of them.
  const absl::Time deadline = absl::Now() + kPatience;
  for (const pid_t pid : pids) {
    // A zombie that nobody has reaped yet is no running process.
    const auto running = [pid] {
      std::ifstream stat("/proc/" + std::to_string(pid) + "/stat");
      std::string text;
      return std::getline(stat, text) && text.find(") Z ") == std::string::npos;
    };
    while (running()) ASSERT_LT(absl::Now(), deadline) << pid << " outlived its launcher";
  }
  close(ends[0]);
}

}  // namespace
}  // namespace muster
