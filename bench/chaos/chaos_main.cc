// bench-chaos: how long does a fleet stand still when a worker dies or freezes?
//
// Runs `muster up --respawn` on loopback, kills (SIGKILL) or freezes (SIGSTOP) random workers of a
// running job one after the other, and measures, by the clock of this machine, from the signal to
// the first step applied afterwards. Between two faults the fleet is whole again. Checks on the way
// that the job's stable step never goes back and that the job is still running at the end.
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/daemon.h"
#include "base/file.h"
#include "base/status_macros.h"
#include "client/coordinator_client.h"
#include "client/launcher/child_process.h"

namespace muster {
namespace {

struct Options {
  std::string job = "examples/fashion-mnist-mlp.yaml";
  int workers = 4;
  int faults = 20;
  std::string fault = "kill";
  int64_t lease_ms = 2000;
  uint64_t seed = 1;
  std::string json;
};

struct Fault {
  std::string worker;
  int rank = -1;
  double resume_ms = 0;    // from the signal to the first step applied after it
  double reported_ms = 0;  // the coordinator's own measure, from when it noticed
  int64_t step_before = 0;
};

absl::StatusOr<int> FreePort() {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  const bool ok = bind(fd, reinterpret_cast<sockaddr*>(&address), size) == 0 &&
                  getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) == 0;
  close(fd);
  if (!ok) return absl::UnavailableError("no free port on loopback");
  return ntohs(address.sin_port);
}

std::string OwnDirectory() {
  char path[4096];
  const ssize_t size = readlink("/proc/self/exe", path, sizeof(path));
  return ParentDirectory(absl::string_view(path, size > 0 ? static_cast<size_t>(size) : 0));
}

class Chaos {
 public:
  explicit Chaos(const Options& options) : options_(options), random_(options.seed) {}

  absl::StatusOr<std::vector<Fault>> Run() {
    MUSTER_RETURN_IF_ERROR(StartFleet());
    std::vector<Fault> faults;
    for (int i = 0; i < options_.faults; ++i) {
      MUSTER_ASSIGN_OR_RETURN(Fault fault, Inject());
      std::printf("%4d  %-10s  rank %d  %10.1f ms  (coordinator: %.1f ms)\n", i + 1,
                  fault.worker.c_str(), fault.rank, fault.resume_ms, fault.reported_ms);
      std::fflush(stdout);
      faults.push_back(std::move(fault));
    }
    up_->Signal(SIGTERM);
    const absl::Time deadline = absl::Now() + absl::Seconds(30);
    while (!up_->Reap().has_value() && absl::Now() < deadline) {
      ReadOutput();
      absl::SleepFor(absl::Milliseconds(20));
    }
    return faults;
  }

 private:
  absl::Status StartFleet() {
    std::string pattern = "/tmp/muster-chaos-XXXXXX";
    if (mkdtemp(pattern.data()) == nullptr) return absl::UnavailableError("no directory in /tmp");
    directory_ = pattern;
    MUSTER_ASSIGN_OR_RETURN(const int port, FreePort());
    const std::string address = absl::StrCat("127.0.0.1:", port);
    MUSTER_ASSIGN_OR_RETURN(
        up_,
        ChildProcess::Start({OwnDirectory() + "/muster", "up", "--job", options_.job, "--workers",
                             absl::StrCat(options_.workers), "--steps", "100000000", "--respawn",
                             "--listen", address, "--lease-ms", absl::StrCat(options_.lease_ms),
                             "--run-directory", directory_ + "/run", "--pid-file", PidFile()}));
    CoordinatorClientOptions client;
    client.address = address;
    client.timeout = absl::Seconds(2);
    client_ = std::make_unique<CoordinatorClient>(client);
    return WaitUntilWhole(absl::Seconds(60));
  }

  void ReadOutput() {
    constexpr size_t kKept = 4096;
    absl::StrAppend(&output_, up_->ReadOutput());
    if (output_.size() > kKept) output_.erase(0, output_.size() - kKept);
  }

