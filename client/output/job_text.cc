#include "client/output/job_text.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/control/shard_groups.h"
#include "google/protobuf/util/time_util.h"
#include "proto/convert/strategy.h"

namespace muster {
namespace {

// A bar makes room for the facts that a person waits for: step, loss, speed, time left, workers.
constexpr int kBarWidths[] = {20, 10, 5};
constexpr size_t kEssentialFacts = 5;

std::string LowerWithout(std::string name, absl::string_view prefix) {
  if (absl::StartsWith(name, prefix)) name.erase(0, prefix.size());
  return absl::AsciiStrToLower(name);
}

std::string Count(int64_t count, absl::string_view noun) {
  return absl::StrCat(count, " ", noun, count == 1 ? "" : "s");
}

std::string StepText(const v1::Job& job) {
  const int64_t step = job.progress().step();
  return job.total_steps() > 0 ? absl::StrCat("step ", step, "/", job.total_steps())
                               : absl::StrCat("step ", step);
}

bool HasProgress(const v1::Job& job) { return job.has_progress() && job.progress().step() > 0; }

// Seconds until the last step at the present pace; negative if unknown.
double SecondsLeft(const v1::Job& job) {
  const double pace = job.progress().samples_per_second();
  if (job.total_steps() <= 0 || pace <= 0) return -1;
  const double samples = static_cast<double>(job.total_steps() - job.progress().step()) *
                         job.description().training().global_batch();
  return std::max(0.0, samples / pace);
}

int ServersIn(const v1::View& view) {
  return static_cast<int>(std::count_if(
      view.members().begin(), view.members().end(),
      [](const v1::Member& member) { return member.role() == v1::Member::PARAMETER_SERVER; }));
}

// "4 workers, 1 server".
std::string MembersText(int members, int servers) {
  std::string text = Count(members - servers, "worker");
  if (servers > 0) absl::StrAppend(&text, ", ", Count(servers, "server"));
  return text;
}

// What there is to say of the training, most important first.
std::vector<std::string> Facts(const v1::Job& job) {
  const v1::Progress& progress = job.progress();
  std::vector<std::string> facts = {StepText(job), absl::StrFormat("loss %.4f", progress.loss())};
  if (progress.samples_per_second() > 0) {
    facts.push_back(absl::StrCat(ShortNumber(progress.samples_per_second()), " samples/s"));
  }
  const bool running = job.state() == v1::JOB_STATE_RUNNING;
  const double left = SecondsLeft(job);
  if (running && left >= 0) facts.push_back(absl::StrCat("ETA ", ShortDuration(left)));
  for (const v1::Straggler& straggler : job.stragglers()) {
    facts.push_back(
        absl::StrFormat("held up %.1f s by %s", straggler.held_up_seconds(), straggler.worker()));
  }
  if (job.failed_checkpoints_size() > 0) {
    facts.push_back(
        absl::StrFormat("checkpoint of step %d failed", job.failed_checkpoints(0).step()));
  }
  if (running || job.view().members_size() > 0) {
    facts.push_back(MembersText(job.view().members_size(), ServersIn(job.view())));
  }
  if (progress.has_test_accuracy()) {
    facts.push_back(absl::StrFormat("accuracy %.4f", progress.test_accuracy()));
  }
  if (progress.skipped_steps() > 0) {
    facts.push_back(Count(progress.skipped_steps(), "skipped step"));
  }
  facts.push_back(SyncPathText(job));
  return facts;
}

struct FittedLine {
  std::string line;
  size_t facts = 0;
};

// `line` and as many facts after it as fit.
FittedLine WithFacts(std::string line, const std::vector<std::string>& facts, int columns) {
  FittedLine fitted{std::move(line)};
  for (const std::string& fact : facts) {
    if (fitted.line.size() + 2 + fact.size() >= static_cast<size_t>(columns)) break;
    absl::StrAppend(&fitted.line, fitted.line.empty() ? "" : "  ", fact);
    ++fitted.facts;
  }
  return fitted;
}

std::string StateAndReason(const v1::Job& job) {
  return job.reason().empty() ? Name(job.state())
                              : absl::StrCat(Name(job.state()), ": ", job.reason());
}

// To the second.
std::string TimeText(bool is_set, const google::protobuf::Timestamp& time) {
  if (!is_set) return "-";
  google::protobuf::Timestamp whole = time;
  whole.set_nanos(0);
  return google::protobuf::util::TimeUtil::ToString(whole);
}

}  // namespace

std::string Name(v1::JobState state) {
  return LowerWithout(v1::JobState_Name(state), "JOB_STATE_");
}
std::string Name(v1::ViewChangeCause cause) {
  return LowerWithout(v1::ViewChangeCause_Name(cause), "VIEW_CHANGE_CAUSE_");
}
std::string Name(v1::WorkerPhase phase) {
  return LowerWithout(v1::WorkerPhase_Name(phase), "WORKER_PHASE_");
}

std::string SyncPathText(const v1::Job& job) {
  const v1::Strategy& strategy = job.has_view() ? job.view().strategy() : job.strategy();
  // The strategy in force says what was asked for last.
  const bool has_strategy = job.has_view() ? job.view().has_strategy() : job.has_strategy();
  const v1::Communication::Algorithm asked =
      has_strategy ? strategy.algorithm() : job.description().communication().algorithm();
  const bool serves = strategy.sync() == v1::Strategy::PARAMETER_SERVER;
  std::string text = serves ? "parameter server" : "all-reduce";
  if (asked != v1::Communication::ALGORITHM_UNSPECIFIED && !serves) {
    std::string name = absl::AsciiStrToLower(v1::Communication::Algorithm_Name(asked));
    std::replace(name.begin(), name.end(), '_', ' ');
    absl::StrAppend(&text, " (", name, ")");
  }
  if (serves && strategy.algorithm() == v1::Communication::HIERARCHICAL) {
    text += ", inside each host first";
  }
  std::set<std::string> transports;
  for (const v1::PathInUse& path : job.paths()) {
    transports.insert(path.path().provider().empty()
                          ? path.path().transport()
                          : absl::StrCat("libfabric (", path.path().provider(), ")"));
  }
  if (!transports.empty()) absl::StrAppend(&text, " over ", absl::StrJoin(transports, ", "));
  return text;
}

std::string NewestCheckpoint(const v1::Job& job) {
  const std::string& last = job.final_report().checkpoint();
  return last.empty() ? job.newest_checkpoint() : last;
}

std::string ShortNumber(double value) {
  if (value >= 999'950) return absl::StrFormat("%.1fM", value / 1e6);
  if (value >= 999.5) return absl::StrFormat("%.1fk", value / 1e3);
  return absl::StrFormat("%.0f", value);
}

std::string ShortDuration(double seconds) {
  // Nothing a person would wait for; also keeps the conversion defined.
  const int64_t total = static_cast<int64_t>(std::min(std::round(seconds), 3.6e8));
  if (total < 60) return absl::StrFormat("%ds", total);
  if (total < 3600) return absl::StrFormat("%dm%02ds", total / 60, total % 60);
  return absl::StrFormat("%dh%02dm", total / 3600, total / 60 % 60);
}

std::string ProgressBar(const v1::Job& job, int columns) {
  if (job.state() != v1::JOB_STATE_RUNNING || !HasProgress(job)) {
    return absl::StrCat(job.description().name(), " ", StateAndReason(job));
  }
  const std::vector<std::string> facts = Facts(job);
  if (job.total_steps() <= 0) return WithFacts("", facts, columns).line;
  const double done = std::clamp(
      static_cast<double>(job.progress().step()) / static_cast<double>(job.total_steps()), 0.0,
      1.0);
  const std::string percent = absl::StrFormat("%3d%%", static_cast<int>(done * 100));
  for (const int width : kBarWidths) {
    const int filled = static_cast<int>(done * width);
    std::string bar(static_cast<size_t>(filled), '=');
    if (filled < width) bar += '>';
    bar.resize(static_cast<size_t>(width), ' ');
    const FittedLine fitted = WithFacts(absl::StrCat("[", bar, "] ", percent), facts, columns);
    if (fitted.facts >= std::min(kEssentialFacts, facts.size())) return fitted.line;
  }
  return WithFacts(percent, facts, columns).line;
}

std::string ProgressLine(const v1::Job& job) {
  std::string head = absl::StrCat(job.description().name(), " ", StateAndReason(job));
  if (!HasProgress(job)) return head;
  return absl::StrCat(head, ", ", absl::StrJoin(Facts(job), ", "));
}

namespace {

// Where the state was made anew, of what; that a job starts at the beginning goes without saying.
std::string OriginText(const v1::ViewChange& change) {
  if (!change.has_fresh_start()) return "";
  if (!change.fresh_start().empty()) return absl::StrCat(" from ", change.fresh_start());
  if (change.cause() == v1::VIEW_CHANGE_CAUSE_START) return "";
  return absl::StrCat(" from step ", change.resume_step(), " (no checkpoint)");
}

}  // namespace

std::string ViewChangeText(const v1::ViewChange& change) {
  std::string who;
  if (change.workers_size() > 0) who = absl::StrCat(" of ", absl::StrJoin(change.workers(), ", "));
  std::string text =
      absl::StrCat("epoch ", change.epoch(), ": ", Name(change.cause()), who, OriginText(change),
                   "; ", MembersText(change.world_size(), change.servers()));
  if (change.has_duration_ms()) {
    absl::StrAppendFormat(&text, ", first step after %.0f ms", change.duration_ms());
  }
  return text;
}

std::string FailedCheckpointText(const v1::FailedCheckpoint& failed) {
  return absl::StrCat("step ", failed.step(), " on ", absl::StrJoin(failed.workers(), ", "), ": ",
                      failed.error());
}

std::string FormatTable(const std::vector<std::vector<std::string>>& rows) {
  std::vector<size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const auto& row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      line += row[i];
      if (i + 1 < row.size()) line.append(widths[i] - row[i].size() + 2, ' ');
    }
    absl::StrAppend(&text, line, "\n");
  }
  return text;
}

