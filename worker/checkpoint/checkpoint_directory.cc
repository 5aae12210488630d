#include "worker/checkpoint/checkpoint_directory.h"

#include <algorithm>
#include <memory>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "worker/checkpoint/checkpoint_reader.h"

namespace muster {
namespace {

constexpr absl::string_view kTemporaryPrefix = ".tmp-";
constexpr absl::string_view kRemovedPrefix = ".tmp-removed-";
constexpr absl::string_view kReplacedPrefix = ".replaced-";
constexpr absl::string_view kUnsealedPrefix = "unsealed-";
constexpr absl::string_view kAlonePrefix = ".alone-";

// Of "<prefix>step-00000100-<incarnation>".
std::optional<Step> StepAfter(absl::string_view prefix, absl::string_view name) {
  if (!absl::ConsumePrefix(&name, prefix)) return std::nullopt;
  return StepOfCheckpointName(name.substr(0, name.rfind('-')));
}

absl::Status PutBackOrRemove(FileSystem& files, const std::string& root, absl::string_view name) {
  const std::string final_path = JoinPath(root, absl::StripPrefix(name, kReplacedPrefix));
  const std::string path = JoinPath(root, name);
  MUSTER_ASSIGN_OR_RETURN(const bool taken, files.Exists(final_path));
  if (taken) return files.RemoveAll(path);
  MUSTER_RETURN_IF_ERROR(files.Rename(path, final_path));
  return files.SyncDirectory(root);
}

// Sizes only: reading every byte after each checkpoint would cost more than writing it.
bool HasFullSize(FileSystem& files, const ListedCheckpoint& checkpoint) {
  return std::all_of(checkpoint.manifest.files.begin(), checkpoint.manifest.files.end(),
                     [&](const CheckpointFile& expected) {
                       const auto file = files.Open(JoinPath(checkpoint.path, expected.name));
                       return file.ok() && (*file)->size() == expected.bytes;
                     });
}

}  // namespace

std::string CheckpointName(Step step) { return absl::StrFormat("step-%08d", step); }

std::string TemporaryName(Step step, Epoch view, Incarnation incarnation) {
  return absl::StrCat(kTemporaryPrefix, CheckpointName(step), "-", view, "-",
                      incarnation.ToString());
}

std::string PartRecordName(int index, int count) {
  return absl::StrFormat("part-%05d-of-%05d.json", index + 1, count);
}

std::string ReplacedName(Step step) { return absl::StrCat(kReplacedPrefix, CheckpointName(step)); }

std::string OwnerTemporaryName(Incarnation incarnation) {
  return absl::StrCat(kTemporaryPrefix, "owner-", incarnation.ToString());
}

std::string AloneName(Step step, Incarnation incarnation) {
  return absl::StrCat(kAlonePrefix, CheckpointName(step), "-", incarnation.ToString());
}

std::string UnsealedName(Step step, Incarnation incarnation) {
  return absl::StrCat(kUnsealedPrefix, CheckpointName(step), "-", incarnation.ToString());
}

std::optional<Step> StepOfCheckpointName(absl::string_view name) {
  Step step = 0;
  absl::string_view digits = name;
  if (!absl::ConsumePrefix(&digits, "step-") || !absl::SimpleAtoi(digits, &step) || step < 0 ||
      CheckpointName(step) != name) {
    return std::nullopt;
  }
  return step;
}

std::optional<Step> StepOfReplacedName(absl::string_view name) {
  if (!absl::ConsumePrefix(&name, kReplacedPrefix)) return std::nullopt;
  return StepOfCheckpointName(name);
}

std::optional<Step> StepOfUnsealedName(absl::string_view name) {
  return StepAfter(kUnsealedPrefix, name);
}

std::optional<Step> StepOfAloneName(absl::string_view name) {
  return StepAfter(kAlonePrefix, name);
}

namespace {

// Whether both are temporaries of one view and publisher, and `name` is of a later step: the
// members of the view may be at that one already.
bool IsLaterOfTheSame(absl::string_view name, absl::string_view current) {
  const auto cut = [](absl::string_view text) -> std::pair<absl::string_view, absl::string_view> {
    const size_t begin = std::min(text.find("step-"), text.size());
    const size_t end = text.find('-', std::min(begin + 5, text.size()));
    if (end == absl::string_view::npos) return {};
    return {text.substr(begin, end - begin), text.substr(end)};
  };
  const auto [step, writers] = cut(name);
  const auto [current_step, current_writers] = cut(current);
  return !writers.empty() && writers == current_writers &&
         StepOfCheckpointName(step).value_or(-1) > StepOfCheckpointName(current_step).value_or(-1);
}

}  // namespace

absl::Status CleanUp(FileSystem& files, const std::string& root, absl::string_view current) {
  MUSTER_ASSIGN_OR_RETURN(const bool exists, files.Exists(root));
  if (!exists) return absl::OkStatus();
  MUSTER_ASSIGN_OR_RETURN(const std::vector<std::string> names, files.ListDirectory(root));
  Step newest = -1;
  for (const std::string& name : names) {
    newest = std::max(newest, StepOfCheckpointName(name).value_or(-1));
  }
  for (const std::string& name : names) {
    if (StepOfAloneName(name).value_or(newest) < newest) {
      MUSTER_RETURN_IF_ERROR(files.RemoveAll(JoinPath(root, name)));
    } else if (absl::StartsWith(name, kReplacedPrefix)) {
      MUSTER_RETURN_IF_ERROR(PutBackOrRemove(files, root, name));
    } else if (absl::StartsWith(name, kTemporaryPrefix) && name != current &&
               !IsLaterOfTheSame(name, current)) {
      MUSTER_RETURN_IF_ERROR(files.RemoveAll(JoinPath(root, name)));
    }
  }
  return absl::OkStatus();
}

absl::Status KeepNewest(FileSystem& files, const std::string& root, int keep_last) {
  MUSTER_CHECK(keep_last > 0) << keep_last;
  MUSTER_ASSIGN_OR_RETURN(const std::vector<ListedCheckpoint> checkpoints,
                          ListCheckpoints(files, root, nullptr));
  int kept = 0;
  for (const ListedCheckpoint& checkpoint : checkpoints) {
    if (!HasFullSize(files, checkpoint)) continue;
    if (kept < keep_last) {
      ++kept;
      continue;
    }
    // Renamed, durably, before its files go: a checkpoint that is half removed must not bear a
    // checkpoint's name, not even after a power loss.
    const std::string removed = JoinPath(
        root, absl::StrCat(kRemovedPrefix, CheckpointName(checkpoint.manifest.progress.step)));
    MUSTER_RETURN_IF_ERROR(files.RemoveAll(removed));
    MUSTER_RETURN_IF_ERROR(files.Rename(checkpoint.path, removed));
    MUSTER_RETURN_IF_ERROR(files.SyncDirectory(root));
    MUSTER_RETURN_IF_ERROR(files.RemoveAll(removed));
  }
  return absl::OkStatus();
}

}  // namespace muster
