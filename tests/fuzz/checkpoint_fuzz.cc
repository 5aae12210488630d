// The files of a checkpoint: its manifest, and safetensors.
#include "base/check.h"
#include "base/sha256.h"
#include "nlohmann/json.hpp"
#include "tests/fuzz/memory_file_system.h"
#include "tests/fuzz/targets.h"
#include "worker/checkpoint/manifest.h"
#include "worker/checkpoint/safetensors.h"

namespace muster {
namespace {

using absl::StatusCode;

FuzzOutcome ParseOne(absl::string_view text) {
  const absl::StatusOr<Manifest> manifest = ParseManifest(text, "manifest");
  if (!manifest.ok()) {
    return Refused(manifest.status(), {StatusCode::kDataLoss, StatusCode::kFailedPrecondition});
  }
  for (const CheckpointFile& file : manifest->files) {
    MUSTER_CHECK(!file.name.empty() && file.name != ".." &&
                 file.name.find('/') == std::string::npos);
    MUSTER_CHECK(file.bytes >= 0) << file.bytes;
  }
  MUSTER_CHECK(manifest->progress.step >= 0) << manifest->progress.step;
  const absl::StatusOr<std::string> again = SerializeManifest(*manifest);
  MUSTER_CHECK(again.ok()) << again.status().ToString();
  MUSTER_CHECK(ParseManifest(*again, "again").value() == *manifest);
  return FuzzOutcome::kAccepted;
}

FuzzOutcome RunManifest(absl::string_view text) {
  const FuzzOutcome outcome = ParseOne(text);
  // Behind the checksum, which no fuzzer guesses.
  nlohmann::json root = nlohmann::json::parse(text.begin(), text.end(), nullptr,
                                              /*allow_exceptions=*/false);
  if (outcome == FuzzOutcome::kAccepted || !root.is_object()) return outcome;
  root.erase("checksum");
  root["checksum"] = Sha256Hex(root.dump());
  return ParseOne(root.dump());
}

std::vector<std::string> ManifestSeeds() {
  const Manifest manifest = {
      .progress = {.step = 100,
                   .branch = 2,
                   .epoch = 7,
                   .update_count = 98,
                   .nonfinite_in_row = 1,
                   .seed = 42,
                   .job = "name: \"x\"\n",
                   .job_fingerprint = 0xff},
      .layout_fingerprint = 0x123,
      .tensors = {{"w", "abc"}},
      .files = {{"model.safetensors", CheckpointFileKind::kParameters, 10, "d", {1}},
                {"model.safetensors.index.json", CheckpointFileKind::kIndex, 11, "e", {}},
                {"optimizer.safetensors", CheckpointFileKind::kOptimizer, 12, "f", {2}}}};
  return {SerializeManifest(manifest).value()};
}

FuzzOutcome RunSafetensors(absl::string_view bytes) {
  const int64_t size = static_cast<int64_t>(bytes.size());
  MemoryFileSystem files({{"file", std::string(bytes)}});
  const absl::StatusOr<SafetensorsReader> reader = SafetensorsReader::Open(files, "file");
  if (!reader.ok()) {
    return Refused(reader.status(), {StatusCode::kDataLoss, StatusCode::kInvalidArgument});
  }
  for (const auto& [name, tensor] : reader->tensors()) {
    MUSTER_CHECK(tensor.offset >= 8 && tensor.bytes >= 0 && tensor.offset <= size &&
                 tensor.bytes <= size - tensor.offset);
    std::string data(static_cast<size_t>(tensor.bytes), '\0');
    MUSTER_CHECK(reader->Read(tensor, absl::MakeSpan(data)).ok());
    MUSTER_CHECK(data == bytes.substr(static_cast<size_t>(tensor.offset), data.size()));
  }
  return FuzzOutcome::kAccepted;
}

// The format, written by hand: the writer needs a disk.
std::string SafetensorsFile(std::string header, absl::string_view data) {
  header.resize((header.size() + 7) / 8 * 8, ' ');
  std::string file(8, '\0');
  for (size_t i = 0; i < 8; ++i) file[i] = static_cast<char>(header.size() >> (8 * i) & 0xff);
  return file + header + std::string(data);
}

std::vector<std::string> SafetensorsSeeds() {
  return {SafetensorsFile("{}", ""),
          SafetensorsFile(R"({"__metadata__":{"format":"pt"},)"
                          R"("b":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
                          R"("e":{"dtype":"U8","shape":[0],"data_offsets":[8,8]},)"
                          R"("w":{"dtype":"BF16","shape":[2,1],"data_offsets":[8,12]}})",
                          "0123456789ab")};
}

}  // namespace

const FuzzTarget kManifestTarget = {"manifest", RunManifest, ManifestSeeds, 4'096};
const FuzzTarget kSafetensorsTarget = {"safetensors", RunSafetensors, SafetensorsSeeds, 4'096};

}  // namespace muster
