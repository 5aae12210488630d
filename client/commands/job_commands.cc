#include "client/commands/job_commands.h"

#include <algorithm>
#include <cstdio>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "base/control/transport_names.h"
#include "base/status_macros.h"
#include "client/coordinator_client.h"
#include "client/job_file.h"
#include "client/output/job_display.h"
#include "client/output/job_text.h"
#include "client/output/message_json.h"
#include "client/output/operations_text.h"
#include "client/output/strategy_text.h"
#include "proto/convert/strategy.h"

namespace muster {
namespace {

constexpr size_t kListedJobs = 100;

// INVALID_ARGUMENT is the caller's: an address that is none, a job that is none.
int Fail(const absl::Status& status) {
  return Complain(status, absl::IsInvalidArgument(status) ? 2 : 1);
}

// The exit code of a command that has done its work: its answer may be lost. `done` says what was
// changed nevertheless.
int Finish(const Console& console, const std::string& done = "") {
  const absl::Status& written = console.write_status();
  if (written.ok()) return 0;
  return Complain(done.empty() ? written : Annotate(written, done), 1);
}

CoordinatorClientOptions FollowerOptions(const ClientCommandOptions& options) {
  return {.address = options.coordinator,
          .watch_patience = options.reconnect_s == 0 ? absl::InfiniteDuration()
                                                     : absl::Seconds(options.reconnect_s)};
}

int Follow(CoordinatorClient& client, const ClientCommandOptions& options,
           const std::string& job_id, Console* console) {
  JobDisplay display(console, options.json);
  const absl::StatusOr<v1::Job> job = client.WatchJob(
      job_id,
      [&](const v1::Job& update) {
        display.Update(update, absl::Now());
        return console->write_status().ok();
      },
      [&](const absl::Status& lost) {
        if (!options.json) {
          console->Line(absl::StrCat("connection lost, trying again: ", lost.message()));
        }
      });
  console->Status("");
  if (!console->write_status().ok()) return Complain(console->write_status(), 1);
  if (!job.ok()) return Fail(job.status());
  if (job->state() == v1::JOB_STATE_SUCCEEDED) return 0;
  return Complain(
      absl::AbortedError(absl::StrCat(job->id(), " ", Name(job->state()), ": ",
                                      job->reason().empty() ? "no reason given" : job->reason())),
      1);
}

// Text that already ends its lines.
void Print(Console* console, const std::string& text) {
  console->Line(absl::StripSuffix(text, "\n"));
}

}  // namespace

int Complain(const absl::Status& status, int exit_code) {
  std::fprintf(stderr, "muster: %s\n", std::string(status.message()).c_str());
  return exit_code;
}

absl::Status CheckCanBeWritten(FileSystem& files, const std::string& path, const char* flag) {
  if (path.empty()) return absl::OkStatus();
  if (files.ListDirectory(path).ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat(flag, " ", path, ": is a directory; name a file in it"));
  }
  const absl::StatusOr<FileDestination> destination = files.FindDestination(path);
  if (!destination.ok()) return Annotate(destination.status(), flag);
  if (destination->is_stream) return absl::OkStatus();  // whether it is read is seen in the end
  const std::string parent = ParentDirectory(destination->path);
  MUSTER_ASSIGN_OR_RETURN(const bool exists, files.Exists(parent));
  if (exists) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(flag, " ", path, ": there is no directory ", parent));
}

