#include "worker/checkpoint/manifest.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/sha256.h"
#include "base/status_macros.h"
#include "base/text.h"
#include "worker/checkpoint/json.h"

namespace muster {
namespace {

using Json = nlohmann::json;

constexpr int kIndent = 2;
constexpr int kCheckDigits = 8;

const char* KindName(CheckpointFileKind kind) {
  switch (kind) {
    case CheckpointFileKind::kParameters:
      return "parameters";
    case CheckpointFileKind::kOptimizer:
      return "optimizer";
    case CheckpointFileKind::kIndex:
      return "index";
  }
  return "";
}

std::string Hex(uint64_t value) { return absl::StrFormat("%016x", value); }

// The bytes that "checksum" is over: any change of them, other than of white space, changes the
// parsed value and so this text.
absl::StatusOr<std::string> ChecksumOf(const Json& body, absl::string_view what) {
  MUSTER_ASSIGN_OR_RETURN(const std::string text, SerializeJson(body, what));
  return Sha256Hex(text);
}

absl::StatusOr<uint64_t> ParseFingerprint(const Json& root, const std::string& key,
                                          const std::string& path) {
  MUSTER_ASSIGN_OR_RETURN(const std::string text, JsonString(root, key, path));
  uint64_t value = 0;
  if (text.size() != 16 || !absl::SimpleHexAtoi(text, &value)) {
    return absl::DataLossError(absl::StrCat(
        path, ": member \"", key, "\": expected 16 hexadecimal digits, got \"", text, "\""));
  }
  return value;
}

absl::StatusOr<CheckpointFile> ParseFile(const Json& entry, const std::string& path) {
  const std::string what = absl::StrCat(path, ": entry of \"files\"");
  CheckpointFile file;
  MUSTER_ASSIGN_OR_RETURN(file.name, JsonString(entry, "name", what));
  // The name is joined to a directory: it must not lead out of it.
  if (file.name.empty() || file.name == "." || file.name == ".." ||
      file.name.find('/') != std::string::npos || file.name.find('\0') != std::string::npos) {
    return absl::DataLossError(absl::StrCat(
        what, ": expected the name of a file in this directory, got \"", file.name, "\""));
  }
  MUSTER_ASSIGN_OR_RETURN(const std::string kind, JsonString(entry, "kind", what));
  bool known = false;
  for (const CheckpointFileKind candidate :
       {CheckpointFileKind::kParameters, CheckpointFileKind::kOptimizer,
        CheckpointFileKind::kIndex}) {
    if (kind == KindName(candidate)) {
      file.kind = candidate;
      known = true;
    }
  }
  if (!known) return absl::DataLossError(absl::StrCat(what, ": unknown kind \"", kind, "\""));
  MUSTER_ASSIGN_OR_RETURN(file.bytes, JsonCount(entry, "bytes", what));
  MUSTER_ASSIGN_OR_RETURN(file.sha256, JsonString(entry, "sha256", what));
  MUSTER_ASSIGN_OR_RETURN(const std::string checks, JsonString(entry, "crc32c", what));
  const int64_t blocks = file.kind == CheckpointFileKind::kIndex
                             ? 0
                             : file.bytes / kCheckedBytes + (file.bytes % kCheckedBytes != 0);
  if (static_cast<int64_t>(checks.size()) / kCheckDigits != blocks ||
      checks.size() % kCheckDigits != 0) {
    return absl::DataLossError(absl::StrCat(what, ": \"crc32c\": expected ", kCheckDigits,
                                            " digits for each of ", blocks, " MiB"));
  }
  for (size_t at = 0; at < checks.size(); at += kCheckDigits) {
    uint32_t check = 0;
    if (!absl::SimpleHexAtoi(checks.substr(at, kCheckDigits), &check)) {
      return absl::DataLossError(absl::StrCat(what, ": \"crc32c\": expected hexadecimal digits"));
    }
    file.crc32c.push_back(check);
  }
  return file;
}

std::string ChecksText(const CheckpointFile& file) {
  std::string text;
  for (const uint32_t check : file.crc32c) absl::StrAppendFormat(&text, "%08x", check);
  return text;
}

absl::StatusOr<TensorDigests> ParseTensors(const Json& root, const std::string& path) {
  const auto tensors = root.find("tensors");
  if (tensors == root.end() || !tensors->is_object()) {
    return absl::DataLossError(absl::StrCat(path, ": expected an object \"tensors\""));
  }
  TensorDigests digests;
  for (const auto& [name, digest] : tensors->items()) {
    if (!digest.is_string()) {
      return absl::DataLossError(
          absl::StrCat(path, ": tensor \"", name, "\": expected its SHA-256"));
    }
    digests[name] = digest.get<std::string>();
  }
  return digests;
}

}  // namespace

absl::StatusOr<std::string> SerializeManifest(const Manifest& manifest) {
  constexpr absl::string_view kWhat = "checkpoint manifest";
  const TrainingProgress& progress = manifest.progress;
  Json root = {
      {"format", Manifest::kFormatVersion},
      {"step", progress.step},
      {"branch", progress.branch},
      {"epoch", progress.epoch},
      {"update_count", progress.update_count},
      {"nonfinite_in_row", progress.nonfinite_in_row},
      {"seed", progress.seed},
      {"job", progress.job},
      {"job_fingerprint", Hex(progress.job_fingerprint)},
      {"layout_fingerprint", Hex(manifest.layout_fingerprint)},
      {"parameters_sha256", manifest.ParametersSha256()},
      {"tensors", manifest.tensors},
      {"files", Json::array()},
  };
  for (const CheckpointFile& file : manifest.files) {
    root["files"].push_back({{"name", file.name},
                             {"kind", KindName(file.kind)},
                             {"bytes", file.bytes},
                             {"sha256", file.sha256},
                             {"crc32c", ChecksText(file)}});
  }
  MUSTER_ASSIGN_OR_RETURN(root["checksum"], ChecksumOf(root, kWhat));
  MUSTER_ASSIGN_OR_RETURN(const std::string text, SerializeJson(root, kWhat, kIndent));
  return text + "\n";
}

namespace {

absl::StatusOr<Manifest> Parse(absl::string_view text, const std::string& path) {
  MUSTER_ASSIGN_OR_RETURN(Json root, ParseJson(text, path));
  MUSTER_ASSIGN_OR_RETURN(const std::string checksum, JsonString(root, "checksum", path));
  root.erase("checksum");
  MUSTER_ASSIGN_OR_RETURN(const std::string computed, ChecksumOf(root, path));
  if (checksum != computed) {
    return absl::DataLossError(absl::StrCat(path, ": the manifest is corrupt: it states checksum ",
                                            checksum, ", its contents have ", computed));
  }
  MUSTER_ASSIGN_OR_RETURN(const int64_t format, JsonCount(root, "format", path));
  if (format != Manifest::kFormatVersion) {
    return absl::FailedPreconditionError(
        absl::StrCat(path, ": checkpoint format ", format, ", this program reads format ",
                     Manifest::kFormatVersion, "; use the version of Muster that wrote it"));
  }
  Manifest manifest;
  TrainingProgress& progress = manifest.progress;
  MUSTER_ASSIGN_OR_RETURN(progress.step, JsonCount(root, "step", path));
  MUSTER_ASSIGN_OR_RETURN(progress.branch, JsonUint64(root, "branch", path));
  MUSTER_ASSIGN_OR_RETURN(progress.epoch, JsonUint64(root, "epoch", path));
  MUSTER_ASSIGN_OR_RETURN(progress.update_count, JsonCount(root, "update_count", path));
  MUSTER_ASSIGN_OR_RETURN(progress.nonfinite_in_row, JsonCount(root, "nonfinite_in_row", path));
  MUSTER_ASSIGN_OR_RETURN(progress.seed, JsonUint64(root, "seed", path));
  MUSTER_ASSIGN_OR_RETURN(progress.job, JsonString(root, "job", path));
  MUSTER_ASSIGN_OR_RETURN(progress.job_fingerprint,
                          ParseFingerprint(root, "job_fingerprint", path));
  MUSTER_ASSIGN_OR_RETURN(manifest.layout_fingerprint,
                          ParseFingerprint(root, "layout_fingerprint", path));
  MUSTER_ASSIGN_OR_RETURN(manifest.tensors, ParseTensors(root, path));
  MUSTER_ASSIGN_OR_RETURN(const std::string parameters_sha256,
                          JsonString(root, "parameters_sha256", path));
  if (parameters_sha256 != manifest.ParametersSha256()) {
    return absl::DataLossError(
        absl::StrCat(path, ": \"parameters_sha256\" is not that of \"tensors\""));
  }
  const auto files = root.find("files");
  if (files == root.end() || !files->is_array()) {
    return absl::DataLossError(absl::StrCat(path, ": expected an array \"files\""));
  }
  std::set<std::string> names;
  for (const Json& entry : *files) {
    MUSTER_ASSIGN_OR_RETURN(CheckpointFile file, ParseFile(entry, path));
    if (!names.insert(file.name).second) {
      return absl::DataLossError(absl::StrCat(path, ": file \"", file.name, "\" is repeated"));
    }
    manifest.files.push_back(std::move(file));
  }
  return manifest;
}

}  // namespace

absl::StatusOr<Manifest> MergeParts(absl::Span<const Manifest> parts) {
  Manifest whole = parts.front();
  for (const Manifest& part : parts.subspan(1)) {
    if (part.progress != whole.progress || part.layout_fingerprint != whole.layout_fingerprint) {
      return absl::FailedPreconditionError(absl::StrFormat(
          "the parts of a checkpoint are of different states: step %d of branch %d, epoch %d, and "
          "step %d of branch %d, epoch %d",
          whole.progress.step, whole.progress.branch, whole.progress.epoch, part.progress.step,
          part.progress.branch, part.progress.epoch));
    }
    whole.tensors.insert(part.tensors.begin(), part.tensors.end());
    whole.files.insert(whole.files.end(), part.files.begin(), part.files.end());
  }
  // As one writer would have written them.
  const auto place = [](const CheckpointFile& file) {
    return file.kind == CheckpointFileKind::kParameters ? 0
           : file.kind == CheckpointFileKind::kIndex    ? 1
                                                        : 2;
  };
  std::stable_sort(
      whole.files.begin(), whole.files.end(),
      [&](const CheckpointFile& a, const CheckpointFile& b) { return place(a) < place(b); });
  return whole;
}

absl::StatusOr<Manifest> ParseManifest(absl::string_view text, const std::string& path) {
  absl::StatusOr<Manifest> manifest = Parse(text, path);
  if (!manifest.ok()) return StatusForPeople(manifest.status());  // it may quote the file
  return manifest;
}

}  // namespace muster
