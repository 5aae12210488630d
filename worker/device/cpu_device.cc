#include "worker/device/cpu_device.h"

#include <cstdlib>
#include <cstring>
#include <string>

#include <omp.h>
#include <unistd.h>
#include <dnnl.hpp>

#include "absl/strings/str_format.h"
#include "worker/device/cpu_convolution.h"
#include "worker/device/cpu_kernels.h"

namespace muster {
namespace {

constexpr int kMaxThreads = 1024;
constexpr int64_t kBufferAlignment = 64;

absl::Status DnnlError(absl::string_view kernel, absl::string_view shape, dnnl_status_t status,
                       absl::string_view message) {
  const std::string text =
      absl::StrFormat("cpu device: %s of %s: oneDNN status %d: %s", kernel, shape, status, message);
  return status == dnnl_out_of_memory ? absl::ResourceExhaustedError(text)
                                      : absl::InternalError(text);
}

// Linux grants more memory than there is and kills who touches it; asking for more than this must
// be refused beforehand.
int64_t PhysicalMemoryBytes() {
  return int64_t{sysconf(_SC_PHYS_PAGES)} * int64_t{sysconf(_SC_PAGESIZE)};
}

std::string ToString(const ConvolutionShape& shape) {
  return absl::StrFormat("[%d, %d, %d, %d] to %d channels, kernel %d", shape.batch, shape.height,
                         shape.width, shape.in_channels, shape.out_channels, shape.kernel);
}

class CpuDevice final : public Device {
 public:
  explicit CpuDevice(const CpuDeviceOptions& options)
      : threads_(options.threads),
        engine_(dnnl::engine::kind::cpu, 0),
        stream_(engine_),
        convolution_(engine_, stream_) {}

  absl::string_view name() const override { return "cpu"; }

  std::string Description() const override {
    const dnnl_version_t* version = dnnl_version();
    return absl::StrFormat("cpu: %d thread%s, oneDNN %d.%d.%d, Highway %s", threads_,
                           threads_ == 1 ? "" : "s", version->major, version->minor, version->patch,
                           internal::SimdTargetName());
  }

  absl::StatusOr<DeviceBuffer> Allocate(int64_t bytes) override {
    if (bytes == 0) return DeviceBuffer();
    const int64_t memory = PhysicalMemoryBytes();
    if (bytes < 0 || bytes > memory) {
      return absl::ResourceExhaustedError(absl::StrFormat(
          "cpu device: a buffer of %d bytes is more than the machine's memory of %d", bytes,
          memory));
    }
    const int64_t rounded = (bytes + kBufferAlignment - 1) / kBufferAlignment * kBufferAlignment;
    void* data = std::aligned_alloc(kBufferAlignment, rounded);
    if (data == nullptr) {
      return absl::ResourceExhaustedError(
          absl::StrFormat("cpu device: cannot allocate a buffer of %d bytes", bytes));
    }
    std::memset(data, 0, rounded);
    return DeviceBuffer(this, data, bytes);
  }

  absl::Status Gemm(const GemmShape& shape, float alpha, const float* a, const float* b, float beta,
                    float* c) override {
    UseThreads();
    const dnnl_status_t status =
        dnnl_sgemm(shape.transpose_a ? 'T' : 'N', shape.transpose_b ? 'T' : 'N', shape.m, shape.n,
                   shape.k, alpha, a, shape.transpose_a ? shape.m : shape.k, b,
                   shape.transpose_b ? shape.k : shape.n, beta, c, shape.n);
    if (status == dnnl_success) return absl::OkStatus();
    return DnnlError("GEMM", absl::StrFormat("[%d, %d, %d]", shape.m, shape.n, shape.k), status,
                     "sgemm failed");
  }

  absl::Status AddBias(int64_t rows, int64_t columns, const float* bias, Activation activation,
                       float* values) override {
    internal::AddBias(rows, columns, bias, activation, values);
    return absl::OkStatus();
  }

  absl::Status BiasGradient(int64_t rows, int64_t columns, const float* gradient,
                            float* bias_gradient) override {
    internal::BiasGradient(rows, columns, gradient, bias_gradient);
    return absl::OkStatus();
  }