int SubmitCommand(const ClientCommandOptions& options, const SubmitOptions& submit,
                  Console* console) {
  const absl::StatusOr<v1::JobDescription> description = ReadJobFile(submit.file);
  if (!description.ok()) return Complain(description.status(), 2);
  CoordinatorClient client(FollowerOptions(options));
  const absl::StatusOr<v1::Job> job = client.SubmitJob(*description, submit.request_id);
  if (!job.ok()) return Fail(job.status());
  if (submit.wait) {
    if (!options.json) {
      console->Line(absl::StrCat("submitted ", description->name(), " as ", job->id()));
    }
    return Follow(client, options, job->id(), console);
  }
  // The id alone, for scripts; the rest is for people.
  console->Line(options.json ? MessageToJson(*job) : job->id());
  const int code = Finish(*console, absl::StrCat("the job is queued as ", job->id()));
  if (code == 0 && !options.json) {
    // Of a request that is repeated it may have ended.
    const std::string state =
        HasEnded(*job) ? absl::StrCat("has ended (", Name(job->state()), "); see it with: ")
                       : "queued; follow it with: ";
    std::fprintf(stderr, "%smuster watch --coordinator %s %s\n", state.c_str(),
                 options.coordinator.c_str(), job->id().c_str());
  }
  return code;
}

int WatchCommand(const ClientCommandOptions& options, const std::string& job_id, Console* console) {
  CoordinatorClient client(FollowerOptions(options));
  return Follow(client, options, job_id, console);
}

int StatusCommand(const ClientCommandOptions& options, const std::string& job_id,
                  Console* console) {
  CoordinatorClient client({.address = options.coordinator});
  if (!job_id.empty()) {
    const absl::StatusOr<v1::Job> job = client.GetJob(job_id);
    if (!job.ok()) return Fail(job.status());
    Print(console, options.json ? MessageToJson(*job) : JobDetails(*job));
    return Finish(*console);
  }
  const absl::StatusOr<std::vector<v1::Job>> jobs = client.ListJobs(kListedJobs);
  if (!jobs.ok()) return Fail(jobs.status());
  if (options.json) {
    for (const v1::Job& job : *jobs) console->Line(MessageToJson(job));
  } else {
    Print(console, JobTable(*jobs));
  }
  return Finish(*console);
}

int MembersCommand(const ClientCommandOptions& options, Console* console) {
  CoordinatorClient client({.address = options.coordinator});
  const absl::StatusOr<v1::ListMembersResponse> members = client.ListMembers();
  if (!members.ok()) return Fail(members.status());
  Print(console, options.json ? MessageToJson(*members) : MemberTable(*members));
  return Finish(*console);
}

int OperationsCommand(const ClientCommandOptions& options, const std::string& job_id,
                      std::optional<int> rank, size_t last, Console* console) {
  CoordinatorClient client({.address = options.coordinator});
  int begin = rank.value_or(0);
  int end = begin + 1;
  if (!rank.has_value()) {
    const absl::StatusOr<v1::Job> job = client.GetJob(job_id);
    if (!job.ok()) return Fail(job.status());
    end = job->view().members_size();
    if (end == 0) {
      // The coordinator says why there are none.
      const absl::Status none = client.GetOperations(job_id, 0).status();
      return none.ok() ? Finish(*console) : Fail(none);
    }
  }
  int code = 0;
  for (int r = begin; r < end; ++r) {
    const absl::StatusOr<v1::GetOperationsResponse> response = client.GetOperations(job_id, r);
    if (!response.ok()) {
      code = Complain(Annotate(response.status(), absl::StrCat("rank ", r)), 1);
      continue;  // A dead worker does not hide what the others do.
    }
    if (!options.json) {
      Print(console, OperationTable(*response, last));
      continue;
    }
    for (const std::string& line : OperationLines(*response, last)) console->Line(line);
  }
  const int written = Finish(*console);
  return code == 0 ? written : code;
}