  // That muster up wrote; its complaint, if it has ended.
  absl::string_view LastLine() const {
    const absl::string_view text = absl::StripTrailingAsciiWhitespace(output_);
    return text.substr(text.rfind('\n') + 1);
  }

  std::string PidFile() const { return directory_ + "/pids.json"; }

  // The newest state of the one job, or an error after `patience` without one.
  absl::StatusOr<v1::Job> Job() {
    const bool ended = up_->Reap().has_value();
    ReadOutput();
    if (ended) return absl::InternalError(absl::StrCat("muster up has ended: ", LastLine()));
    if (job_id_.empty()) {
      MUSTER_ASSIGN_OR_RETURN(const std::vector<v1::Job> jobs, client_->ListJobs(1));
      if (jobs.empty()) return absl::NotFoundError("no job yet");
      job_id_ = jobs[0].id();
    }
    MUSTER_ASSIGN_OR_RETURN(v1::Job job, client_->GetJob(job_id_));
    if (HasEnded(job)) {
      return absl::InternalError(absl::StrCat("the job has ended: ", job.reason()));
    }
    if (job.progress().step() < highest_step_) {
      return absl::InternalError(absl::StrCat("the job went back from step ", highest_step_,
                                              " to step ", job.progress().step()));
    }
    highest_step_ = job.progress().step();
    return job;
  }

  // All workers are in the view and have taken some more steps.
  absl::Status WaitUntilWhole(absl::Duration patience) {
    const absl::Time deadline = absl::Now() + patience;
    int64_t first_step = -1;
    absl::Status last = absl::OkStatus();
    while (absl::Now() < deadline) {
      absl::StatusOr<v1::Job> job = Job();
      last = job.status();
      if (absl::IsInternal(last)) return last;
      if (job.ok() && job->view().members_size() == options_.workers &&
          job->state() == v1::JOB_STATE_RUNNING) {
        if (first_step < 0) first_step = job->progress().step();
        if (job->progress().step() >= first_step + 10) return absl::OkStatus();
      } else {
        first_step = -1;
      }
      absl::SleepFor(absl::Milliseconds(20));
    }
    return absl::DeadlineExceededError(absl::StrCat(
        "the fleet was not whole after ", absl::FormatDuration(patience), "; ", last.message()));
  }

  absl::StatusOr<pid_t> PidOf(const std::string& worker) const {
    std::ifstream file(PidFile());
    const nlohmann::json pids = nlohmann::json::parse(file, nullptr, false);
    if (!pids.is_object() || !pids.contains(worker)) {
      return absl::NotFoundError(absl::StrCat(PidFile(), " has no ", worker));
    }
    return pids[worker].get<pid_t>();
  }