  absl::Status Relu(int64_t count, float* values) override {
    internal::Relu(count, values);
    return absl::OkStatus();
  }

  absl::Status ReluBackward(int64_t count, const float* output, float* gradient) override {
    internal::ReluBackward(count, output, gradient);
    return absl::OkStatus();
  }

  absl::Status ConvolutionForward(const ConvolutionShape& shape, const float* input,
                                  const float* weights, const float* bias, float* output) override {
    return Convolve("forward convolution", shape,
                    [&] { convolution_.Forward(shape, input, weights, bias, output); });
  }

  absl::Status ConvolutionBackwardData(const ConvolutionShape& shape, const float* output_gradient,
                                       const float* weights, float* input_gradient) override {
    return Convolve("backward convolution (data)", shape, [&] {
      convolution_.BackwardData(shape, output_gradient, weights, input_gradient);
    });
  }

  absl::Status ConvolutionBackwardWeights(const ConvolutionShape& shape, const float* input,
                                          const float* output_gradient,
                                          float* weight_gradient) override {
    return Convolve("backward convolution (weights)", shape, [&] {
      internal::Axpy(shape.weight_size(), 1,
                     convolution_.BackwardWeights(shape, input, output_gradient), weight_gradient);
    });
  }

  absl::Status MaxPoolForward(const MaxPoolShape& shape, const float* input, float* output,
                              uint8_t* winners) override {
    internal::MaxPoolForward(shape, input, output, winners);
    return absl::OkStatus();
  }

  absl::Status MaxPoolBackward(const MaxPoolShape& shape, const float* output_gradient,
                               const uint8_t* winners, float* input_gradient) override {
    internal::MaxPoolBackward(shape, output_gradient, winners, input_gradient);
    return absl::OkStatus();
  }

  absl::Status TransposeImages(int64_t batch, int64_t pixels, int64_t channels, const float* input,
                               float* output) override {
    internal::TransposeImages(batch, pixels, channels, input, output);
    return absl::OkStatus();
  }

  absl::StatusOr<SoftmaxLoss> SoftmaxCrossEntropy(int64_t batch, int64_t classes,
                                                  const float* logits, const int32_t* labels,
                                                  float* gradient) override {
    return internal::SoftmaxCrossEntropy(batch, classes, logits, labels, gradient);
  }

  absl::Status Fill(int64_t count, float value, float* y) override {
    internal::Fill(count, value, y);
    return absl::OkStatus();
  }

  absl::Status Scale(int64_t count, float alpha, float* y) override {
    internal::Scale(count, alpha, y);
    return absl::OkStatus();
  }

  absl::Status Axpy(int64_t count, float alpha, const float* x, float* y) override {
    internal::Axpy(count, alpha, x, y);
    return absl::OkStatus();
  }

 protected:
  void Free(void* data, int64_t) override { std::free(data); }

 private:
  // oneDNN goes by the calling thread's OpenMP setting, both when it builds a primitive and when it
  // runs one; they must be the same.
  void UseThreads() const { omp_set_num_threads(threads_); }

  template <class Body>
  absl::Status Convolve(absl::string_view kernel, const ConvolutionShape& shape, Body&& body) {
    UseThreads();
    try {
      body();
      return absl::OkStatus();
    } catch (const dnnl::error& error) {
      return DnnlError(kernel, ToString(shape), error.status, error.what());
    }
  }

  const int threads_;
  dnnl::engine engine_;
  dnnl::stream stream_;
  internal::CpuConvolution convolution_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Device>> CreateCpuDevice(const CpuDeviceOptions& options) {
  if (options.threads < 1 || options.threads > kMaxThreads) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "device.cpu.threads: expected 1 to %d, got %d", kMaxThreads, options.threads));
  }
  try {
    return std::make_unique<CpuDevice>(options);
  } catch (const dnnl::error& error) {
    return DnnlError("set-up", "the engine", error.status, error.what());
  }
}

}  // namespace muster