namespace {

// "w0, w2; w1, w3": who shares out the state with whom, or why there is one group.
std::string ShardGroupsText(const v1::Job& job) {
  if (!job.strategy_reason().empty()) return job.strategy_reason();
  const absl::StatusOr<Strategy> strategy =
      StrategyFromProto(job.view().strategy(), {}, "strategy");
  if (!strategy.ok() || !strategy->grouped()) return "";
  std::vector<Rank> ranks;
  std::vector<std::string> hosts;
  for (const v1::Member& member : job.view().members()) {
    ranks.push_back(static_cast<Rank>(ranks.size()));
    hosts.push_back(member.host());
  }
  std::vector<std::string> groups;
  for (const std::vector<Rank>& group : FormShardGroups(*strategy, ranks, hosts).groups) {
    std::vector<std::string> names;
    for (const Rank rank : group) names.push_back(job.view().members(rank).name());
    groups.push_back(absl::StrJoin(names, ", "));
  }
  return absl::StrJoin(groups, "; ");
}

}  // namespace

std::string StrategyText(const v1::Strategy& strategy) {
  const absl::StatusOr<Strategy> known = StrategyFromProto(strategy, {}, "strategy");
  // Of a newer coordinator.
  return known.ok() ? ToString(*known) : std::string(known.status().message());
}

