// Finds, verifies and loads checkpoints written by CheckpointWriter.
//
// Tensors are matched by name, so any world size loads any checkpoint, and so does a layout with
// other buckets or padding. Who needs only ranges of the space reads only those. Functions are
// thread-safe as long as nobody removes the files. Errors name the file: DATA_LOSS for a torn or
// corrupt checkpoint, FAILED_PRECONDITION for an intact one of another job or model.
#ifndef MUSTER_WORKER_CHECKPOINT_CHECKPOINT_READER_H_
#define MUSTER_WORKER_CHECKPOINT_CHECKPOINT_READER_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/file.h"
#include "state/layout.h"
#include "state/range.h"
#include "worker/checkpoint/manifest.h"
#include "worker/checkpoint/training_state.h"

namespace muster {

// A checkpoint whose files were all there when it was opened, with the sizes its manifest says.
struct Checkpoint {
  std::string path;
  Manifest manifest;
};

// Reads the manifest only: what is loaded from it is verified then. NOT_FOUND or DATA_LOSS names
// the first file that is missing or of another size.
absl::StatusOr<Checkpoint> OpenCheckpoint(FileSystem& files, const std::string& path);

// The same, and reads every byte. NOT_FOUND or DATA_LOSS names the first file that is wrong.
absl::StatusOr<Checkpoint> VerifyCheckpoint(FileSystem& files, const std::string& path);

// DATA_LOSS if the file, in this directory, has another size; NOT_FOUND if it is not there.
absl::Status CheckSize(FileSystem& files, const std::string& directory,
                       const CheckpointFile& expected);

struct ListedCheckpoint {
  std::string path;
  Manifest manifest;
};

// The checkpoints of a root whose manifest is readable, newest first: by branch, then by step.
// Files are not verified. A root that does not exist has none. `warnings` names those left out, and
// why.
absl::StatusOr<std::vector<ListedCheckpoint>> ListCheckpoints(FileSystem& files,
                                                              const std::string& root,
                                                              std::vector<std::string>* warnings);

// Those of this step that workers set aside (checkpoint_writer.h), as far as they can be read.
std::vector<ListedCheckpoint> ListSetAside(FileSystem& files, const std::string& root, Step step);

// Bytes written so far of checkpoints of this step by workers without a coordinator, by which
// others see that they are at work.
int64_t BytesBeingKept(FileSystem& files, const std::string& root, Step step);

struct FoundCheckpoint {
  Checkpoint checkpoint;
  // One per torn, corrupt or unsealed checkpoint that was passed over.
  std::vector<std::string> warnings;
};

// The newest intact checkpoint. NOT_FOUND if there is none, or only unsealed ones, which the
// message names; DATA_LOSS, whose message holds the warnings, if all that there are are torn or
// corrupt: a run's work is not to be lost in silence. FAILED_PRECONDITION if it is of another job
// (where `job_fingerprint` is given) or does not hold exactly the tensors of `layout`: that is
// never passed over for an older one.
absl::StatusOr<FoundCheckpoint> FindNewestCheckpoint(FileSystem& files, const std::string& root,
                                                     const Layout& layout,
                                                     std::optional<uint64_t> job_fingerprint);

// Reads what `ranges` of the flat space of `layout`, in order and not overlapping, hold of
// parameters and of optimizer slots, in pieces of 1 MiB at most; of padding, and of the slots of
// frozen tensors, nothing comes. DATA_LOSS names file, bytes and tensor that are damaged.
// FAILED_PRECONDITION names a tensor or slot that is missing, not expected, or of another shape, in
// any range. After an error the destinations hold anything.
absl::Status LoadParameters(FileSystem& files, const Checkpoint& checkpoint, const Layout& layout,
                            absl::Span<const Range> ranges, const PieceSink& take);
absl::Status LoadOptimizer(FileSystem& files, const Checkpoint& checkpoint, const Layout& layout,
                           absl::Span<const Range> ranges,
                           absl::Span<const OptimizerSlotDestination> slots);

}  // namespace muster

#endif  // MUSTER_WORKER_CHECKPOINT_CHECKPOINT_READER_H_