namespace {

// "halving-doubling" as HALVING_DOUBLING.
std::string EnumName(absl::string_view text) {
  std::string name = absl::AsciiStrToUpper(text);
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

void ClearShardGroup(v1::Strategy* strategy) {
  strategy->clear_shard_group();
  strategy->clear_shard_group_size();
}

// Where the coordinator chooses, it goes on doing so until something is asked for that it chooses.
absl::Status ChangePolicy(const StrategyChange& change, v1::Strategy* strategy) {
  const bool chooses = !change.sync.empty() || change.stage.has_value() ||
                       change.servers.has_value() || change.mixed.has_value() ||
                       !change.shard_group.empty();
  if (change.policy == "auto" && chooses) {
    return absl::InvalidArgumentError(
        "--policy auto chooses --sync, --stage, --servers and --mixed itself, and no "
        "--shard-group: leave them out");
  }
  const bool automatic = change.policy == "auto" || (change.policy.empty() && !chooses &&
                                                     strategy->policy() == v1::Strategy::AUTO);
  strategy->clear_policy();
  if (!automatic) return absl::OkStatus();
  strategy->set_policy(v1::Strategy::AUTO);
  strategy->clear_sync();
  strategy->clear_stage();
  strategy->clear_servers();
  strategy->clear_mixed();
  ClearShardGroup(strategy);
  return absl::OkStatus();
}

absl::Status ChangeShardGroup(const std::string& group, v1::Strategy* strategy) {
  if (group.empty()) return absl::OkStatus();
  ClearShardGroup(strategy);
  if (group == "all") return absl::OkStatus();
  if (group == "host") {
    strategy->set_shard_group(v1::Strategy::HOST);
    return absl::OkStatus();
  }
  int32_t size = 0;
  if (!absl::SimpleAtoi(group, &size) || size < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("--shard-group: expected all, host or a number of workers, got ", group));
  }
  strategy->set_shard_group_size(size);
  return absl::OkStatus();
}

absl::Status Change(const StrategyChange& change, v1::Strategy* strategy) {
  MUSTER_RETURN_IF_ERROR(ChangePolicy(change, strategy));
  if (change.sync == "parameter-server") {
    strategy->set_sync(v1::Strategy::PARAMETER_SERVER);
    strategy->clear_stage();
    ClearShardGroup(strategy);
  } else if (!change.sync.empty()) {
    strategy->set_sync(v1::Strategy::ALL_REDUCE);
    strategy->clear_servers();
    strategy->clear_mixed();
  }
  if (change.servers.has_value()) strategy->set_servers(*change.servers);
  if (change.mixed.has_value()) strategy->set_mixed(*change.mixed);
  if (change.stage.has_value()) strategy->set_stage(*change.stage);
  if (change.stage == 0) ClearShardGroup(strategy);
  MUSTER_RETURN_IF_ERROR(ChangeShardGroup(change.shard_group, strategy));
  if (change.replicas.has_value()) strategy->set_replicas(*change.replicas);
  const std::string algorithm = EnumName(change.algorithm);
  v1::Communication::Algorithm named_algorithm = v1::Communication::ALGORITHM_UNSPECIFIED;
  if (!algorithm.empty() && algorithm != "AUTO" &&
      !v1::Communication::Algorithm_Parse(algorithm, &named_algorithm)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--algorithm: expected auto, ring, direct, recursive-doubling, halving-doubling, "
        "double-tree, hierarchical, star, window or one-shot, got ",
        change.algorithm));
  }
  if (!algorithm.empty()) strategy->set_algorithm(named_algorithm);
  if (change.transport.empty()) return absl::OkStatus();
  const std::optional<SyncTransport> transport = ParseTransport(change.transport);
  if (!transport.has_value()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--transport: expected auto, tcp, shared_memory, libfabric or grpc, got ",
                     change.transport));
  }
  strategy->set_transport(ToProto(Strategy{.transport = *transport}).transport());
  return absl::OkStatus();
}

bool SameStrategy(const v1::Strategy& a, const v1::Strategy& b) {
  return a.SerializeAsString() == b.SerializeAsString();
}

}  // namespace

