// What the coordinator shows of its jobs beyond what its core knows: descriptions, times, view
// changes. Bounded: jobs that the core has forgotten are dropped by Prune.
//
// Not thread-safe; guarded by the coordinator's lock.
#ifndef MUSTER_SERVER_RPC_JOB_TABLE_H_
#define MUSTER_SERVER_RPC_JOB_TABLE_H_

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "absl/time/time.h"
#include "base/ids.h"
#include "muster/v1/coordinator.pb.h"
#include "server/core/coordinator_core.h"

namespace muster {

struct JobEntry {
  uint64_t number = 0;           // order of submission
  v1::JobDescription submitted;  // as the client gave it
  // As workers get it: steps instead of passes over the data, so that everybody counts alike.
  std::shared_ptr<const v1::JobDescription> resolved;
  absl::Time submitted_at = absl::InfinitePast();
  absl::Time ended_at = absl::InfinitePast();              // InfinitePast: not yet
  std::deque<coordinator::ViewChangeReport> view_changes;  // the newest, oldest first
  int64_t view_change_count = 0;
  // How the ranks of the view `paths_epoch` communicate, as far as they have said. Equal ones are
  // one.
  std::map<Rank, std::shared_ptr<const CommunicationPath>> paths;
  Epoch paths_epoch = 0;
  // The newest checkpoint that failed, and why, by the workers where it did. Without errors: none.
  StateTag failed_checkpoint;
  std::map<WorkerName, std::string> checkpoint_errors;
};

class JobTable {
 public:
  static constexpr size_t kMaxViewChanges = 100;
  static constexpr int kMaxErrorsShown = 8;  // of one failed checkpoint

  JobEntry& Add(const JobId& id, v1::JobDescription submitted, v1::JobDescription resolved,
                absl::Time now);
  // nullptr if there is none.
  JobEntry* Find(const JobId& id);
  const JobEntry* Find(const JobId& id) const;
  void Remove(const JobId& id);
  // Removes the jobs that `keep` does not know, and returns their ids.
  std::vector<JobId> Prune(const PersistentState& keep);

  // Takes in a report, which replaces a former one of the same epoch. True if the epoch is new.
  static bool TakeReport(JobEntry& entry, const coordinator::ViewChangeReport& report);

  // Takes in how a rank communicates. True if that is news.
  static bool TakePath(JobEntry& entry, Epoch epoch, Rank rank, const CommunicationPath& path);

  // Takes in what a worker says of the last checkpoint that failed there, if one did.
  enum class CheckpointNews { kNone, kMore, kNewlyFailed };
  static CheckpointNews TakeCheckpointFailure(JobEntry& entry, const WorkerName& worker,
                                              const std::optional<CheckpointFailure>& failure);

  // Jobs newest first: submission number and id.
  const std::map<uint64_t, JobId, std::greater<uint64_t>>& by_number() const { return by_number_; }

 private:
  std::map<JobId, JobEntry> entries_;
  std::map<uint64_t, JobId, std::greater<uint64_t>> by_number_;
  uint64_t next_number_ = 1;
};

// The public form of a job.
v1::Job ToPublicJob(const JobInfo& info, const JobEntry& entry);
v1::Straggler ToPublicStraggler(const Straggler& straggler);
v1::FleetMember ToPublicMember(const MemberInfo& info);
v1::ExplainStrategyResponse ToPublicChoice(const StrategyChoice& choice, const JobInfo& info);

}  // namespace muster

#endif  // MUSTER_SERVER_RPC_JOB_TABLE_H_
