#include "client/commands/up.h"

#include <algorithm>
#include <cstdio>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/file.h"
#include "base/status_macros.h"
#include "client/commands/job_commands.h"
#include "client/commands/up_run.h"
#include "client/job_file.h"
#include "client/job_steps.h"
#include "client/output/job_text.h"
#include "proto/convert/job.h"
#include "proto/rpc/address.h"

namespace muster {
namespace {

// What the flags can get wrong together, and what the coordinator would refuse. Writes nothing.
absl::Status CheckUsage(const UpOptions& options, FileSystem& files) {
  MUSTER_RETURN_IF_ERROR(Annotate(ParseHostPort(options.listen).status(), "--listen"));
  if (options.lease_ms < 2 * options.heartbeat_ms) {
    return absl::InvalidArgumentError(
        absl::StrCat("--lease-ms: must be at least twice --heartbeat-ms (", options.heartbeat_ms,
                     "), got ", options.lease_ms));
  }
  if (options.job_file.empty() && (options.steps > 0 || !options.summary_file.empty())) {
    return absl::InvalidArgumentError(
        absl::StrCat(options.steps > 0 ? "--steps" : "--summary-json",
                     " is about the job to run: name one with --job"));
  }
  if (!options.job_file.empty()) {
    MUSTER_RETURN_IF_ERROR(Annotate(JobFileFormatOf(options.job_file).status(), "--job"));
  }
  MUSTER_RETURN_IF_ERROR(CheckCanBeWritten(files, options.summary_file, "--summary-json"));
  return CheckCanBeWritten(files, options.pid_file, "--pid-file");
}

// Gives a job that names no directory for its checkpoints one in the run directory.
void DefaultCheckpoints(const UpOptions& options, v1::JobDescription* job) {
  if (!job->checkpoints().directory().empty()) return;
  job->mutable_checkpoints()->set_directory(JoinPath(options.run_directory, "checkpoints"));
}

}  // namespace

absl::StatusOr<v1::JobDescription> AdaptJob(v1::JobDescription job, const UpOptions& options) {
  v1::Workers* workers = job.mutable_workers();
  if (workers->min() > options.workers) {
    return absl::InvalidArgumentError(absl::StrCat("the job asks for at least ", workers->min(),
                                                   " workers (workers.min), but --workers is ",
                                                   options.workers));
  }
  workers->set_start(workers->max() > 0 ? std::min(workers->max(), options.workers)
                                        : options.workers);
  if (options.steps > 0) SetSteps(options.steps, &job);
  DefaultCheckpoints(options, &job);
  const auto spec = JobSpecFromProto(job);
  if (!spec.ok()) return Annotate(spec.status(), "with the command line's changes");
  return job;
}

int UpCommand(const UpOptions& options, Console* console) {
  // Whoever ends the run before it has begun gets its summary all the same.
  BlockRunSignals();
  PosixFileSystem files;
  if (absl::Status status = CheckUsage(options, files); !status.ok()) return Complain(status, 2);
  Console errors(stderr, false);
  Console* const remarks = options.json ? &errors : console;
  std::optional<v1::JobDescription> job;
  if (!options.job_file.empty()) {
    absl::StatusOr<v1::JobDescription> read = ReadJobFile(
        options.job_file, [&](v1::JobDescription* read) { DefaultCheckpoints(options, read); });
    const int64_t warmup = read.ok() ? read->training().learning_rate().warmup_steps() : 0;
    if (read.ok()) read = AdaptJob(*std::move(read), options);
    // What is wrong in a file begins with its name, line and column.
    if (!read.ok() && !absl::IsInvalidArgument(read.status())) {
      return Complain(Annotate(read.status(), "--job"), 2);
    }
    if (!read.ok()) return Complain(read.status(), 2);
    job = *std::move(read);
    if (const int64_t left = job->training().learning_rate().warmup_steps(); left < warmup) {
      remarks->Line(absl::StrCat("--steps ", options.steps, ": the warm-up is shortened from ",
                                 warmup, " steps to ", left));
    }
  }
  if (absl::Status status = files.CreateDirectories(options.run_directory); !status.ok()) {
    return Complain(Annotate(status, "--run-directory"), 1);
  }

  UpRun run(options, console, remarks, &files);
  const absl::Status status = run.Run(job);
  run.Stop();
  if (job.has_value() && run.job().has_value() && !options.json) {
    console->Line(absl::StrCat("\n", absl::StripSuffix(run.summary().Text(run.elapsed()), "\n")));
  }
  if (job.has_value() && !options.summary_file.empty()) {
    const absl::Status written = ReplaceFileAtomically(files, options.summary_file,
                                                       absl::StrCat(run.summary().Json(), "\n"));
    if (!written.ok()) return Complain(Annotate(written, "--summary-json"), 1);
  }
  if (!status.ok()) return Complain(status, absl::IsInvalidArgument(status) ? 2 : 1);
  if (!job.has_value() || run.job()->state() == v1::JOB_STATE_SUCCEEDED) {
    return console->write_status().ok() ? 0 : Complain(console->write_status(), 1);
  }
  return Complain(absl::AbortedError(absl::StrCat("the job ", Name(run.job()->state()), ": ",
                                                  run.job()->reason())),
                  1);
}

}  // namespace muster
