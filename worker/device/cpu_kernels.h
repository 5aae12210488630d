// Kernels of the CPU backend that are not oneDNN's, on Highway, the best SIMD target chosen at run
// time. Internal to worker/device/; the contracts are those of device.h. Pure functions on the
// calling thread.
#ifndef MUSTER_WORKER_DEVICE_CPU_KERNELS_H_
#define MUSTER_WORKER_DEVICE_CPU_KERNELS_H_

#include <cstdint>

#include "absl/strings/string_view.h"
#include "worker/device/device.h"

namespace muster::internal {

// cpu_elementwise.cc
void AddBias(int64_t rows, int64_t columns, const float* bias, Activation activation,
             float* values);
void BiasGradient(int64_t rows, int64_t columns, const float* gradient, float* bias_gradient);
void Relu(int64_t count, float* values);
void ReluBackward(int64_t count, const float* output, float* gradient);
void Fill(int64_t count, float value, float* y);
void Scale(int64_t count, float alpha, float* y);
void Axpy(int64_t count, float alpha, const float* x, float* y);
const char* SimdTargetName();

// cpu_image.cc
void MaxPoolForward(const MaxPoolShape& shape, const float* input, float* output, uint8_t* winners);
void MaxPoolBackward(const MaxPoolShape& shape, const float* output_gradient,
                     const uint8_t* winners, float* input_gradient);
void TransposeImages(int64_t batch, int64_t pixels, int64_t channels, const float* input,
                     float* output);

// cpu_softmax.cc
SoftmaxLoss SoftmaxCrossEntropy(int64_t batch, int64_t classes, const float* logits,
                                const int32_t* labels, float* gradient);

}  // namespace muster::internal

#endif  // MUSTER_WORKER_DEVICE_CPU_KERNELS_H_