int SwitchCommand(const ClientCommandOptions& options, const std::string& job_id,
                  const StrategyChange& change, absl::Duration timeout, Console* console) {
  if (change == StrategyChange()) {
    return Complain(
        absl::InvalidArgumentError(absl::StrCat(
            "nothing to switch: give at least one of --policy, --sync, --servers, --mixed, "
            "--stage, "
            "--shard-group, --replicas, --algorithm and --transport (see muster switch --help); "
            "muster status ",
            job_id, " shows what is in force")),
        2);
  }
  const absl::Time deadline = absl::Now() + timeout;
  CoordinatorClient client({.address = options.coordinator, .deadline = deadline});
  absl::StatusOr<v1::Job> job = client.GetJob(job_id);
  if (!job.ok()) return Fail(job.status());
  v1::Strategy wanted = job->strategy();
  const bool was_automatic = wanted.policy() == v1::Strategy::AUTO;
  if (absl::Status changed = Change(change, &wanted); !changed.ok()) return Complain(changed, 2);
  job = client.SwitchJob(job_id, wanted);
  if (absl::IsDeadlineExceeded(job.status())) {
    return Fail(Annotate(job.status(), "whether the switch is recorded is not known"));
  }
  if (!job.ok()) return Fail(job.status());
  wanted = job->strategy();  // with what was left open
  if (wanted.policy() == v1::Strategy::AUTO) {
    console->Line(options.json ? MessageToJson(*job)
                               : absl::StrCat("the coordinator chooses the strategy of ", job_id,
                                              "; at present ", StrategyText(wanted),
                                              " (see muster explain ", job_id, ")"));
    return Finish(*console);
  }
  while (!SameStrategy(job->view().strategy(), wanted)) {
    if (HasEnded(*job)) {
      return Complain(absl::FailedPreconditionError(absl::StrCat(
                          job_id, " has ended (", Name(job->state()), ") before the switch")),
                      1);
    }
    if (!SameStrategy(job->strategy(), wanted)) {
      return Complain(absl::AbortedError("another strategy was asked for meanwhile"), 1);
    }
    absl::SleepFor(std::min(absl::Milliseconds(50), deadline - absl::Now()));
    if (absl::Now() >= deadline) {
      return Complain(absl::DeadlineExceededError(absl::StrCat(
                          "the switch is recorded and not yet in force after ",
                          absl::FormatDuration(timeout), "; see muster status ", job_id)),
                      1);
    }
    job = client.GetJob(job_id);
    if (!job.ok()) {
      return Fail(Annotate(job.status(),
                           absl::StrCat("the switch is recorded, and was not yet in force when the "
                                        "coordinator answered last; see muster status ",
                                        job_id)));
    }
  }
  if (options.json) {
    console->Line(MessageToJson(*job));
  } else {
    console->Line(absl::StrCat(job_id, " trains by ", StrategyText(wanted), " from step ",
                               job->view().resume().step() + 1, " on",
                               was_automatic ? "; policy auto is off" : "",
                               job->strategy_reason().empty() ? "" : "; ", job->strategy_reason()));
  }
  return Finish(*console);
}

int ExplainCommand(const ClientCommandOptions& options, const std::string& job_id,
                   Console* console) {
  CoordinatorClient client({.address = options.coordinator});
  const absl::StatusOr<v1::ExplainStrategyResponse> choice = client.ExplainStrategy(job_id);
  if (!choice.ok()) return Fail(choice.status());
  Print(console, options.json ? MessageToJson(*choice) : StrategyChoiceText(*choice));
  return Finish(*console);
}

int CancelCommand(const ClientCommandOptions& options, const std::string& job_id,
                  Console* console) {
  CoordinatorClient client({.address = options.coordinator});
  const absl::StatusOr<v1::CancelJobResponse> response =
      client.CancelJob(job_id, "cancelled with muster cancel");
  if (!response.ok()) return Fail(response.status());
  const v1::Job& job = response->job();
  if (options.json) console->Line(MessageToJson(job));
  if (response->had_ended()) {
    return Complain(absl::FailedPreconditionError(absl::StrCat(
                        job.id(), " has already ended (", Name(job.state()),
                        job.reason().empty() ? "" : ": ", job.reason(), "); nothing was changed")),
                    1);
  }
  if (!options.json) console->Line(absl::StrCat(job.id(), " is ", Name(job.state())));
  return Finish(*console);
}

}  // namespace muster
