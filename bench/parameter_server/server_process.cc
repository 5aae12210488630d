#include "bench/parameter_server/server_process.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace muster::bench {
namespace {

// The address in the file, or nothing while it is not there.
std::string AddressIn(const std::string& file) {
  std::ifstream stream(file);
  std::stringstream text;
  text << stream.rdbuf();
  const nlohmann::json json = nlohmann::json::parse(text.str(), nullptr, /*exceptions=*/false);
  return json.is_object() ? json.value("rpc_address", "") : "";
}

}  // namespace

absl::StatusOr<ServerProcess> ServerProcess::Start(const std::string& program,
                                                   std::vector<std::string> arguments) {
  std::string directory = std::filesystem::temp_directory_path() / "muster-bench-XXXXXX";
  if (mkdtemp(directory.data()) == nullptr) {
    return absl::UnavailableError(absl::StrCat("cannot make a folder ", directory));
  }
  const std::string ready = directory + "/ready.json";
  arguments.insert(arguments.begin(), program);
  arguments.insert(arguments.end(), {"--ready-file", ready});
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  const pid_t pid = fork();
  if (pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    execv(program.c_str(), argv.data());
    _exit(127);
  }
  if (pid < 0) return absl::UnavailableError("cannot start a process");
  ServerProcess process(pid, "");
  const absl::Time deadline = absl::Now() + absl::Seconds(10);
  while (process.address_.empty()) {
    if (waitpid(pid, nullptr, WNOHANG) != 0) {
      process.pid_ = -1;
      return absl::UnavailableError(absl::StrCat(program, " ended at once"));
    }
    if (absl::Now() > deadline) return absl::UnavailableError(program + " does not serve");
    absl::SleepFor(absl::Milliseconds(2));
    process.address_ = AddressIn(ready);
  }
  std::filesystem::remove_all(directory);
  return process;
}

ServerProcess::ServerProcess(ServerProcess&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)), address_(std::move(other.address_)) {}

ServerProcess::~ServerProcess() {
  if (pid_ <= 0) return;
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
}

std::string SiblingProgram(const std::string& name) {
  return std::filesystem::read_symlink("/proc/self/exe").parent_path() / name;
}

}  // namespace muster::bench
