#include "worker/checkpoint/checkpoint_writer.h"

#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/sha256.h"
#include "base/status_macros.h"
#include "worker/checkpoint/checkpoint_directory.h"
#include "worker/checkpoint/checkpoint_reader.h"
#include "worker/checkpoint/json.h"
#include "worker/checkpoint/manifest.h"
#include "worker/checkpoint/part_plan.h"
#include "worker/checkpoint/safetensors.h"

namespace muster {
namespace {

constexpr char kIndexName[] = "model.safetensors.index.json";
constexpr int64_t kMaxManifestBytes = int64_t{64} << 20;

// The part of the space that is written.
Range RangeOf(const TrainingState& state) {
  return RangesOfParts(*state.layout, state.part.count)[static_cast<size_t>(state.part.index)];
}

absl::Status CheckState(const TrainingState& state) {
  const int64_t count = RangeOf(state).count;
  MUSTER_CHECK_EQ(static_cast<int64_t>(state.parameters.size()), count);
  std::set<std::string> names;
  for (const OptimizerSlot& slot : state.slots) {
    MUSTER_CHECK_EQ(static_cast<int64_t>(slot.values.size()), count);
    if (slot.name.empty() || slot.name.find('.') != std::string::npos ||
        !names.insert(slot.name).second) {
      return absl::InvalidArgumentError(absl::StrCat(
          "optimizer slot \"", slot.name, "\": expected a name without '.' that is not repeated"));
    }
  }
  return absl::OkStatus();
}

std::vector<PlannedFile> PlanOf(const TrainingState& state, int64_t max_file_bytes) {
  std::vector<std::string> slots;
  for (const OptimizerSlot& slot : state.slots) slots.push_back(slot.name);
  return PlanFiles(*state.layout, slots, state.part.count, max_file_bytes);
}

absl::string_view BytesOf(const TrainingState& state, const PlannedTensor& planned) {
  const absl::Span<const float> array =
      planned.array == 0 ? state.parameters
                         : state.slots[static_cast<size_t>(planned.array) - 1].values;
  return {
      reinterpret_cast<const char*>(array.data() + planned.tensor->offset - RangeOf(state).offset),
      static_cast<size_t>(planned.tensor->count) * sizeof(float)};
}

absl::StatusOr<CheckpointFile> WriteTensors(FileSystem& files, const std::string& directory,
                                            const TrainingState& state, const PlannedFile& plan) {
  std::vector<SafetensorsEntry> entries;
  for (const PlannedTensor& planned : plan.tensors) {
    entries.push_back({planned.name, DType::kF32, planned.tensor->spec.shape});
  }
  // Hugging Face's loader asks for this: the tensors lie as PyTorch's do.
  MUSTER_ASSIGN_OR_RETURN(SafetensorsWriter writer,
                          SafetensorsWriter::Create(files, JoinPath(directory, plan.name), entries,
                                                    {{"format", "pt"}}));
  for (const PlannedTensor& planned : plan.tensors) {
    MUSTER_RETURN_IF_ERROR(writer.Append(BytesOf(state, planned)));
  }
  MUSTER_ASSIGN_OR_RETURN(SafetensorsWriter::Result result, writer.Finish());
  return CheckpointFile{plan.name, plan.kind, result.bytes, result.sha256,
                        std::move(result.crc32c)};
}

absl::StatusOr<CheckpointFile> WriteIndex(FileSystem& files, const std::string& directory,
                                          const Layout& layout,
                                          absl::Span<const PlannedFile> plan) {
  nlohmann::json weight_map = nlohmann::json::object();
  for (const PlannedFile& file : plan) {
    if (file.kind != CheckpointFileKind::kParameters) continue;
    for (const PlannedTensor& tensor : file.tensors) weight_map[tensor.name] = file.name;
  }
  const int64_t total_bytes = layout.parameter_count() * static_cast<int64_t>(sizeof(float));
  const nlohmann::json index = {{"metadata", {{"total_size", total_bytes}}},
                                {"weight_map", weight_map}};
  MUSTER_ASSIGN_OR_RETURN(const std::string text, SerializeJson(index, kIndexName, 2));
  MUSTER_RETURN_IF_ERROR(WriteFileDurably(files, JoinPath(directory, kIndexName), text));
  return CheckpointFile{.name = kIndexName,
                        .kind = CheckpointFileKind::kIndex,
                        .bytes = static_cast<int64_t>(text.size()),
                        .sha256 = Sha256Hex(text)};
}

// The files of the part, and of part 0 the index of all. Says what is in them.
absl::StatusOr<Manifest> WritePart(FileSystem& files, const std::string& directory,
                                   const TrainingState& state, int64_t max_file_bytes) {
  Manifest manifest{.progress = state.progress, .layout_fingerprint = state.layout->fingerprint()};
  const std::vector<PlannedFile> plan = PlanOf(state, max_file_bytes);
  for (const PlannedFile& planned : plan) {
    if (planned.part != state.part.index) continue;
    if (planned.kind == CheckpointFileKind::kParameters) {
      for (const PlannedTensor& tensor : planned.tensors) {
        manifest.tensors[tensor.name] = Sha256Hex(BytesOf(state, tensor));
      }
    }
    MUSTER_ASSIGN_OR_RETURN(CheckpointFile file, WriteTensors(files, directory, state, planned));
    manifest.files.push_back(std::move(file));
  }
  if (state.part.index == 0) {
    MUSTER_ASSIGN_OR_RETURN(CheckpointFile index,
                            WriteIndex(files, directory, *state.layout, plan));
    manifest.files.push_back(std::move(index));
  }
  return MergeParts({manifest});
}

absl::Status Describe(const Manifest& manifest, PreparedCheckpoint* prepared) {
  MUSTER_ASSIGN_OR_RETURN(prepared->manifest, SerializeManifest(manifest));
  prepared->checksum = Sha256Hex(prepared->manifest);
  prepared->parameters_sha256 = manifest.ParametersSha256();
  prepared->bytes = 0;
  for (const CheckpointFile& file : manifest.files) prepared->bytes += file.bytes;
  return absl::OkStatus();
}

absl::Status Complete(FileSystem& files, const PreparedCheckpoint& prepared) {
  const std::string path = JoinPath(prepared.path, kManifestName);
  if (prepared.part_count == 1) {
    MUSTER_RETURN_IF_ERROR(WriteFileDurably(files, path, prepared.manifest));
  } else {
    // Another writer of its parts may be about to do the same.
    MUSTER_RETURN_IF_ERROR(ReplaceFileAtomically(files, path, prepared.manifest));
  }
  for (int part = 0; prepared.part_count > 1 && part < prepared.part_count; ++part) {
    MUSTER_RETURN_IF_ERROR(
        files.RemoveAll(JoinPath(prepared.path, PartRecordName(part, prepared.part_count))));
  }
  return files.SyncDirectory(prepared.path);
}

// True if the directory is the checkpoint whose manifest has this checksum.
bool IsSame(FileSystem& files, const std::string& path, const std::string& checksum) {
  const auto manifest = ReadFile(files, JoinPath(path, kManifestName), kMaxManifestBytes);
  return manifest.ok() && Sha256Hex(*manifest) == checksum;
}

}  // namespace

absl::Status CheckRoot(FileSystem& files, const std::string& root, Incarnation incarnation) {
  MUSTER_RETURN_IF_ERROR(CreateDirectoriesDurably(files, root));
  // A name that CleanUp knows; no checkpoint is written before the first step.
  const std::string probe = JoinPath(root, TemporaryName(0, 0, incarnation));
  const absl::Status written = WriteFileDurably(files, probe, "x");
  const absl::Status removed = files.RemoveAll(probe);
  return written.ok() ? removed : written;
}

CheckpointWriter::CheckpointWriter(FileSystem& files, CheckpointWriterOptions options)
    : files_(files), options_(std::move(options)) {
  MUSTER_CHECK(!options_.root.empty());
  MUSTER_CHECK(options_.max_file_bytes > 0) << options_.max_file_bytes;
  MUSTER_CHECK(options_.keep_last >= 0) << options_.keep_last;
}

absl::Status CheckpointWriter::CheckOwner() {
  return muster::CheckOwner(files_, options_.root, options_.owner);
}

absl::StatusOr<PreparedCheckpoint> CheckpointWriter::Prepare(const TrainingState& state,
                                                             Leftovers leftovers) {
  MUSTER_RETURN_IF_ERROR(CheckState(state));
  const CheckpointPart& part = state.part;
  const bool alone = part.count == 1;
  const bool publishes = part.index == 0;
  const Incarnation publisher = alone ? options_.incarnation : part.publisher;
  const std::string name = leftovers == Leftovers::kRemove
                               ? TemporaryName(state.progress.step, part.view, publisher)
                               : AloneName(state.progress.step, publisher);
  PreparedCheckpoint prepared;
  prepared.step = state.progress.step;
  prepared.branch = state.progress.branch;
  prepared.epoch = state.progress.epoch;
  prepared.part_count = part.count;
  prepared.path = JoinPath(options_.root, name);
  prepared.final_path = JoinPath(options_.root, CheckpointName(prepared.step));

  const auto write = [&]() -> absl::Status {
    if (leftovers == Leftovers::kRemove) {
      // Writers of all parts look: what they wrote would stay where nobody assembles it.
      MUSTER_RETURN_IF_ERROR(CheckOwner());
      if (publishes) MUSTER_RETURN_IF_ERROR(CleanUp(files_, options_.root, name));
    }
    MUSTER_RETURN_IF_ERROR(CreateDirectoriesDurably(files_, options_.root));
    if (alone) {
      MUSTER_RETURN_IF_ERROR(files_.RemoveAll(prepared.path));
    }
    MUSTER_RETURN_IF_ERROR(files_.CreateDirectories(prepared.path));
    MUSTER_ASSIGN_OR_RETURN(const Manifest manifest,
                            WritePart(files_, prepared.path, state, options_.max_file_bytes));
    MUSTER_RETURN_IF_ERROR(Describe(manifest, &prepared));
    if (!alone) {
      const std::string record = JoinPath(prepared.path, PartRecordName(part.index, part.count));
      MUSTER_RETURN_IF_ERROR(ReplaceFileAtomically(files_, record, prepared.manifest));
    }
    MUSTER_RETURN_IF_ERROR(files_.SyncDirectory(prepared.path));
    return files_.SyncDirectory(options_.root);
  };
  const absl::Status status = write();
  if (!status.ok()) {
    // Best effort: if it fails as well, a later writer's CleanUp removes the rest.
    if (publishes) files_.RemoveAll(prepared.path).IgnoreError();
    return Annotate(status, absl::StrCat("checkpoint of step ", prepared.step));
  }
  return prepared;
}

absl::StatusOr<PreparedCheckpoint> CheckpointWriter::Assemble(const PreparedCheckpoint& part) {
  if (part.part_count == 1) return part;
  std::vector<Manifest> parts;
  for (int index = 0; index < part.part_count; ++index) {
    const std::string path = JoinPath(part.path, PartRecordName(index, part.part_count));
    const absl::StatusOr<std::string> text = ReadFile(files_, path, kMaxManifestBytes);
    if (absl::IsNotFound(text.status())) {
      return absl::NotFoundError(absl::StrCat(
          "checkpoint of step ", part.step, ": part ", index + 1, " of ", part.part_count,
          " is not in ", part.path,
          ", though its worker wrote it or may be writing it: checkpoints.directory must be one "
          "directory, on a file system that all workers share"));
    }
    if (!text.ok()) return text.status();
    MUSTER_ASSIGN_OR_RETURN(Manifest manifest, ParseManifest(*text, path));
    for (const CheckpointFile& file : manifest.files) {
      MUSTER_RETURN_IF_ERROR(CheckSize(files_, part.path, file));
    }
    parts.push_back(std::move(manifest));
  }
  MUSTER_ASSIGN_OR_RETURN(const Manifest whole, MergeParts(parts));
  PreparedCheckpoint assembled = part;
  MUSTER_RETURN_IF_ERROR(Describe(whole, &assembled));
  return assembled;
}

absl::StatusOr<CommittedCheckpoint> CheckpointWriter::Commit(const PreparedCheckpoint& prepared) {
  const auto publish = [&]() -> absl::Status {
    MUSTER_RETURN_IF_ERROR(CheckOwner());
    const std::string replaced = JoinPath(options_.root, ReplacedName(prepared.step));
    MUSTER_ASSIGN_OR_RETURN(const bool occupied, files_.Exists(prepared.final_path));
    if (occupied && IsSame(files_, prepared.final_path, prepared.checksum)) {
      // An earlier Commit renamed but failed afterwards.
      MUSTER_RETURN_IF_ERROR(files_.RemoveAll(prepared.path));
      MUSTER_RETURN_IF_ERROR(files_.SyncDirectory(options_.root));
      return files_.RemoveAll(replaced);
    }
    MUSTER_RETURN_IF_ERROR(Complete(files_, prepared));
    if (occupied) {
      // A directory cannot be renamed onto one with content. Between the two renames a crash leaves
      // the old one under the other name; CleanUp puts it back.
      MUSTER_RETURN_IF_ERROR(files_.RemoveAll(replaced));
      MUSTER_RETURN_IF_ERROR(files_.Rename(prepared.final_path, replaced));
    }
    MUSTER_RETURN_IF_ERROR(files_.Rename(prepared.path, prepared.final_path));
    MUSTER_RETURN_IF_ERROR(files_.SyncDirectory(options_.root));
    return occupied ? files_.RemoveAll(replaced) : absl::OkStatus();
  };
  const absl::Status status = publish();
  if (!status.ok()) return Annotate(status, absl::StrCat("checkpoint of step ", prepared.step));

  CommittedCheckpoint committed{.path = prepared.final_path};
  if (options_.keep_last > 0) {
    absl::Status kept = CheckOwner();
    if (kept.ok()) kept = KeepNewest(files_, options_.root, options_.keep_last);
    if (!kept.ok()) {
      committed.warnings.push_back(
          absl::StrCat("old checkpoints were not removed: ", kept.message()));
    }
  }
  return committed;
}

absl::StatusOr<CommittedCheckpoint> CheckpointWriter::CommitBesideOthers(
    const PreparedCheckpoint& prepared) {
  const auto publish = [&]() -> absl::Status {
    MUSTER_RETURN_IF_ERROR(CheckOwner());
    absl::Status renamed = Complete(files_, prepared);
    // Onto a directory with content it fails, so that of several writers one succeeds.
    if (renamed.ok()) renamed = files_.Rename(prepared.path, prepared.final_path);
    if (!renamed.ok()) {
      // Or another writer of its parts has published it.
      MUSTER_ASSIGN_OR_RETURN(const bool occupied, files_.Exists(prepared.final_path));
      if (!occupied) return renamed;
      if (!IsSame(files_, prepared.final_path, prepared.checksum)) {
        return absl::AlreadyExistsError(
            absl::StrCat(prepared.final_path, " holds another state of this step"));
      }
      MUSTER_RETURN_IF_ERROR(files_.RemoveAll(prepared.path));
    }
    return files_.SyncDirectory(options_.root);
  };
  const absl::Status status = publish();
  if (!status.ok()) return Annotate(status, absl::StrCat("checkpoint of step ", prepared.step));
  return CommittedCheckpoint{.path = prepared.final_path};
}

absl::StatusOr<std::string> CheckpointWriter::SetAside(const PreparedCheckpoint& prepared) {
  const std::string path =
      JoinPath(options_.root, UnsealedName(prepared.step, options_.incarnation));
  const auto set_aside = [&]() -> absl::Status {
    MUSTER_RETURN_IF_ERROR(Complete(files_, prepared));
    MUSTER_RETURN_IF_ERROR(files_.RemoveAll(path));  // of an older view of this incarnation
    MUSTER_RETURN_IF_ERROR(files_.Rename(prepared.path, path));
    return files_.SyncDirectory(options_.root);
  };
  const absl::Status status = set_aside();
  if (!status.ok()) return Annotate(status, absl::StrCat("checkpoint of step ", prepared.step));
  return path;
}

absl::Status CheckpointWriter::Discard(const PreparedCheckpoint& prepared) {
  return files_.RemoveAll(prepared.path);
}

}  // namespace muster
