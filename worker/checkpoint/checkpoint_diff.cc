#include "worker/checkpoint/checkpoint_diff.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/float16.h"
#include "base/status_macros.h"
#include "worker/checkpoint/checkpoint_reader.h"
#include "worker/checkpoint/safetensors.h"
#include "worker/checkpoint/verified_file.h"

namespace muster {
namespace {

constexpr int64_t kPieceBytes = int64_t{1} << 20;

using TensorInfo = SafetensorsReader::TensorInfo;
using TensorKey = std::pair<CheckpointFileKind, std::string>;

// A checkpoint and where its tensors lie.
struct OpenTensors {
  Checkpoint checkpoint;
  std::vector<std::unique_ptr<SafetensorsReader>> readers;
  struct Place {
    const SafetensorsReader* reader;
    const TensorInfo* info;
  };
  std::map<TensorKey, Place> places;
  std::vector<TensorKey> order;  // parameters first
};

absl::Status AddFile(FileSystem& files, const CheckpointFile& file, OpenTensors* open) {
  const std::string path = JoinPath(open->checkpoint.path, file.name);
  MUSTER_ASSIGN_OR_RETURN(std::unique_ptr<ReadableFile> verified,
                          VerifiedFile::Open(files, path, file));
  MUSTER_ASSIGN_OR_RETURN(SafetensorsReader reader,
                          SafetensorsReader::Open(std::move(verified), path));
  open->readers.push_back(std::make_unique<SafetensorsReader>(std::move(reader)));
  const SafetensorsReader& kept = *open->readers.back();
  std::vector<std::pair<int64_t, TensorKey>> in_file;
  for (const auto& [name, info] : kept.tensors()) {
    const TensorKey key(file.kind, name);
    if (!open->places.emplace(key, OpenTensors::Place{&kept, &info}).second) {
      return absl::DataLossError(
          absl::StrCat(path, ": tensor \"", name, "\" is in another file of the checkpoint, too"));
    }
    in_file.emplace_back(info.offset, key);
  }
  std::sort(in_file.begin(), in_file.end());
  for (auto& [offset, key] : in_file) open->order.push_back(std::move(key));
  return absl::OkStatus();
}

absl::StatusOr<OpenTensors> OpenAll(FileSystem& files, const std::string& path) {
  OpenTensors open;
  MUSTER_ASSIGN_OR_RETURN(open.checkpoint, OpenCheckpoint(files, path));
  for (const CheckpointFileKind kind :
       {CheckpointFileKind::kParameters, CheckpointFileKind::kOptimizer}) {
    for (const CheckpointFile& file : open.checkpoint.manifest.files) {
      if (file.kind == kind) MUSTER_RETURN_IF_ERROR(AddFile(files, file, &open));
    }
  }
  return open;
}

template <typename T>
T Load(const char* bytes) {
  T value;
  std::memcpy(&value, bytes, sizeof value);
  return value;
}

uint64_t BitsAt(const char* bytes, size_t size) {
  uint64_t bits = 0;
  std::memcpy(&bits, bytes, size);
  return bits;
}

double ValueAt(const char* bytes, DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return Load<float>(bytes);
    case DType::kF64:
      return Load<double>(bytes);
    case DType::kF16:
      return F16ToF32(Load<uint16_t>(bytes));
    case DType::kBF16:
      return BF16ToF32(Load<uint16_t>(bytes));
    case DType::kI32:
      return Load<int32_t>(bytes);
    case DType::kI64:
      return static_cast<double>(Load<int64_t>(bytes));
    case DType::kU8:
      return Load<uint8_t>(bytes);
  }
  return 0;
}

std::vector<int64_t> IndexOf(int64_t element, const std::vector<int64_t>& shape) {
  std::vector<int64_t> index(shape.size());
  for (size_t i = shape.size(); i-- > 0;) {
    index[i] = element % shape[i];
    element /= shape[i];
  }
  return index;
}

// Counts what differs in a piece that begins with element `begin`.
void ComparePiece(const std::vector<char>& first, const std::vector<char>& second, DType dtype,
                  int64_t begin, TensorDifference* difference) {
  if (std::memcmp(first.data(), second.data(), first.size()) == 0) return;
  const size_t size = SizeOf(dtype);
  for (size_t at = 0; at < first.size(); at += size) {
    const char* const a = first.data() + at;
    const char* const b = second.data() + at;
    if (std::memcmp(a, b, size) == 0) continue;
    const std::array<double, 2> values = {ValueAt(a, dtype), ValueAt(b, dtype)};
    if (difference->differing++ == 0) {
      difference->first = begin + static_cast<int64_t>(at / size);
      difference->bits = {BitsAt(a, size), BitsAt(b, size)};
      difference->values = values;
    }
    const double apart = std::abs(values[0] - values[1]);
    if (!std::isfinite(apart)) difference->largest = NAN;
    // A NaN stays.
    if (apart > difference->largest) difference->largest = apart;
  }
}

absl::Status CompareValues(const OpenTensors::Place& first, const OpenTensors::Place& second,
                           TensorDifference* difference) {
  const DType dtype = first.info->dtype;
  const auto size = static_cast<int64_t>(SizeOf(dtype));
  difference->elements = first.info->bytes / size;
  std::vector<char> pieces[2];
  for (int64_t offset = 0; offset < first.info->bytes; offset += kPieceBytes) {
    for (auto& piece : pieces) {
      piece.resize(static_cast<size_t>(std::min(kPieceBytes, first.info->bytes - offset)));
    }
    MUSTER_RETURN_IF_ERROR(first.reader->ReadFrom(*first.info, offset, absl::MakeSpan(pieces[0])));
    MUSTER_RETURN_IF_ERROR(
        second.reader->ReadFrom(*second.info, offset, absl::MakeSpan(pieces[1])));
    ComparePiece(pieces[0], pieces[1], dtype, offset / size, difference);
  }
  if (difference->differing > 0) difference->index = IndexOf(difference->first, first.info->shape);
  return absl::OkStatus();
}

TensorForm FormOf(const TensorInfo& info) { return {info.dtype, info.shape}; }

}  // namespace

