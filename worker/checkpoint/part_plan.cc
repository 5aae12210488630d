#include "worker/checkpoint/part_plan.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/check.h"

namespace muster {
namespace {

// By where the middle of the tensor lies, which rises from tensor to tensor.
int PartOf(const Layout& layout, const Tensor& tensor, int count) {
  const double middle = static_cast<double>(tensor.offset) + static_cast<double>(tensor.count) / 2;
  const double share = middle / static_cast<double>(layout.padded_count());
  return std::min(count - 1, static_cast<int>(share * count));
}

class FileCutter {
 public:
  FileCutter(CheckpointFileKind kind, int64_t max_file_bytes)
      : kind_(kind), max_file_bytes_(max_file_bytes) {}

  void Add(int part, PlannedTensor tensor) {
    const int64_t bytes = tensor.tensor->count * static_cast<int64_t>(sizeof(float));
    if (files_.empty() || files_.back().part != part || file_bytes_ + bytes > max_file_bytes_) {
      files_.push_back({.kind = kind_, .part = part});
      file_bytes_ = 0;
    }
    file_bytes_ += bytes;
    files_.back().tensors.push_back(std::move(tensor));
  }

  // Appends the files, with their names.
  void Finish(absl::string_view prefix, std::vector<PlannedFile>* out) {
    for (size_t i = 0; i < files_.size(); ++i) {
      files_[i].name = absl::StrFormat("%s-%05d-of-%05d.safetensors", prefix, i + 1, files_.size());
      out->push_back(std::move(files_[i]));
    }
  }

 private:
  const CheckpointFileKind kind_;
  const int64_t max_file_bytes_;
  int64_t file_bytes_ = 0;
  std::vector<PlannedFile> files_;
};

}  // namespace

std::vector<Range> RangesOfParts(const Layout& layout, int count) {
  MUSTER_CHECK_GE(count, 1);
  // Where each part begins: at the first tensor of it or of a later one. Padding goes with what is
  // before it.
  std::vector<int64_t> begins(static_cast<size_t>(count) + 1, layout.padded_count());
  int next = 0;
  for (const Tensor& tensor : layout.tensors()) {
    const int part = PartOf(layout, tensor, count);
    for (; next <= part; ++next) begins[static_cast<size_t>(next)] = tensor.offset;
  }
  begins[0] = 0;
  std::vector<Range> ranges;
  for (size_t part = 0; part < static_cast<size_t>(count); ++part) {
    ranges.push_back({begins[part], begins[part + 1] - begins[part]});
  }
  return ranges;
}

std::vector<PlannedFile> PlanFiles(const Layout& layout, absl::Span<const std::string> slots,
                                   int count, int64_t max_file_bytes) {
  MUSTER_CHECK_GE(count, 1);
  MUSTER_CHECK_GE(max_file_bytes, 1);
  FileCutter parameters(CheckpointFileKind::kParameters, max_file_bytes);
  FileCutter optimizer(CheckpointFileKind::kOptimizer, max_file_bytes);
  for (const Tensor& tensor : layout.tensors()) {
    const int part = PartOf(layout, tensor, count);
    parameters.Add(part, {&tensor, 0, tensor.spec.name});
    if (tensor.spec.frozen) continue;
    for (size_t slot = 0; slot < slots.size(); ++slot) {
      optimizer.Add(part, {&tensor, static_cast<int>(slot) + 1,
                           absl::StrCat(tensor.spec.name, ".", slots[slot])});
    }
  }
  std::vector<PlannedFile> files;
  parameters.Finish("model", &files);
  optimizer.Finish("optimizer", &files);
  return files;
}

}  // namespace muster
