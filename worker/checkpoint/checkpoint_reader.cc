#include "worker/checkpoint/checkpoint_reader.h"

#include <algorithm>
#include <map>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/check.h"
#include "base/sha256.h"
#include "base/status_macros.h"
#include "worker/checkpoint/checkpoint_directory.h"
#include "worker/checkpoint/safetensors.h"
#include "worker/checkpoint/verified_file.h"

namespace muster {
namespace {

constexpr int64_t kMaxManifestBytes = int64_t{64} << 20;
constexpr size_t kReadBytes = size_t{1} << 20;

// Whether an error says that the bytes on disk are wrong, rather than that this process may not or
// cannot read them at present.
bool IsTorn(const absl::Status& status) {
  return absl::IsDataLoss(status) || absl::IsNotFound(status) || absl::IsOutOfRange(status) ||
         absl::IsInvalidArgument(status) || absl::IsUnavailable(status);
}

absl::StatusOr<Manifest> ReadManifest(FileSystem& files, const std::string& checkpoint_path) {
  const std::string path = JoinPath(checkpoint_path, kManifestName);
  MUSTER_ASSIGN_OR_RETURN(const std::string text, ReadFile(files, path, kMaxManifestBytes));
  return ParseManifest(text, path);
}

absl::Status VerifyFile(FileSystem& files, const std::string& path,
                        const CheckpointFile& expected) {
  MUSTER_ASSIGN_OR_RETURN(const std::unique_ptr<ReadableFile> file, files.Open(path));
  MUSTER_RETURN_IF_ERROR(VerifiedFile::CheckSize(*file, path, expected));
  Sha256 hash;
  std::vector<char> buffer(kReadBytes);
  for (int64_t offset = 0; offset < expected.bytes;) {
    MUSTER_ASSIGN_OR_RETURN(const size_t count, file->ReadAt(offset, absl::MakeSpan(buffer)));
    if (count == 0) return absl::DataLossError(absl::StrCat(path, ": shrank while it was read"));
    hash.Update(absl::string_view(buffer.data(), count));
    offset += static_cast<int64_t>(count);
  }
  const std::string digest = hash.HexDigest();
  if (digest != expected.sha256) {
    return absl::DataLossError(absl::StrCat(path, ": corrupt: expected SHA-256 ", expected.sha256,
                                            " as the manifest says, got ", digest));
  }
  return absl::OkStatus();
}

// A tensor that must be in the checkpoint, and where it goes.
struct Target {
  const Tensor* tensor;
  const PieceSink* take = nullptr;  // null while only checking
};

// Hands out what `ranges` hold of a tensor.
absl::Status ReadPieces(const SafetensorsReader& reader, const SafetensorsReader::TensorInfo& found,
                        const Tensor& tensor, absl::Span<const Range> ranges,
                        const PieceSink& take) {
  std::vector<float> values;
  for (const Range& range : ranges) {
    const int64_t end = std::min(range.end(), tensor.offset + tensor.count);
    for (int64_t offset = std::max(range.offset, tensor.offset); offset < end;) {
      const int64_t count =
          std::min(end - offset, static_cast<int64_t>(kReadBytes / sizeof(float)));
      values.resize(static_cast<size_t>(count));
      MUSTER_RETURN_IF_ERROR(reader.ReadFrom(
          found, (offset - tensor.offset) * static_cast<int64_t>(sizeof(float)),
          absl::MakeSpan(reinterpret_cast<char*>(values.data()), values.size() * sizeof(float))));
      take(offset, values);
      offset += count;
    }
  }
  return absl::OkStatus();
}

// Finds every target, by name, in the files of `kind`, and nothing but targets. Reads what `ranges`
// hold of them.
absl::Status Match(FileSystem& files, const Checkpoint& checkpoint, CheckpointFileKind kind,
                   std::map<std::string, Target> targets, absl::Span<const Range> ranges) {
  for (const CheckpointFile& file : checkpoint.manifest.files) {
    if (file.kind != kind) continue;
    const std::string path = JoinPath(checkpoint.path, file.name);
    MUSTER_ASSIGN_OR_RETURN(std::unique_ptr<ReadableFile> verified,
                            VerifiedFile::Open(files, path, file));
    MUSTER_ASSIGN_OR_RETURN(const SafetensorsReader reader,
                            SafetensorsReader::Open(std::move(verified), path));
    for (const auto& [name, found] : reader.tensors()) {
      const auto target = targets.find(name);
      if (target == targets.end()) {
        return absl::FailedPreconditionError(
            absl::StrCat(reader.path(), ": tensor \"", name,
                         "\" is not one that the job expects, or comes twice"));
      }
      const Tensor& tensor = *target->second.tensor;
      if (found.dtype != DType::kF32 || found.shape != tensor.spec.shape) {
        return absl::FailedPreconditionError(absl::StrCat(
            reader.path(), ": tensor \"", name, "\": expected f32 of shape (",
            absl::StrJoin(tensor.spec.shape, ", "), "), got ", std::string(Name(found.dtype)),
            " of shape (", absl::StrJoin(found.shape, ", "), ")"));
      }
      if (target->second.take != nullptr) {
        const absl::Status read = ReadPieces(reader, found, tensor, ranges, *target->second.take);
        if (!read.ok()) return Annotate(read, absl::StrCat("tensor \"", name, "\""));
      }
      targets.erase(target);
    }
  }
  if (!targets.empty()) {
    return absl::FailedPreconditionError(absl::StrCat(checkpoint.path, ": tensor \"",
                                                      targets.begin()->first, "\" is missing (",
                                                      targets.size(), " missing in all)"));
  }
  return absl::OkStatus();
}

absl::Status CheckBelongs(FileSystem& files, const Checkpoint& checkpoint, const Layout& layout,
                          std::optional<uint64_t> job_fingerprint) {
  const uint64_t found = checkpoint.manifest.progress.job_fingerprint;
  if (job_fingerprint.has_value() && found != *job_fingerprint) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "%s is a checkpoint of another job: expected job fingerprint %016x, got %016x; give this "
        "job a checkpoint directory of its own, or the job description it was started with",
        checkpoint.path, *job_fingerprint, found));
  }
  std::map<std::string, Target> targets;
  for (const Tensor& tensor : layout.tensors()) targets[tensor.spec.name] = {&tensor};
  return Match(files, checkpoint, CheckpointFileKind::kParameters, std::move(targets), {});
}

