#include "worker/model/classifier.h"

#include <algorithm>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_format.h"
#include "base/status_macros.h"

namespace muster::internal {

Classifier::Classifier(std::vector<std::unique_ptr<Block>> blocks, Layout layout, Device& device)
    : blocks_(std::move(blocks)), layout_(std::move(layout)), device_(device) {
  MUSTER_CHECK_EQ(layout_.block_count(), static_cast<int>(blocks_.size()));
  for (size_t i = 0; i < blocks_.size(); ++i) {
    if (i > 0) MUSTER_CHECK_EQ(blocks_[i]->input_size(), blocks_[i - 1]->output_size());
    blocks_[i]->Bind(layout_);
  }
  for (size_t i = 0; i < layout_.tensors().size(); ++i) {
    const TensorSpec& spec = layout_.tensors()[i].spec;
    if (spec.also_read_by.empty() || spec.frozen) continue;
    tied_.emplace_back();
    tied_.back().tensor = static_cast<int>(i);
  }
}

absl::Status Classifier::CheckArguments(absl::Span<const float> inputs,
                                        absl::Span<const int32_t> labels) const {
  if (labels.empty()) return absl::InvalidArgumentError("model: the batch is empty");
  const auto samples = static_cast<int64_t>(labels.size());
  if (static_cast<int64_t>(inputs.size()) != samples * features()) {
    return absl::InvalidArgumentError(
        absl::StrFormat("model: expected %d samples of %d features, got %d values", samples,
                        features(), inputs.size()));
  }
  for (int64_t i = 0; i < samples; ++i) {
    if (labels[i] < 0 || labels[i] >= classes()) {
      return absl::InvalidArgumentError(
          absl::StrFormat("model: sample %d of the batch has label %d; expected 0 to %d", i,
                          labels[i], classes() - 1));
    }
  }
  return absl::OkStatus();
}

absl::Status Classifier::Reserve(int64_t batch) {
  if (batch <= capacity_) return absl::OkStatus();
  capacity_ = 0;
  outputs_.resize(blocks_.size());
  int64_t widest = 0;
  for (size_t i = 0; i < blocks_.size(); ++i) {
    MUSTER_RETURN_IF_ERROR(blocks_[i]->Reserve(device_, batch));
    const int64_t size = blocks_[i]->output_size();
    MUSTER_ASSIGN_OR_RETURN(outputs_[i], device_.Allocate(batch * size * sizeof(float)));
    widest = std::max(widest, size);
  }
  for (DeviceBuffer& buffer : gradient_buffers_) {
    MUSTER_ASSIGN_OR_RETURN(buffer, device_.Allocate(batch * widest * sizeof(float)));
  }
  for (Tied& tied : tied_) {
    if (tied.gradient.bytes() > 0) continue;
    const int64_t count = layout_.tensors()[tied.tensor].count;
    MUSTER_ASSIGN_OR_RETURN(tied.gradient, device_.Allocate(count * sizeof(float)));
  }
  capacity_ = batch;
  return absl::OkStatus();
}

absl::Status Classifier::ClearTied() {
  for (const Tied& tied : tied_) {
    MUSTER_RETURN_IF_ERROR(
        device_.Fill(layout_.tensors()[tied.tensor].count, 0, tied.gradient.floats()));
  }
  return absl::OkStatus();
}

absl::StatusOr<BlockGradients> Classifier::GradientsOf(int block, float* own) {
  BlockGradients gradients{.own = own};
  for (const int tensor : layout_.TiedTensors(block)) {
    const auto tied = absl::c_find_if(
        tied_, [tensor](const Tied& candidate) { return candidate.tensor == tensor; });
    gradients.tied.push_back(tied == tied_.end() ? nullptr : tied->gradient.floats());
  }
  const int64_t begin = layout_.RangeOfBlock(block).offset;
  for (const Tied& tied : tied_) {
    const Tensor& tensor = layout_.tensors()[tied.tensor];
    if (tensor.spec.block != block) continue;
    MUSTER_RETURN_IF_ERROR(
        device_.Axpy(tensor.count, 1, tied.gradient.floats(), own + (tensor.offset - begin)));
  }
  return gradients;
}

const float* Classifier::InputOf(size_t index, const float* inputs) const {
  return index == 0 ? inputs : outputs_[index - 1].floats();
}

absl::StatusOr<BlockParameters> Classifier::Forward(BlockMemory& memory, int64_t batch,
                                                    const float* inputs) {
  MUSTER_RETURN_IF_ERROR(Reserve(batch));
  BlockParameters parameters;
  for (size_t i = 0; i < blocks_.size(); ++i) {
    if (i > 0) memory.Release(static_cast<int>(i) - 1);
    MUSTER_ASSIGN_OR_RETURN(parameters, memory.Acquire(static_cast<int>(i)));
    MUSTER_RETURN_IF_ERROR(
        blocks_[i]->Forward(device_, parameters, batch, InputOf(i, inputs), outputs_[i].floats()));
  }
  return parameters;
}

absl::StatusOr<BatchResult> Classifier::ForwardBackward(BlockMemory& memory,
                                                        absl::Span<const float> inputs,
                                                        absl::Span<const int32_t> labels) {
  MUSTER_RETURN_IF_ERROR(CheckArguments(inputs, labels));
  const auto batch = static_cast<int64_t>(labels.size());
  MUSTER_ASSIGN_OR_RETURN(BlockParameters parameters, Forward(memory, batch, inputs.data()));
  MUSTER_RETURN_IF_ERROR(ClearTied());

  float* output_gradient = gradient_buffers_[0].floats();
  float* input_gradient = gradient_buffers_[1].floats();
  MUSTER_ASSIGN_OR_RETURN(const SoftmaxLoss loss,
                          device_.SoftmaxCrossEntropy(batch, classes(), outputs_.back().floats(),
                                                      labels.data(), output_gradient));
  const int last = static_cast<int>(blocks_.size()) - 1;
  const int first = layout_.first_trained_block();
  for (int block = last; block >= 0; --block) {
    const auto i = static_cast<size_t>(block);
    const bool trains = block >= first;
    if (trains && block != last) {
      MUSTER_ASSIGN_OR_RETURN(parameters, memory.Acquire(block));
    }
    MUSTER_ASSIGN_OR_RETURN(float* const own, memory.Gradients(block));
    if (trains) {
      MUSTER_ASSIGN_OR_RETURN(const BlockGradients gradients, GradientsOf(block, own));
      MUSTER_RETURN_IF_ERROR(blocks_[i]->Backward(
          device_, parameters, batch, InputOf(i, inputs.data()), outputs_[i].floats(),
          output_gradient, block == first ? nullptr : input_gradient, gradients));
    }
    MUSTER_RETURN_IF_ERROR(memory.GradientsReady(block));
    if (trains || block == last) memory.Release(block);
    std::swap(output_gradient, input_gradient);
  }
  return BatchResult{.loss_sum = loss.loss_sum, .correct = loss.correct, .samples = batch};
}

absl::StatusOr<BatchResult> Classifier::Evaluate(BlockMemory& memory,
                                                 absl::Span<const float> inputs,
                                                 absl::Span<const int32_t> labels) {
  MUSTER_RETURN_IF_ERROR(CheckArguments(inputs, labels));
  const auto batch = static_cast<int64_t>(labels.size());
  MUSTER_RETURN_IF_ERROR(Forward(memory, batch, inputs.data()).status());
  memory.Release(static_cast<int>(blocks_.size()) - 1);
  MUSTER_ASSIGN_OR_RETURN(const SoftmaxLoss loss,
                          device_.SoftmaxCrossEntropy(batch, classes(), outputs_.back().floats(),
                                                      labels.data(), nullptr));
  return BatchResult{.loss_sum = loss.loss_sum, .correct = loss.correct, .samples = batch};
}

}  // namespace muster::internal
