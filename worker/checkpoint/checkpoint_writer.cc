#include "worker/checkpoint/checkpoint_writer.h"

#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/check.h"
#include "base/sha256.h"
#include "base/status_macros.h"
#include "worker/checkpoint/checkpoint_directory.h"
#include "worker/checkpoint/json.h"
#include "worker/checkpoint/manifest.h"
#include "worker/checkpoint/safetensors.h"

namespace muster {
namespace {

constexpr char kIndexName[] = "model.safetensors.index.json";
constexpr int64_t kMaxManifestBytes = int64_t{64} << 20;

// A tensor to be written, with its values.
struct Source {
  SafetensorsEntry entry;
  absl::Span<const float> values;
  int64_t bytes() const { return static_cast<int64_t>(values.size() * sizeof(float)); }
};

absl::Status CheckSlots(const TrainingState& state) {
  std::set<std::string> names;
  for (const OptimizerSlot& slot : state.slots) {
    MUSTER_CHECK_EQ(static_cast<int64_t>(slot.values.size()), state.layout->padded_count());
    if (slot.name.empty() || slot.name.find('.') != std::string::npos ||
        !names.insert(slot.name).second) {
      return absl::InvalidArgumentError(absl::StrCat(
          "optimizer slot \"", slot.name, "\": expected a name without '.' that is not repeated"));
    }
  }
  return absl::OkStatus();
}

Source SourceOf(const Tensor& tensor, absl::Span<const float> space, std::string name) {
  return {{std::move(name), DType::kF32, tensor.spec.shape},
          space.subspan(static_cast<size_t>(tensor.offset), static_cast<size_t>(tensor.count))};
}

std::vector<Source> ParameterSources(const TrainingState& state) {
  std::vector<Source> sources;
  for (const Tensor& tensor : state.layout->tensors()) {
    sources.push_back(SourceOf(tensor, state.parameters, tensor.spec.name));
  }
  return sources;
}

std::vector<Source> OptimizerSources(const TrainingState& state) {
  std::vector<Source> sources;
  for (const Tensor& tensor : state.layout->tensors()) {
    if (tensor.spec.frozen) continue;
    for (const OptimizerSlot& slot : state.slots) {
      sources.push_back(
          SourceOf(tensor, slot.values, absl::StrCat(tensor.spec.name, ".", slot.name)));
    }
  }
  return sources;
}

// Cuts the sources, in order, into files of at most `max_file_bytes` of tensors, but never a
// tensor.
std::vector<absl::Span<const Source>> CutIntoFiles(absl::Span<const Source> sources,
                                                   int64_t max_file_bytes) {
  std::vector<absl::Span<const Source>> cut;
  size_t begin = 0;
  int64_t bytes = 0;
  for (size_t i = 0; i < sources.size(); ++i) {
    if (i > begin && bytes + sources[i].bytes() > max_file_bytes) {
      cut.push_back(sources.subspan(begin, i - begin));
      begin = i;
      bytes = 0;
    }
    bytes += sources[i].bytes();
  }
  if (begin < sources.size()) cut.push_back(sources.subspan(begin));
  return cut;
}

absl::StatusOr<CheckpointFile> WriteTensors(FileSystem& files, const std::string& directory,
                                            std::string name, CheckpointFileKind kind,
                                            absl::Span<const Source> sources) {
  std::vector<SafetensorsEntry> entries;
  for (const Source& source : sources) entries.push_back(source.entry);
  // Hugging Face's loader asks for this: the tensors lie as PyTorch's do.
  MUSTER_ASSIGN_OR_RETURN(
      SafetensorsWriter writer,
      SafetensorsWriter::Create(files, JoinPath(directory, name), entries, {{"format", "pt"}}));
  for (const Source& source : sources) {
    MUSTER_RETURN_IF_ERROR(writer.Append(absl::string_view(
        reinterpret_cast<const char*>(source.values.data()), static_cast<size_t>(source.bytes()))));
  }
  MUSTER_ASSIGN_OR_RETURN(const SafetensorsWriter::Result result, writer.Finish());
  return CheckpointFile{std::move(name), kind, result.bytes, result.sha256};
}

absl::StatusOr<CheckpointFile> WriteIndex(FileSystem& files, const std::string& directory,
                                          const nlohmann::json& weight_map, int64_t total_bytes) {
  const nlohmann::json index = {{"metadata", {{"total_size", total_bytes}}},
                                {"weight_map", weight_map}};
  MUSTER_ASSIGN_OR_RETURN(const std::string text, SerializeJson(index, kIndexName, 2));
  MUSTER_RETURN_IF_ERROR(WriteFileDurably(files, JoinPath(directory, kIndexName), text));
  return CheckpointFile{kIndexName, CheckpointFileKind::kIndex, static_cast<int64_t>(text.size()),
                        Sha256Hex(text)};
}

absl::StatusOr<std::vector<CheckpointFile>> WriteFiles(FileSystem& files,
                                                       const std::string& directory,
                                                       const TrainingState& state,
                                                       int64_t max_file_bytes) {
  std::vector<CheckpointFile> written;
  const std::vector<Source> parameters = ParameterSources(state);
  nlohmann::json weight_map = nlohmann::json::object();
  const auto write_all = [&](absl::string_view prefix, CheckpointFileKind kind,
                             absl::Span<const Source> sources) -> absl::Status {
    const auto cut = CutIntoFiles(sources, max_file_bytes);
    for (size_t i = 0; i < cut.size(); ++i) {
      const std::string name =
          absl::StrFormat("%s-%05d-of-%05d.safetensors", prefix, i + 1, cut.size());
      MUSTER_ASSIGN_OR_RETURN(CheckpointFile file,
                              WriteTensors(files, directory, name, kind, cut[i]));
      written.push_back(std::move(file));
      if (kind == CheckpointFileKind::kParameters) {
        for (const Source& source : cut[i]) weight_map[source.entry.name] = name;
      }
    }
    return absl::OkStatus();
  };
  MUSTER_RETURN_IF_ERROR(write_all("model", CheckpointFileKind::kParameters, parameters));
  MUSTER_ASSIGN_OR_RETURN(
      CheckpointFile index,
      WriteIndex(files, directory, weight_map,
                 state.layout->parameter_count() * static_cast<int64_t>(sizeof(float))));
  written.push_back(std::move(index));
  MUSTER_RETURN_IF_ERROR(
      write_all("optimizer", CheckpointFileKind::kOptimizer, OptimizerSources(state)));
  return written;
}

absl::Status Complete(FileSystem& files, const PreparedCheckpoint& prepared) {
  MUSTER_RETURN_IF_ERROR(
      WriteFileDurably(files, JoinPath(prepared.path, kManifestName), prepared.manifest));
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
  const std::string probe = JoinPath(root, TemporaryName(0, incarnation));
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

absl::StatusOr<PreparedCheckpoint> CheckpointWriter::Prepare(const TrainingState& state,
                                                             Leftovers leftovers) {
  MUSTER_CHECK_EQ(static_cast<int64_t>(state.parameters.size()), state.layout->padded_count());
  MUSTER_RETURN_IF_ERROR(CheckSlots(state));
  if (leftovers == Leftovers::kRemove) {
    MUSTER_RETURN_IF_ERROR(CleanUp(files_, options_.root, options_.incarnation));
  }

  PreparedCheckpoint prepared;
  prepared.step = state.progress.step;
  prepared.branch = state.progress.branch;
  prepared.epoch = state.progress.epoch;
  prepared.path = JoinPath(options_.root, leftovers == Leftovers::kRemove
                                              ? TemporaryName(prepared.step, options_.incarnation)
                                              : AloneName(prepared.step, options_.incarnation));
  prepared.final_path = JoinPath(options_.root, CheckpointName(prepared.step));
  prepared.parameters_sha256 = ParametersSha256(*state.layout, state.parameters);

  const auto write = [&]() -> absl::Status {
    MUSTER_RETURN_IF_ERROR(CreateDirectoriesDurably(files_, options_.root));
    MUSTER_RETURN_IF_ERROR(files_.RemoveAll(prepared.path));
    MUSTER_RETURN_IF_ERROR(files_.CreateDirectories(prepared.path));
    Manifest manifest{.progress = state.progress,
                      .layout_fingerprint = state.layout->fingerprint(),
                      .parameters_sha256 = prepared.parameters_sha256};
    MUSTER_ASSIGN_OR_RETURN(manifest.files,
                            WriteFiles(files_, prepared.path, state, options_.max_file_bytes));
    for (const CheckpointFile& file : manifest.files) prepared.bytes += file.bytes;
    MUSTER_ASSIGN_OR_RETURN(prepared.manifest, SerializeManifest(manifest));
    prepared.checksum = Sha256Hex(prepared.manifest);
    MUSTER_RETURN_IF_ERROR(files_.SyncDirectory(prepared.path));
    return files_.SyncDirectory(options_.root);
  };
  const absl::Status status = write();
  if (!status.ok()) {
    // Best effort: if it fails as well, a later writer's CleanUp removes the rest.
    files_.RemoveAll(prepared.path).IgnoreError();
    return Annotate(status, absl::StrCat("checkpoint of step ", prepared.step));
  }
  return prepared;
}

absl::StatusOr<CommittedCheckpoint> CheckpointWriter::Commit(const PreparedCheckpoint& prepared) {
  const auto publish = [&]() -> absl::Status {
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
    const absl::Status kept = KeepNewest(files_, options_.root, options_.keep_last);
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
    MUSTER_RETURN_IF_ERROR(Complete(files_, prepared));
    // Onto a directory with content it fails, so that of several writers one succeeds.
    const absl::Status renamed = files_.Rename(prepared.path, prepared.final_path);
    if (!renamed.ok()) {
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
