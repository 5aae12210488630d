#include "worker/device/cpu_convolution.h"

#include <algorithm>
#include <optional>

namespace muster::internal {
namespace {

using dnnl::memory;

// Shapes beyond this push out the one not used for longest.
constexpr size_t kMaxPlans = 32;

memory::desc Describe(const memory::dims& dims, memory::format_tag tag) {
  return memory::desc(dims, memory::data_type::f32, tag);
}

// oneDNN has no const memory; nothing writes to what is passed as an input.
memory Wrap(const memory::desc& desc, const dnnl::engine& engine, const float* data) {
  return memory(desc, engine, const_cast<float*>(data));
}

}  // namespace

// Primitives of one shape, made when first needed, and weights in the formats they want.
struct CpuConvolution::Plan {
  explicit Plan(const ConvolutionShape& s)
      : shape(s),
        input(Describe({s.batch, s.in_channels, s.height, s.width}, memory::format_tag::nhwc)),
        output(Describe({s.batch, s.out_channels, s.height, s.width}, memory::format_tag::nhwc)),
        weights(Describe({s.out_channels, s.in_channels, s.kernel, s.kernel},
                         memory::format_tag::oihw)),
        any_weights(
            Describe({s.out_channels, s.in_channels, s.kernel, s.kernel}, memory::format_tag::any)),
        bias(Describe({s.out_channels}, memory::format_tag::x)),
        padding(2, s.kernel / 2) {}

  dnnl::convolution_forward::primitive_desc ForwardDescription(const dnnl::engine& engine) const {
    return {{dnnl::prop_kind::forward_training, dnnl::algorithm::convolution_direct, input,
             any_weights, bias, output, strides, padding, padding},
            engine};
  }

  ConvolutionShape shape;
  memory::desc input, output, weights, any_weights, bias;
  memory::dims strides = {1, 1};
  memory::dims padding;

  struct Operation {
    dnnl::primitive primitive;
    dnnl::primitive reorder;  // of the weights: in, or out for BackwardWeights
    memory reordered;         // weights as the primitive wants them
  };
  std::optional<Operation> forward, backward_data, backward_weights;
  memory weight_gradient;  // plain
};

CpuConvolution::CpuConvolution(const dnnl::engine& engine, const dnnl::stream& stream)
    : engine_(engine), stream_(stream) {}

CpuConvolution::~CpuConvolution() = default;

CpuConvolution::Plan& CpuConvolution::PlanFor(const ConvolutionShape& shape) {
  const auto found = std::find_if(plans_.begin(), plans_.end(),
                                  [&](const auto& plan) { return plan->shape == shape; });
  if (found != plans_.end()) {
    std::rotate(plans_.begin(), found, found + 1);
  } else {
    plans_.insert(plans_.begin(), std::make_unique<Plan>(shape));
    if (plans_.size() > kMaxPlans) plans_.pop_back();
  }
  return *plans_.front();
}

void CpuConvolution::Forward(const ConvolutionShape& shape, const float* input,
                             const float* weights, const float* bias, float* output) {
  Plan& plan = PlanFor(shape);
  if (!plan.forward) {
    const auto description = plan.ForwardDescription(engine_);
    const memory reordered(description.weights_desc(), engine_);
    plan.forward = {dnnl::convolution_forward(description),
                    dnnl::reorder(memory(plan.weights, engine_, nullptr), reordered), reordered};
  }
  Plan::Operation& operation = *plan.forward;
  operation.reorder.execute(stream_, {{DNNL_ARG_FROM, Wrap(plan.weights, engine_, weights)},
                                      {DNNL_ARG_TO, operation.reordered}});
  operation.primitive.execute(stream_, {{DNNL_ARG_SRC, Wrap(plan.input, engine_, input)},
                                        {DNNL_ARG_WEIGHTS, operation.reordered},
                                        {DNNL_ARG_BIAS, Wrap(plan.bias, engine_, bias)},
                                        {DNNL_ARG_DST, Wrap(plan.output, engine_, output)}});
  stream_.wait();
}

void CpuConvolution::BackwardData(const ConvolutionShape& shape, const float* output_gradient,
                                  const float* weights, float* input_gradient) {
  Plan& plan = PlanFor(shape);
  if (!plan.backward_data) {
    const dnnl::convolution_backward_data::primitive_desc description(
        {dnnl::algorithm::convolution_direct, plan.input, plan.any_weights, plan.output,
         plan.strides, plan.padding, plan.padding},
        engine_, plan.ForwardDescription(engine_));
    const memory reordered(description.weights_desc(), engine_);
    plan.backward_data = {dnnl::convolution_backward_data(description),
                          dnnl::reorder(memory(plan.weights, engine_, nullptr), reordered),
                          reordered};
  }
  Plan::Operation& operation = *plan.backward_data;
  operation.reorder.execute(stream_, {{DNNL_ARG_FROM, Wrap(plan.weights, engine_, weights)},
                                      {DNNL_ARG_TO, operation.reordered}});
  operation.primitive.execute(stream_,
                              {{DNNL_ARG_DIFF_DST, Wrap(plan.output, engine_, output_gradient)},
                               {DNNL_ARG_WEIGHTS, operation.reordered},
                               {DNNL_ARG_DIFF_SRC, Wrap(plan.input, engine_, input_gradient)}});
  stream_.wait();
}

const float* CpuConvolution::BackwardWeights(const ConvolutionShape& shape, const float* input,
                                             const float* output_gradient) {
  Plan& plan = PlanFor(shape);
  if (!plan.backward_weights) {
    const dnnl::convolution_backward_weights::primitive_desc description(
        {dnnl::algorithm::convolution_direct, plan.input, plan.any_weights, plan.output,
         plan.strides, plan.padding, plan.padding},
        engine_, plan.ForwardDescription(engine_));
    const memory reordered(description.diff_weights_desc(), engine_);
    plan.weight_gradient = memory(plan.weights, engine_);
    plan.backward_weights = {dnnl::convolution_backward_weights(description),
                             dnnl::reorder(reordered, plan.weight_gradient), reordered};
  }
  Plan::Operation& operation = *plan.backward_weights;
  operation.primitive.execute(stream_,
                              {{DNNL_ARG_SRC, Wrap(plan.input, engine_, input)},
                               {DNNL_ARG_DIFF_DST, Wrap(plan.output, engine_, output_gradient)},
                               {DNNL_ARG_DIFF_WEIGHTS, operation.reordered}});
  operation.reorder.execute(
      stream_, {{DNNL_ARG_FROM, operation.reordered}, {DNNL_ARG_TO, plan.weight_gradient}});
  stream_.wait();
  return static_cast<const float*>(plan.weight_gradient.get_data_handle());
}

}  // namespace muster::internal
