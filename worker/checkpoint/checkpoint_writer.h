// Writes checkpoints aside and publishes them by a rename, so that a directory with its final name
// is complete whenever the process or the machine dies.
//
// A checkpoint <root>/step-00000100/ holds
//   model-00001-of-0000K.safetensors      parameters under their names, each tensor whole
//   model.safetensors.index.json          which file holds which parameter (Hugging Face's format)
//   optimizer-00001-of-0000K.safetensors  optimizer slots as "<parameter>.<slot>",
//                                         none for frozen parameters
//   manifest.json                         tag, job, sizes and SHA-256 of all files (manifest.h)
//
// Writing takes two calls, because the coordinator approves in between (protocol: only a stable
// step becomes visible): Prepare makes everything durable under <root>/.tmp-step-*/; Commit writes
// the manifest and renames. One job owns a root (directory_owner.h); the writer of another
// publishes and removes nothing there. Several workers may write a checkpoint together, each a part
// (part_plan.h), in a directory that all of them see: each prepares its own, and when all parts are
// durable the writer of part 0 assembles them and commits. What others left unfinished is removed
// when part 0 is prepared. Workers that have lost their coordinator may write at the same time:
// they prepare, and then publish or set aside, without touching anything of others.
//
// Thread-compatible. Errors are those of base/file.h; after an error of Prepare nothing is left to
// discard.
#ifndef MUSTER_WORKER_CHECKPOINT_CHECKPOINT_WRITER_H_
#define MUSTER_WORKER_CHECKPOINT_CHECKPOINT_WRITER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/file.h"
#include "base/ids.h"
#include "worker/checkpoint/directory_owner.h"
#include "worker/checkpoint/training_state.h"

namespace muster {

struct CheckpointWriterOptions {
  std::string root;
  Incarnation incarnation;
  DirectoryOwner owner;                       // the job that is saved
  int64_t max_file_bytes = int64_t{2} << 30;  // a larger tensor gets a file of its own
  int keep_last = 0;                          // complete checkpoints to keep; 0 keeps all
};

// A durable but not yet visible checkpoint.
struct PreparedCheckpoint {
  Step step = 0;
  uint64_t branch = 0;
  Epoch epoch = 0;
  int part_count = 1;
  std::string path;        // where it is now
  std::string final_path;  // where Commit puts it
  // Of the whole, or of the part until it is assembled:
  std::string checksum;  // SHA-256 of the manifest to be written: names the whole contents
  std::string parameters_sha256;
  int64_t bytes = 0;  // of all files
  std::string manifest;
};

struct CommittedCheckpoint {
  std::string path;
  std::vector<std::string> warnings;  // old checkpoints that could not be removed
};

// Creates `root` if it is missing and tries to write there, so that a job whose checkpoints cannot
// be written fails before it trains. `incarnation` keeps workers that try at the same time apart.
absl::Status CheckRoot(FileSystem& files, const std::string& root, Incarnation incarnation);

// What to do with unfinished checkpoints of others.
enum class Leftovers { kRemove, kKeep };

class CheckpointWriter {
 public:
  // `files` must outlive the writer.
  CheckpointWriter(FileSystem& files, CheckpointWriterOptions options);

  // As directory_owner.h has it: whether the root is still the job's.
  absl::Status CheckOwner();

  // With kRemove, the errors of CheckOwner. INVALID_ARGUMENT for a job text or a name that is not
  // UTF-8, or a slot name that is empty, repeated or has a '.'. Requires: spans as large as the
  // part.
  absl::StatusOr<PreparedCheckpoint> Prepare(const TrainingState& state,
                                             Leftovers leftovers = Leftovers::kRemove);

  // The whole of which `part` is one, from what the writers of all parts left; itself if it is the
  // only one. Any of the writers may call it. NOT_FOUND while a part is not there; DATA_LOSS or
  // FAILED_PRECONDITION if one is damaged or of another state.
  absl::StatusOr<PreparedCheckpoint> Assemble(const PreparedCheckpoint& part);

  // Replaces what is at the final path, if anything (an older branch, a corrupt checkpoint). The
  // errors of CheckOwner. Repeating a Commit that succeeded succeeds. NOT_FOUND if another
  // incarnation removed it in between.
  absl::StatusOr<CommittedCheckpoint> Commit(const PreparedCheckpoint& prepared);

  // Commit for a writer among others that write the same: replaces nothing and removes no older
  // checkpoint. ALREADY_EXISTS if another checkpoint bears the name; the errors of CheckOwner.
  absl::StatusOr<CommittedCheckpoint> CommitBesideOthers(const PreparedCheckpoint& prepared);

  // Makes it complete, under a name that FindNewestCheckpoint speaks of and does not take, whoever
  // the root belongs to. Returns where it is then.
  absl::StatusOr<std::string> SetAside(const PreparedCheckpoint& prepared);

  absl::Status Discard(const PreparedCheckpoint& prepared);

 private:
  FileSystem& files_;
  const CheckpointWriterOptions options_;
};

}  // namespace muster

#endif  // MUSTER_WORKER_CHECKPOINT_CHECKPOINT_WRITER_H_