std::string JobDetails(const v1::Job& job) {
  std::vector<std::vector<std::string>> rows = {
      {"job", job.id()},
      {"name", job.description().name()},
      {"state", StateAndReason(job)},
      {"submitted", TimeText(job.has_submitted_at(), job.submitted_at())},
  };
  if (job.has_ended_at()) rows.push_back({"ended", TimeText(true, job.ended_at())});
  if (HasProgress(job)) rows.push_back({"progress", absl::StrJoin(Facts(job), ", ")});
  if (HasProgress(job)) {
    rows.push_back(
        {"step time", absl::StrFormat("p50 %.1f ms, p99 %.1f ms, %.0f%% waiting for communication",
                                      job.progress().step_ms_p50(), job.progress().step_ms_p99(),
                                      100 * job.progress().comm_wait_share())});
  }
  if (job.view().members_size() > 0) {
    std::vector<std::string> names;
    for (const v1::Member& member : job.view().members()) names.push_back(member.name());
    rows.push_back(
        {"view", absl::StrCat("epoch ", job.view().epoch(), ": ", absl::StrJoin(names, ", "))});
  }
  if (job.has_view()) {
    const v1::Strategy& in_force = job.view().strategy();
    rows.push_back({"strategy", StrategyText(in_force)});
    if (job.strategy().policy() == v1::Strategy::AUTO) {
      rows.push_back({"policy", job.strategy_reason().empty()
                                    ? "auto"
                                    : absl::StrCat("auto: ", job.strategy_reason())});
    } else if (in_force.SerializeAsString() != job.strategy().SerializeAsString()) {
      rows.push_back({"switching to", StrategyText(job.strategy())});
    } else if (const std::string groups = ShardGroupsText(job); !groups.empty()) {
      rows.push_back({"shard groups", groups});
    }
  } else if (job.has_strategy() && !job.has_ended_at()) {
    // What it will begin by, or go on by: a switch may have been recorded before.
    rows.push_back({"strategy", job.strategy().policy() == v1::Strategy::AUTO
                                    ? "policy auto"
                                    : StrategyText(job.strategy())});
  }
  for (const v1::PathInUse& path : job.paths()) {
    rows.push_back({"path", job.paths_size() == 1
                                ? path.text()
                                : absl::StrCat("rank ", absl::StrJoin(path.ranks(), ", "), ": ",
                                               path.text())});
  }
  for (const v1::Straggler& straggler : job.stragglers()) {
    rows.push_back({"straggler", straggler.text()});
  }
  if (!NewestCheckpoint(job).empty()) rows.push_back({"checkpoint", NewestCheckpoint(job)});
  for (const v1::FailedCheckpoint& failed : job.failed_checkpoints()) {
    rows.push_back({"checkpoint failed", FailedCheckpointText(failed)});
  }
  if (job.has_final_report()) {
    rows.push_back({"parameters", absl::StrCat("sha256 ", job.final_report().parameters_sha256())});
  }
  for (const v1::ViewChange& change : job.view_changes()) {
    rows.push_back({"view change", ViewChangeText(change)});
  }
  return FormatTable(rows);
}

