#include "server/rpc/job_files.h"

#include <zlib.h>

#include <algorithm>
#include <array>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/sha256.h"
#include "base/status_macros.h"

namespace muster {
namespace {

using Json = nlohmann::json;

constexpr size_t kIdxHeaderBytes = 8;  // magic and the first dimension
constexpr int64_t kMaxManifestBytes = 16 << 20;
constexpr size_t kReadBytes = 1 << 20;

// The first bytes of a gzip stream.
absl::StatusOr<std::string> Inflate(absl::string_view compressed, size_t count,
                                    const std::string& path) {
  z_stream stream = {};
  constexpr int kGzipOnly = 16 + MAX_WBITS;
  if (inflateInit2(&stream, kGzipOnly) != Z_OK) return absl::InternalError("zlib cannot start");
  const std::unique_ptr<z_stream, int (*)(z_stream*)> owner(&stream, &inflateEnd);
  std::string out(count, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(compressed.data()));
  stream.avail_in = static_cast<uInt>(compressed.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  inflate(&stream, Z_SYNC_FLUSH);
  if (stream.avail_out != 0) {
    return absl::InvalidArgumentError(
        absl::StrFormat("%s: is a gzip file that is corrupt or too short for an IDX header", path));
  }
  return out;
}

// What this needs of a manifest; its full form is the worker's.
struct ManifestSummary {
  StateTag tag;
  std::string parameters_sha256;
  struct File {
    std::string name;
    int64_t bytes = 0;
    std::string sha256;
  };
  std::vector<File> files;
};

absl::StatusOr<ManifestSummary> ReadManifest(FileSystem& files, const std::string& path) {
  MUSTER_ASSIGN_OR_RETURN(const std::string text, ReadFile(files, path, kMaxManifestBytes));
  Json root = Json::parse(text, /*cb=*/nullptr, /*allow_exceptions=*/false);
  const auto bad = [&](absl::string_view what) {
    return absl::DataLossError(absl::StrCat(path, ": ", what));
  };
  if (!root.is_object()) return bad("is no JSON object");
  try {
    ManifestSummary manifest;
    const std::string checksum = root.at("checksum").get<std::string>();
    root.erase("checksum");
    if (Sha256Hex(root.dump()) != checksum) return bad("does not match its checksum");
    manifest.tag.step = root.at("step").get<int64_t>();
    manifest.tag.branch = root.at("branch").get<uint64_t>();
    manifest.tag.epoch = root.at("epoch").get<uint64_t>();
    manifest.parameters_sha256 = root.at("parameters_sha256").get<std::string>();
    for (const Json& entry : root.at("files")) {
      ManifestSummary::File file{.name = entry.at("name").get<std::string>(),
                                 .bytes = entry.at("bytes").get<int64_t>(),
                                 .sha256 = entry.at("sha256").get<std::string>()};
      if (file.name.empty() || absl::StrContains(file.name, '/') || file.name == "..") {
        return bad("names a file outside its directory");
      }
      manifest.files.push_back(std::move(file));
    }
    if (manifest.tag.step < 0 || manifest.tag.step > kMaxJobSteps) return bad("has no valid step");
    return manifest;
  } catch (const Json::exception& error) {
    return bad(error.what());
  }
}

absl::Status VerifyFile(FileSystem& files, const std::string& path,
                        const ManifestSummary::File& expected) {
  MUSTER_ASSIGN_OR_RETURN(const std::unique_ptr<ReadableFile> file, files.Open(path));
  if (file->size() != expected.bytes) {
    return absl::DataLossError(absl::StrFormat("%s: has %d bytes, the manifest says %d", path,
                                               file->size(), expected.bytes));
  }
  Sha256 digest;
  std::vector<char> buffer(kReadBytes);
  for (int64_t offset = 0; offset < expected.bytes;) {
    MUSTER_ASSIGN_OR_RETURN(const size_t got, file->ReadAt(offset, absl::MakeSpan(buffer)));
    if (got == 0) return absl::DataLossError(absl::StrCat(path, ": has become shorter"));
    digest.Update(absl::string_view(buffer.data(), got));
    offset += static_cast<int64_t>(got);
  }
  if (digest.HexDigest() != expected.sha256) {
    return absl::DataLossError(absl::StrCat(path, ": does not match the manifest's checksum"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<int64_t> CountIdxItems(FileSystem& files, const std::string& path) {
  MUSTER_ASSIGN_OR_RETURN(const std::unique_ptr<ReadableFile> file, files.Open(path));
  // Enough for a gzip header with a file name and the first block.
  std::array<char, 4096> buffer;
  MUSTER_ASSIGN_OR_RETURN(const size_t got, file->ReadAt(0, absl::MakeSpan(buffer)));
  std::string head(buffer.data(), got);
  if (absl::StartsWith(head, "\x1f\x8b")) {
    MUSTER_ASSIGN_OR_RETURN(head, Inflate(head, kIdxHeaderBytes, path));
  }
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(head[i]); };
  if (head.size() < kIdxHeaderBytes || byte(0) != 0 || byte(1) != 0 || byte(2) != 0x08 ||
      byte(3) == 0) {
    return absl::InvalidArgumentError(
        absl::StrFormat("%s: is no IDX file of unsigned bytes", path));
  }
  return int64_t{byte(4)} << 24 | int64_t{byte(5)} << 16 | int64_t{byte(6)} << 8 | byte(7);
}

absl::StatusOr<ResumePoint> FindResumePoint(FileSystem& files, const std::string& directory) {
  ResumePoint result;
  MUSTER_ASSIGN_OR_RETURN(const bool exists, files.Exists(directory));
  if (!exists) return result;
  MUSTER_ASSIGN_OR_RETURN(const std::vector<std::string> names, files.ListDirectory(directory));
  struct Candidate {
    std::string path;
    ManifestSummary manifest;
  };
  std::vector<Candidate> candidates;
  for (const std::string& name : names) {
    if (!absl::StartsWith(name, "step-")) continue;
    const std::string path = JoinPath(directory, name);
    absl::StatusOr<ManifestSummary> manifest = ReadManifest(files, JoinPath(path, "manifest.json"));
    if (manifest.ok()) {
      candidates.push_back({path, *std::move(manifest)});
    } else {
      result.warnings.emplace_back(manifest.status().message());
    }
  }
  std::sort(candidates.begin(), candidates.end(),
            [](const Candidate& a, const Candidate& b) { return a.manifest.tag > b.manifest.tag; });
  for (const Candidate& candidate : candidates) {
    absl::Status intact;
    for (const ManifestSummary::File& file : candidate.manifest.files) {
      if (intact.ok()) intact = VerifyFile(files, JoinPath(candidate.path, file.name), file);
    }
    if (intact.ok()) {
      result.newest = CheckpointReport{.tag = candidate.manifest.tag,
                                       .path = candidate.path,
                                       .checksum = candidate.manifest.parameters_sha256};
      return result;
    }
    result.warnings.emplace_back(intact.message());
  }
  return result;
}

absl::StatusOr<ResolvedJob> ResolveJobFiles(FileSystem& files, const JobSpec& spec) {
  ResolvedJob job;
  int64_t samples = 0;
  if (spec.training.steps == 0) {
    absl::StatusOr<int64_t> count = CountIdxItems(files, spec.data.train_images);
    if (!count.ok()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "training.epochs: the coordinator cannot read the number of samples (",
          count.status().message(),
          "); make data.idx.train_images readable for it, or give training.steps instead"));
    }
    samples = *count;
  }
  MUSTER_ASSIGN_OR_RETURN(job.total_steps, ResolveSteps(spec, samples));
  if (spec.checkpoints.resume) {
    absl::StatusOr<ResumePoint> resume = FindResumePoint(files, spec.checkpoints.directory);
    if (!resume.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("checkpoints.directory: the coordinator cannot look for a checkpoint: ",
                       resume.status().message()));
    }
    job.resume = *std::move(resume);
    if (job.resume.newest && job.resume.newest->tag.step >= job.total_steps) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "checkpoints.resume: %s holds step %d already, the job has %d steps; give more steps or "
          "another directory",
          job.resume.newest->path, job.resume.newest->tag.step, job.total_steps));
    }
  }
  return job;
}

}  // namespace muster