// Checkpoints of a step beyond `newest` that a worker set aside because it was alone with it.
absl::Status WarnOfUnsealed(FileSystem& files, const std::string& root, Step newest,
                            std::vector<std::string>* warnings) {
  MUSTER_ASSIGN_OR_RETURN(const bool exists, files.Exists(root));
  if (!exists) return absl::OkStatus();
  MUSTER_ASSIGN_OR_RETURN(const std::vector<std::string> names, files.ListDirectory(root));
  for (const std::string& name : names) {
    const std::optional<Step> step = StepOfUnsealedName(name);
    if (!step.has_value() || *step <= newest) continue;
    warnings->push_back(absl::StrCat(
        "checkpoint ", JoinPath(root, name),
        " is passed over: its worker set it aside, since no other was known to hold this state or "
        "another job had taken the directory over; to go on from it, rename it to ",
        CheckpointName(*step)));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckSize(FileSystem& files, const std::string& directory,
                       const CheckpointFile& expected) {
  return VerifiedFile::Open(files, JoinPath(directory, expected.name), expected).status();
}

absl::StatusOr<Checkpoint> OpenCheckpoint(FileSystem& files, const std::string& path) {
  MUSTER_ASSIGN_OR_RETURN(Manifest manifest, ReadManifest(files, path));
  for (const CheckpointFile& file : manifest.files) {
    MUSTER_RETURN_IF_ERROR(CheckSize(files, path, file));
  }
  return Checkpoint{path, std::move(manifest)};
}

absl::StatusOr<Checkpoint> VerifyCheckpoint(FileSystem& files, const std::string& path) {
  MUSTER_ASSIGN_OR_RETURN(Manifest manifest, ReadManifest(files, path));
  for (const CheckpointFile& file : manifest.files) {
    MUSTER_RETURN_IF_ERROR(VerifyFile(files, JoinPath(path, file.name), file));
  }
  return Checkpoint{path, std::move(manifest)};
}

absl::StatusOr<std::vector<ListedCheckpoint>> ListCheckpoints(FileSystem& files,
                                                              const std::string& root,
                                                              std::vector<std::string>* warnings) {
  const auto warn = [&](const std::string& path, absl::string_view reason) {
    if (warnings != nullptr) {
      warnings->push_back(absl::StrCat("checkpoint ", path, " is passed over: ", reason));
    }
  };
  std::vector<ListedCheckpoint> checkpoints;
  MUSTER_ASSIGN_OR_RETURN(const bool exists, files.Exists(root));
  if (!exists) return checkpoints;
  MUSTER_ASSIGN_OR_RETURN(const std::vector<std::string> names, files.ListDirectory(root));
  for (const std::string& name : names) {
    std::optional<Step> step = StepOfCheckpointName(name);
    if (!step.has_value()) {
      // Set aside by a writer that died before it put another in its place.
      step = StepOfReplacedName(name);
      if (step.has_value() &&
          std::binary_search(names.begin(), names.end(), CheckpointName(*step))) {
        continue;
      }
    }
    if (!step.has_value()) continue;
    const std::string path = JoinPath(root, name);
    absl::StatusOr<Manifest> manifest = ReadManifest(files, path);
    if (!manifest.ok()) {
      if (!IsTorn(manifest.status())) return manifest.status();
      warn(path, manifest.status().message());
    } else if (manifest->progress.step != *step) {
      warn(path, absl::StrCat("its manifest is of step ", manifest->progress.step));
    } else {
      checkpoints.push_back({path, *std::move(manifest)});
    }
  }
  std::sort(checkpoints.begin(), checkpoints.end(), [](const auto& a, const auto& b) {
    const TrainingProgress& left = a.manifest.progress;
    const TrainingProgress& right = b.manifest.progress;
    return std::pair(left.branch, left.step) > std::pair(right.branch, right.step);
  });
  return checkpoints;
}

std::vector<ListedCheckpoint> ListSetAside(FileSystem& files, const std::string& root, Step step) {
  std::vector<ListedCheckpoint> found;
  const auto names = files.ListDirectory(root);
  if (!names.ok()) return found;
  for (const std::string& name : *names) {
    if (StepOfUnsealedName(name) != step) continue;
    absl::StatusOr<Manifest> manifest = ReadManifest(files, JoinPath(root, name));
    if (manifest.ok()) found.push_back({JoinPath(root, name), *std::move(manifest)});
  }
  return found;
}

int64_t BytesBeingKept(FileSystem& files, const std::string& root, Step step) {
  int64_t bytes = 0;
  const auto names = files.ListDirectory(root);
  if (!names.ok()) return bytes;
  for (const std::string& name : *names) {
    if (StepOfAloneName(name) != step) continue;
    const auto parts = files.ListDirectory(JoinPath(root, name));
    if (!parts.ok()) continue;  // published or removed just now
    for (const std::string& part : *parts) {
      const auto file = files.Open(JoinPath(JoinPath(root, name), part));
      if (file.ok()) bytes += (*file)->size() + 1;  // an empty one is a sign, too
    }
  }
  return bytes;
}

absl::StatusOr<FoundCheckpoint> FindNewestCheckpoint(FileSystem& files, const std::string& root,
                                                     const Layout& layout,
                                                     std::optional<uint64_t> job_fingerprint) {
  std::vector<std::string> warnings;
  MUSTER_ASSIGN_OR_RETURN(const std::vector<ListedCheckpoint> listed,
                          ListCheckpoints(files, root, &warnings));
  for (const ListedCheckpoint& candidate : listed) {
    absl::StatusOr<Checkpoint> checkpoint = VerifyCheckpoint(files, candidate.path);
    if (!checkpoint.ok()) {
      if (!IsTorn(checkpoint.status())) return checkpoint.status();
      warnings.push_back(absl::StrCat("checkpoint ", candidate.path,
                                      " is passed over: ", checkpoint.status().message()));
      continue;
    }
    MUSTER_RETURN_IF_ERROR(CheckBelongs(files, *checkpoint, layout, job_fingerprint));
    MUSTER_RETURN_IF_ERROR(
        WarnOfUnsealed(files, root, checkpoint->manifest.progress.step, &warnings));
    return FoundCheckpoint{*std::move(checkpoint), std::move(warnings)};
  }
  if (warnings.empty()) {
    MUSTER_RETURN_IF_ERROR(WarnOfUnsealed(files, root, -1, &warnings));
    return absl::NotFoundError(absl::StrCat("no complete checkpoint in ", root,
                                            warnings.empty() ? "" : ": ",
                                            absl::StrJoin(warnings, "; ")));
  }
  return absl::DataLossError(absl::StrCat("checkpoints.directory: nothing in ", root,
                                          " can be resumed from: ", absl::StrJoin(warnings, "; "),
                                          "; move it away to start anew"));
}

absl::Status LoadParameters(FileSystem& files, const Checkpoint& checkpoint, const Layout& layout,
                            absl::Span<const Range> ranges, const PieceSink& take) {
  std::map<std::string, Target> targets;
  for (const Tensor& tensor : layout.tensors()) targets[tensor.spec.name] = {&tensor, &take};
  return Match(files, checkpoint, CheckpointFileKind::kParameters, std::move(targets), ranges);
}

absl::Status LoadOptimizer(FileSystem& files, const Checkpoint& checkpoint, const Layout& layout,
                           absl::Span<const Range> ranges,
                           absl::Span<const OptimizerSlotDestination> slots) {
  std::map<std::string, Target> targets;
  for (const OptimizerSlotDestination& slot : slots) {
    for (const Tensor& tensor : layout.tensors()) {
      if (tensor.spec.frozen) continue;
      targets[absl::StrCat(tensor.spec.name, ".", slot.name)] = {&tensor, &slot.take};
    }
  }
  return Match(files, checkpoint, CheckpointFileKind::kOptimizer, std::move(targets), ranges);
}

}  // namespace muster
