// Convolutions of the CPU backend on oneDNN. Internal to worker/device/.
//
// oneDNN compiles a primitive for each shape, which takes milliseconds; they are kept here. Weights
// come and go as [out, in, kernel, kernel] and are reordered to what the primitive wants. Not
// thread-safe. oneDNN's exceptions pass through (dnnl::error).
#ifndef MUSTER_WORKER_DEVICE_CPU_CONVOLUTION_H_
#define MUSTER_WORKER_DEVICE_CPU_CONVOLUTION_H_

#include <memory>
#include <vector>

#include <dnnl.hpp>

#include "worker/device/device.h"

namespace muster::internal {

class CpuConvolution {
 public:
  CpuConvolution(const dnnl::engine& engine, const dnnl::stream& stream);
  ~CpuConvolution();

  void Forward(const ConvolutionShape& shape, const float* input, const float* weights,
               const float* bias, float* output);
  void BackwardData(const ConvolutionShape& shape, const float* output_gradient,
                    const float* weights, float* input_gradient);
  // The result stays valid until the next call for the same shape: [weight_size()].
  const float* BackwardWeights(const ConvolutionShape& shape, const float* input,
                               const float* output_gradient);

 private:
  struct Plan;
  Plan& PlanFor(const ConvolutionShape& shape);

  dnnl::engine engine_;
  dnnl::stream stream_;
  // Most recently used first; a job has a handful of shapes.
  std::vector<std::unique_ptr<Plan>> plans_;
};

}  // namespace muster::internal

#endif  // MUSTER_WORKER_DEVICE_CPU_CONVOLUTION_H_
