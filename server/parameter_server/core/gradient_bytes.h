// Values of a push as they came: little-endian f32, f16 or bf16 in pieces of borrowed memory of any
// alignment, cut anywhere (even inside an element). They are added from where they lie.
//
// A view; thread-compatible.
#ifndef MUSTER_SERVER_PARAMETER_SERVER_CORE_GRADIENT_BYTES_H_
#define MUSTER_SERVER_PARAMETER_SERVER_CORE_GRADIENT_BYTES_H_

#include <cstddef>
#include <cstdint>
#include <optional>

#include "absl/container/inlined_vector.h"
#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/dtype.h"

namespace muster {

class GradientBytes {
 public:
  // The memory of `pieces` must outlive the object. INVALID_ARGUMENT: a dtype other than f32, f16
  // and bf16, or bytes that are no whole number of elements.
  static absl::StatusOr<GradientBytes> Create(DType dtype,
                                              absl::Span<const absl::Span<const std::byte>> pieces);
  static GradientBytes OfFloats(absl::Span<const float> values);

  DType dtype() const { return dtype_; }
  int64_t count() const { return count_; }  // elements
  int64_t byte_count() const { return count_ * static_cast<int64_t>(SizeOf(dtype_)); }

  // All of them where they lie, if they are f32, in one piece, and aligned to their size.
  std::optional<absl::Span<const float>> AsFloats() const;

  // target[i] = element `first` + i, or target[i] += it. Requires: these elements exist.
  void CopyTo(int64_t first, absl::Span<float> target) const;
  void AddTo(int64_t first, absl::Span<float> target) const;

  // Index of the first NaN or infinity among elements [first, first + count).
  std::optional<int64_t> FirstNonfinite(int64_t first, int64_t count) const;

 private:
  GradientBytes(DType dtype, absl::Span<const absl::Span<const std::byte>> pieces);

  // Calls visit(at, data, n) for runs of elements that lie together, in order; `at` counts from
  // `first`.
  using Visit = absl::FunctionRef<void(int64_t at, const void* data, int64_t n)>;
  void ForEachRun(int64_t first, int64_t count, Visit visit) const;

  struct Piece {
    int64_t begin = 0;  // in bytes, in the whole
    const std::byte* data = nullptr;
  };
  DType dtype_;
  int64_t count_ = 0;
  absl::InlinedVector<Piece, 8> pieces_;  // none empty
};

}  // namespace muster

#endif  // MUSTER_SERVER_PARAMETER_SERVER_CORE_GRADIENT_BYTES_H_
