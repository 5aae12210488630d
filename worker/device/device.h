// A device: memory and the named kernels that models are made of. The one interface behind which
// processors differ.
//
// Memory. Kernels take plain pointers to memory the device can address: its own buffers, and for
// "cpu" any host memory. All matrices are row-major and dense. Images are channels-last: [batch,
// height, width, channels]; convolution weights are [out, in, kernel height, kernel width].
//
// Order. Kernels run in the order of the calls; when a call has returned, the host may read the
// results (a device with its own queue will add a way to wait; the CPU has none).
//
// Numbers. f32. For the same shapes, inputs and options the bits are the same from run to run.
// "Accumulates" means added to what is there.
//
// Errors. RESOURCE_EXHAUSTED if memory is short, INTERNAL if a library refuses; each names the
// kernel and the shape. Shapes and pointers are the caller's duty: wrong ones are bugs.
//
// Not thread-safe: one call at a time, from any thread. Buffers must not outlive the device.
#ifndef MUSTER_WORKER_DEVICE_DEVICE_H_
#define MUSTER_WORKER_DEVICE_DEVICE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace muster {

class Device;

// Device memory, freed with the object. Move-only.
class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  DeviceBuffer(Device* device, void* data, int64_t bytes)
      : device_(device), data_(data), bytes_(bytes) {}
  DeviceBuffer(DeviceBuffer&& other) noexcept { *this = std::move(other); }
  DeviceBuffer& operator=(DeviceBuffer&& other) noexcept;
  ~DeviceBuffer();

  int64_t bytes() const { return bytes_; }
  float* floats() const { return static_cast<float*>(data_); }
  uint8_t* data() const { return static_cast<uint8_t*>(data_); }

 private:
  Device* device_ = nullptr;
  void* data_ = nullptr;
  int64_t bytes_ = 0;
};

enum class Activation : uint8_t { kNone, kRelu };

// c = alpha * op(a) * op(b) + beta * c, where op transposes if asked; op(a) is [m, k], op(b) is
// [k, n], c is [m, n]. With beta 0, c is only written.
struct GemmShape {
  bool transpose_a = false;
  bool transpose_b = false;
  int64_t m = 0;
  int64_t n = 0;
  int64_t k = 0;
};

// Stride 1, zero padding, odd square kernel; the output is as large as the input.
struct ConvolutionShape {
  int64_t batch = 0;
  int64_t height = 0;
  int64_t width = 0;
  int64_t in_channels = 0;
  int64_t out_channels = 0;
  int64_t kernel = 3;
  bool operator==(const ConvolutionShape&) const = default;

  int64_t input_size() const { return batch * height * width * in_channels; }
  int64_t output_size() const { return batch * height * width * out_channels; }
  int64_t weight_size() const { return out_channels * in_channels * kernel * kernel; }
};

// Windows of 2x2 with stride 2; an odd last row or column of the input is dropped.
struct MaxPoolShape {
  int64_t batch = 0;
  int64_t height = 0;  // of the input
  int64_t width = 0;
  int64_t channels = 0;

  int64_t input_size() const { return batch * height * width * channels; }
  int64_t output_size() const { return batch * (height / 2) * (width / 2) * channels; }
};

struct SoftmaxLoss {
  double loss_sum = 0;
  int64_t correct = 0;
};

class Device {
 public:
  virtual ~Device() = default;

  // The registry's name ("cpu"), and a line for people ("cpu: 1 thread, AVX3 kernels, ...").
  virtual absl::string_view name() const = 0;
  virtual std::string Description() const = 0;

  // Zeroed, aligned to 64 bytes.
  virtual absl::StatusOr<DeviceBuffer> Allocate(int64_t bytes) = 0;

  virtual absl::Status Gemm(const GemmShape& shape, float alpha, const float* a, const float* b,
                            float beta, float* c) = 0;

  // values[r, c] = activation(values[r, c] + bias[c]).
  virtual absl::Status AddBias(int64_t rows, int64_t columns, const float* bias,
                               Activation activation, float* values) = 0;
  // Accumulates the sum over rows of gradient[rows, columns].
  virtual absl::Status BiasGradient(int64_t rows, int64_t columns, const float* gradient,
                                    float* bias_gradient) = 0;
  // values[i] = 0 where values[i] < 0; a NaN stays.
  virtual absl::Status Relu(int64_t count, float* values) = 0;
  // gradient[i] = 0 where output[i] is not above 0; `output` is the ReLU's.
  virtual absl::Status ReluBackward(int64_t count, const float* output, float* gradient) = 0;

  // output = convolution(input, weights) + bias.
  virtual absl::Status ConvolutionForward(const ConvolutionShape& shape, const float* input,
                                          const float* weights, const float* bias,
                                          float* output) = 0;
  // Writes input_gradient.
  virtual absl::Status ConvolutionBackwardData(const ConvolutionShape& shape,
                                               const float* output_gradient, const float* weights,
                                               float* input_gradient) = 0;
  // Accumulates weight_gradient. The bias's is BiasGradient over [batch * height * width, out].
  virtual absl::Status ConvolutionBackwardWeights(const ConvolutionShape& shape, const float* input,
                                                  const float* output_gradient,
                                                  float* weight_gradient) = 0;

  // `winners` gets one byte per output element: which of the window's four elements is the largest
  // (the first of equals; a NaN wins), for the way back. It may be null when there is none.
  virtual absl::Status MaxPoolForward(const MaxPoolShape& shape, const float* input, float* output,
                                      uint8_t* winners) = 0;
  // Writes input_gradient.
  virtual absl::Status MaxPoolBackward(const MaxPoolShape& shape, const float* output_gradient,
                                       const uint8_t* winners, float* input_gradient) = 0;

  // output[b, c, p] = input[b, p, c] for p in [0, pixels): channels-last to channels-first. The way
  // back is the same with the two counts exchanged.
  virtual absl::Status TransposeImages(int64_t batch, int64_t pixels, int64_t channels,
                                       const float* input, float* output) = 0;

  // Cross-entropy of softmax(logits[batch, classes]) against labels in [0, classes), summed over
  // the batch, natural logarithm. Writes the sum's gradient to `gradient` unless it is null.
  virtual absl::StatusOr<SoftmaxLoss> SoftmaxCrossEntropy(int64_t batch, int64_t classes,
                                                          const float* logits,
                                                          const int32_t* labels,
                                                          float* gradient) = 0;

  virtual absl::Status Fill(int64_t count, float value, float* y) = 0;   // y = value
  virtual absl::Status Scale(int64_t count, float alpha, float* y) = 0;  // y = alpha * y
  virtual absl::Status Axpy(int64_t count, float alpha, const float* x,
                            float* y) = 0;  // y += alpha x

 protected:
  friend class DeviceBuffer;
  virtual void Free(void* data, int64_t bytes) = 0;
};

}  // namespace muster

#endif  // MUSTER_WORKER_DEVICE_DEVICE_H_
