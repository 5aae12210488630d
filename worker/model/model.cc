#include "worker/model/model.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "state/parameter_groups.h"
#include "worker/model/classifier.h"
#include "worker/model/convolution_block.h"
#include "worker/model/linear_block.h"

namespace muster {
namespace {

using Blocks = std::vector<std::unique_ptr<internal::Block>>;

// Appends fc1, fc2, ...: ReLU after each hidden one. `tied`: between hidden layers i and i + 1 lies
// fc(i + 1), and what lies in its place from the other end has its transpose.
void AppendLinear(int64_t input, const std::vector<int64_t>& hidden, int64_t classes, bool tied,
                  Blocks& blocks) {
  const auto count = static_cast<int>(hidden.size());
  for (int i = 0; i < count; ++i) {
    const int mirror = count - i;
    const bool transposes = tied && mirror < i;
    blocks.push_back(std::make_unique<internal::LinearBlock>(
        absl::StrCat("fc", i + 1), input, hidden[static_cast<size_t>(i)], Activation::kRelu,
        transposes ? absl::StrCat("fc", mirror + 1) : ""));
    input = hidden[static_cast<size_t>(i)];
  }
  blocks.push_back(std::make_unique<internal::LinearBlock>(absl::StrCat("fc", count + 1), input,
                                                           classes, Activation::kNone));
}

Blocks MakeMlp(const MlpConfig& config) {
  Blocks blocks;
  AppendLinear(config.input, config.hidden, config.classes, config.tie_weights, blocks);
  return blocks;
}

Blocks MakeCnn(const CnnConfig& config) {
  Blocks blocks;
  internal::ConvolutionBlockShape shape{.height = config.height,
                                        .width = config.width,
                                        .in_channels = config.channels,
                                        .channels_first_input = true};
  for (size_t i = 0; i < config.conv_channels.size(); ++i) {
    shape.out_channels = config.conv_channels[i];
    shape.channels_first_output = i + 1 == config.conv_channels.size();
    blocks.push_back(
        std::make_unique<internal::ConvolutionBlock>(absl::StrCat("conv", i + 1), shape));
    shape = {
        .height = shape.height / 2, .width = shape.width / 2, .in_channels = shape.out_channels};
  }
  AppendLinear(blocks.back()->output_size(), {config.hidden}, config.classes, /*tied=*/false,
               blocks);
  return blocks;
}

Blocks MakeBlocks(const ModelConfig& config) {
  if (const auto* mlp = std::get_if<MlpConfig>(&config.architecture)) return MakeMlp(*mlp);
  return MakeCnn(std::get<CnnConfig>(config.architecture));
}

absl::StatusOr<Layout> LayoutOf(const Blocks& blocks, const ModelConfig& config) {
  std::vector<TensorSpec> tensors;
  for (size_t i = 0; i < blocks.size(); ++i) {
    blocks[i]->DescribeParameters(static_cast<int>(i), tensors);
  }
  MUSTER_RETURN_IF_ERROR(ApplyParameterGroups(config.groups, absl::MakeSpan(tensors)));
  return Layout::Create(std::move(tensors), config.bucket_elements);
}

}  // namespace

absl::StatusOr<BatchResult> Model::ForwardBackward(absl::Span<const float> parameters,
                                                   absl::Span<const float> inputs,
                                                   absl::Span<const int32_t> labels,
                                                   absl::Span<float> gradients,
                                                   GradientReadyHook on_block_done) {
  MUSTER_CHECK_EQ(static_cast<int64_t>(parameters.size()), layout().padded_count());
  MUSTER_CHECK_EQ(static_cast<int64_t>(gradients.size()), layout().padded_count());
  FlatMemory memory(layout(), parameters, gradients, on_block_done);
  return ForwardBackward(memory, inputs, labels);
}

absl::StatusOr<BatchResult> Model::Evaluate(absl::Span<const float> parameters,
                                            absl::Span<const float> inputs,
                                            absl::Span<const int32_t> labels) {
  MUSTER_CHECK_EQ(static_cast<int64_t>(parameters.size()), layout().padded_count());
  const auto never = [](int) { return absl::OkStatus(); };
  FlatMemory memory(layout(), parameters, {}, never);
  return Evaluate(memory, inputs, labels);
}

absl::StatusOr<Layout> CreateModelLayout(const ModelConfig& config) {
  MUSTER_RETURN_IF_ERROR(Validate(config));
  return LayoutOf(MakeBlocks(config), config);
}

absl::StatusOr<std::unique_ptr<Model>> CreateModel(const ModelConfig& config, Device& device) {
  MUSTER_RETURN_IF_ERROR(Validate(config));
  Blocks blocks = MakeBlocks(config);
  MUSTER_ASSIGN_OR_RETURN(Layout layout, LayoutOf(blocks, config));
  return std::make_unique<internal::Classifier>(std::move(blocks), std::move(layout), device);
}

}  // namespace muster