std::string JobTable(const std::vector<v1::Job>& jobs) {
  if (jobs.empty()) return "no jobs\n";
  std::vector<std::vector<std::string>> rows = {
      {"JOB", "NAME", "STATE", "STEP", "LOSS", "WORKERS", "SUBMITTED"}};
  for (const v1::Job& job : jobs) {
    rows.push_back({job.id(), job.description().name(), Name(job.state()),
                    absl::StrCat(job.progress().step(), "/", job.total_steps()),
                    HasProgress(job) ? absl::StrFormat("%.4f", job.progress().loss()) : "-",
                    absl::StrCat(job.view().members_size() - ServersIn(job.view())),
                    TimeText(job.has_submitted_at(), job.submitted_at())});
  }
  return FormatTable(rows);
}

std::string MemberTable(const v1::ListMembersResponse& members) {
  if (members.members().empty()) return "no members\n";
  std::vector<std::vector<std::string>> rows = {{"NAME", "ROLE", "PHASE", "RANK", "JOB", "EPOCH",
                                                 "STEP", "HOST", "DEVICE", "DATA", "INCARNATION",
                                                 "ATTACHED"}};
  for (const v1::FleetMember& member : members.members()) {
    const v1::Member& self = member.member();
    rows.push_back({self.name(), self.role() == v1::Member::PARAMETER_SERVER ? "server" : "worker",
                    Name(member.phase()), member.rank() < 0 ? "-" : absl::StrCat(member.rank()),
                    member.job_id().empty() ? "-" : member.job_id(), absl::StrCat(member.epoch()),
                    absl::StrCat(member.step()), self.host(), self.device(), self.data_address(),
                    absl::StrFormat("%016x", self.incarnation()),
                    member.attached() ? "yes" : "no"});
  }
  return FormatTable(rows);
}

}  // namespace muster