  absl::StatusOr<Fault> Inject() {
    // At a random moment of the steps.
    absl::SleepFor(absl::Microseconds(std::uniform_int_distribution<int>(0, 200'000)(random_)));
    MUSTER_ASSIGN_OR_RETURN(const v1::Job before, Job());
    Fault fault;
    fault.rank = std::uniform_int_distribution<int>(0, options_.workers - 1)(random_);
    fault.worker = before.view().members(fault.rank).name();
    fault.step_before = before.progress().step();
    MUSTER_ASSIGN_OR_RETURN(const pid_t pid, PidOf(fault.worker));
    const bool freeze = options_.fault == "stop";
    const absl::Time start = absl::Now();
    if (kill(pid, freeze ? SIGSTOP : SIGKILL) != 0) {
      return absl::InternalError(absl::StrCat("can't signal ", fault.worker));
    }
    const absl::Status resumed = WaitForResume(before.view().epoch(), start, &fault);
    if (freeze) kill(pid, SIGCONT);
    MUSTER_RETURN_IF_ERROR(resumed);
    MUSTER_RETURN_IF_ERROR(WaitUntilWhole(absl::Seconds(60)));
    return fault;
  }

  absl::Status WaitForResume(uint64_t epoch, absl::Time start, Fault* fault) {
    const absl::Time deadline = start + absl::Seconds(30);
    while (absl::Now() < deadline) {
      absl::StatusOr<v1::Job> job = Job();
      if (absl::IsInternal(job.status())) return job.status();
      if (job.ok()) {
        for (const v1::ViewChange& change : job->view_changes()) {
          if (change.epoch() <= epoch || !change.has_duration_ms()) continue;
          const absl::Time noticed = absl::FromUnixSeconds(change.started_at().seconds()) +
                                     absl::Nanoseconds(change.started_at().nanos());
          fault->reported_ms = change.duration_ms();
          fault->resume_ms = absl::ToDoubleMilliseconds(
              noticed + absl::Milliseconds(change.duration_ms()) - start);
          return absl::OkStatus();
        }
      }
      absl::SleepFor(absl::Milliseconds(5));
    }
    return absl::DeadlineExceededError(
        absl::StrCat("no step was applied for 30 s after ", fault->worker, " was hit"));
  }

  const Options options_;
  std::mt19937_64 random_;
  std::string directory_;
  std::unique_ptr<ChildProcess> up_;
  std::unique_ptr<CoordinatorClient> client_;
  std::string output_;  // the end of what muster up wrote
  std::string job_id_;
  int64_t highest_step_ = 0;
};

int Main(int argc, char** argv) {
  CLI::App app("Kills or freezes workers of a running job and measures the standstill.",
               "bench-chaos");
  Options options;
  app.add_option("--job", options.job, "Job file")->default_val(options.job);
  app.add_option("--workers", options.workers, "Workers")
      ->default_val(options.workers)
      ->check(CLI::Range(2, 64));
  app.add_option("--faults", options.faults, "How many faults")
      ->default_val(options.faults)
      ->check(CLI::Range(1, 100'000));
  app.add_option("--fault", options.fault, "kill (SIGKILL) or stop (SIGSTOP)")
      ->default_val(options.fault)
      ->check(CLI::IsMember({"kill", "stop"}));
  app.add_option("--lease-ms", options.lease_ms, "Lease of the fleet")
      ->default_val(options.lease_ms)
      ->check(CLI::Range(int64_t{20}, int64_t{3'600'000}));
  app.add_option("--seed", options.seed, "Seed of the choice of victims")
      ->default_val(options.seed)
      ->check(NotEmpty)
      ->check(NotNegative);
  app.add_option("--json", options.json, "Write the measurements here");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);
    std::fprintf(stderr, "bench-chaos: %s (see --help)\n", error.what());
    return 2;
  }
  // Not only when everything has been measured.
  if (!options.json.empty() && !std::ofstream(options.json, std::ios::app)) {
    std::fprintf(stderr, "bench-chaos: --json %s: cannot be written\n", options.json.c_str());
    return 2;
  }
  Chaos chaos(options);
  const absl::StatusOr<std::vector<Fault>> faults = chaos.Run();
  if (!faults.ok()) {
    std::fprintf(stderr, "bench-chaos: %s\n", std::string(faults.status().message()).c_str());
    return 1;
  }
  std::vector<double> times;
  nlohmann::json rows = nlohmann::json::array();
  for (const Fault& fault : *faults) {
    times.push_back(fault.resume_ms);
    rows.push_back({{"fault", options.fault},
                    {"workers", options.workers},
                    {"lease_ms", options.lease_ms},
                    {"worker", fault.worker},
                    {"rank", fault.rank},
                    {"step_before", fault.step_before},
                    {"resume_ms", fault.resume_ms},
                    {"reported_ms", fault.reported_ms}});
  }
  std::sort(times.begin(), times.end());
  std::printf("%s of %d workers, %zu times: median %.1f ms, least %.1f, most %.1f\n",
              options.fault == "kill" ? "SIGKILL" : "SIGSTOP", options.workers, times.size(),
              times[times.size() / 2], times.front(), times.back());
  if (!options.json.empty()) {
    std::ofstream out(options.json);
    out << rows.dump(1) << '\n';
    if (!out.flush()) {
      std::fprintf(stderr, "bench-chaos: can't write %s\n", options.json.c_str());
      return 1;
    }
  }
  return 0;
}

}  // namespace
}  // namespace muster

int main(int argc, char** argv) {
  return muster::EndOutput("bench-chaos", muster::Main(argc, argv));
}
