// The names under a checkpoint root, and what is tidied there. Internal to this folder.
//
//   step-00000100                       a complete checkpoint
//   owner.json                          which job the root belongs to (directory_owner.h)
//   .tmp-step-00000100-<view>-<incarnation>
//                                       being written, or left by writers that died; by the one
//                                       that publishes it
//   .tmp-removed-step-00000100          being removed
//   .tmp-owner-<incarnation>            owner.json being written
//   .alone-step-00000100-<incarnation>  the same, by a writer without a coordinator, beside others
//   .replaced-step-00000100             put away while another takes its name
//   unsealed-step-00000100-<incarnation>
//                                       complete, of a state that only its writer is known to have
//                                       held, or of a job from which another took the root over:
//                                       for a person to rename, never found by itself
#ifndef MUSTER_WORKER_CHECKPOINT_CHECKPOINT_DIRECTORY_H_
#define MUSTER_WORKER_CHECKPOINT_CHECKPOINT_DIRECTORY_H_

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "base/file.h"
#include "base/ids.h"

namespace muster {

inline constexpr absl::string_view kManifestName = "manifest.json";
inline constexpr absl::string_view kOwnerName = "owner.json";

std::string CheckpointName(Step step);
std::string TemporaryName(Step step, Epoch view, Incarnation incarnation);
std::string AloneName(Step step, Incarnation incarnation);
std::string ReplacedName(Step step);
std::string OwnerTemporaryName(Incarnation incarnation);
// Within it, until it is complete: what each of several writers says of its part.
std::string PartRecordName(int index, int count);
std::string UnsealedName(Step step, Incarnation incarnation);

// nullopt for any other name.
std::optional<Step> StepOfCheckpointName(absl::string_view name);
std::optional<Step> StepOfReplacedName(absl::string_view name);
std::optional<Step> StepOfUnsealedName(absl::string_view name);
std::optional<Step> StepOfAloneName(absl::string_view name);

// Removes what writers left unfinished, other than `current`, the name of a directory, and what the
// same view has begun of later steps (of those without a coordinator, who may be at work, only what
// is older than a checkpoint that is there),
// and puts a checkpoint that was put away back to its place if nothing took it. A root that does
// not exist is fine.
absl::Status CleanUp(FileSystem& files, const std::string& root, absl::string_view current);

// Removes all but the `keep_last` newest checkpoints whose files are there in full size. Those that
// are not are neither counted nor removed. Requires: keep_last > 0.
absl::Status KeepNewest(FileSystem& files, const std::string& root, int keep_last);

}  // namespace muster

#endif  // MUSTER_WORKER_CHECKPOINT_CHECKPOINT_DIRECTORY_H_
