// One run of `muster up` (client/commands/up.h): an event loop over signals, the output and the
// ends of the child processes, and news of the job. Not thread-safe.
#ifndef MUSTER_CLIENT_COMMANDS_UP_RUN_H_
#define MUSTER_CLIENT_COMMANDS_UP_RUN_H_

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "client/commands/up.h"
#include "client/launcher/fleet.h"
#include "client/launcher/job_follower.h"
#include "client/output/console.h"
#include "client/output/job_display.h"
#include "client/summary.h"

namespace muster {

// Blocks the signals that a run handles, for this thread and those started later; the run that
// comes then sees them.
void BlockRunSignals();

class UpRun {
 public:
  // Calls BlockRunSignals.
  UpRun(const UpOptions& options, Console* console, Console* log, FileSystem* files);
  ~UpRun();

  // Run calls this with each state of the job that comes.
  void OnJob(std::function<void(const v1::Job& job)> on_job) { on_job_ = std::move(on_job); }
  // SIGKILL to one worker, as if its host had failed.
  void KillWorker(const std::string& name);

  // Without a job: until a signal comes. CANCELLED if interrupted; otherwise an error says why the
  // run could not go on, DEADLINE_EXCEEDED that the job has stalled. A job that ended in failure is
  // no error here: see job().
  absl::Status Run(const std::optional<v1::JobDescription>& job);
  // Ends what was started, in good order: workers, then the coordinator.
  void Stop();

  // The last state seen, if the job was taken.
  const std::optional<v1::Job>& job() const { return job_; }
  // Of the job that Run was given, also if it was not taken.
  const RunSummary& summary() const { return summary_; }
  absl::Duration elapsed() const { return elapsed_; }
  // Whether a signal asked for the end, in whatever phase.
  bool interrupted() const { return interrupts_ > 0; }

 private:
  // A worker that died and is to come back.
  struct Respawn {
    absl::Time due;
    int deaths = 0;
    bool waiting = false;
  };

  absl::Status StartFleet();
  absl::Status FollowJob(const v1::JobDescription& job);
  // Handles what happens within `timeout`, at most once each.
  void Pump(absl::Duration timeout);
  void ReadSignals();
  void HandleExit(const Fleet::Exit& exit);
  void TakeNews();
  void Show(v1::Job job);
  absl::Status RestartDue();
  // Why the run cannot go on, or OK.
  absl::Status Health() const;
  absl::Status Stalled() const;
  void Say(const std::string& text);

  const UpOptions options_;
  Console* const console_;  // the job's progress
  Console* const log_;      // the daemons' lines
  const int signals_;       // a signalfd
  Fleet fleet_;
  JobDisplay display_;
  std::function<void(const v1::Job& job)> on_job_;
  std::unique_ptr<JobFollower> follower_;
  std::optional<v1::Job> job_;
  std::optional<absl::Status> finished_;  // of following the job
  RunSummary summary_;
  absl::Duration elapsed_;
  absl::Time last_progress_;
  std::map<std::string, Respawn> respawns_;  // by worker
  std::string last_exit_;                    // of any process, for people
  int interrupts_ = 0;
  bool stopping_ = false;
};

}  // namespace muster

#endif  // MUSTER_CLIENT_COMMANDS_UP_RUN_H_