absl::StatusOr<CheckpointDifference> CompareCheckpoints(FileSystem& files, const std::string& first,
                                                        const std::string& second) {
  MUSTER_ASSIGN_OR_RETURN(const OpenTensors a, OpenAll(files, first));
  MUSTER_ASSIGN_OR_RETURN(const OpenTensors b, OpenAll(files, second));
  CheckpointDifference result;
  result.paths = {first, second};
  result.steps = {a.checkpoint.manifest.progress.step, b.checkpoint.manifest.progress.step};
  for (const TensorKey& key : a.order) {
    TensorDifference difference{.name = key.second, .kind = key.first};
    const OpenTensors::Place& here = a.places.at(key);
    difference.forms[0] = FormOf(*here.info);
    const auto there = b.places.find(key);
    if (there != b.places.end()) difference.forms[1] = FormOf(*there->second.info);
    const bool comparable = difference.forms[0] == difference.forms[1];
    if (comparable) {
      const absl::Status compared = CompareValues(here, there->second, &difference);
      if (!compared.ok()) return Annotate(compared, absl::StrCat("tensor \"", key.second, "\""));
      result.elements += difference.elements;
    }
    if (!comparable || difference.differing > 0) {
      result.differences.push_back(std::move(difference));
    }
  }
  result.tensors = static_cast<int64_t>(a.order.size());
  for (const TensorKey& key : b.order) {
    if (a.places.count(key) > 0) continue;
    ++result.tensors;
    TensorDifference difference{.name = key.second, .kind = key.first};
    difference.forms[1] = FormOf(*b.places.at(key).info);
    result.differences.push_back(std::move(difference));
  }
  return result;
}

}  // namespace muster
