#include "server/parameter_server/core/gradient_bytes.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "collectives/reduce/finite.h"
#include "collectives/reduce/half.h"
#include "collectives/reduce/reduce.h"

namespace muster {
namespace {

// Elements that are widened at a time before they are added: 8 KiB of stack.
constexpr int64_t kBlock = 2048;

void CopyRun(DType dtype, const void* data, absl::Span<float> target) {
  if (dtype == DType::kF32) {
    std::memcpy(target.data(), data, target.size() * sizeof(float));
  } else {
    WidenHalf(dtype, static_cast<const uint16_t*>(data), target.data(),
              static_cast<int64_t>(target.size()));
  }
}

void AddRun(DType dtype, const void* data, absl::Span<float> target) {
  const auto count = static_cast<int64_t>(target.size());
  if (dtype == DType::kF32) {
    ReduceInto(DType::kF32, ReduceOp::kSum, target.data(), target.data(), data, count);
    return;
  }
  std::array<float, kBlock> widened;
  const auto* const halves = static_cast<const std::byte*>(data);
  for (int64_t i = 0; i < count; i += kBlock) {
    const int64_t n = std::min(kBlock, count - i);
    WidenHalf(dtype, reinterpret_cast<const uint16_t*>(halves + i * 2), widened.data(), n);
    ReduceInto(DType::kF32, ReduceOp::kSum, target.data() + i, target.data() + i, widened.data(),
               n);
  }
}

}  // namespace

absl::StatusOr<GradientBytes> GradientBytes::Create(
    DType dtype, absl::Span<const absl::Span<const std::byte>> pieces) {
  if (dtype != DType::kF32 && !IsHalfPrecision(dtype)) {
    return absl::InvalidArgumentError(
        absl::StrCat("dtype: expected f32, f16 or bf16, got ", Name(dtype)));
  }
  int64_t bytes = 0;
  for (const auto& piece : pieces) bytes += static_cast<int64_t>(piece.size());
  const auto size = static_cast<int64_t>(SizeOf(dtype));
  if (bytes % size != 0) {
    return absl::InvalidArgumentError(absl::StrCat("values: expected whole elements of ", size,
                                                   " bytes (", Name(dtype), "), got ", bytes,
                                                   " bytes"));
  }
  return GradientBytes(dtype, pieces);
}

GradientBytes GradientBytes::OfFloats(absl::Span<const float> values) {
  const absl::Span<const std::byte> piece(reinterpret_cast<const std::byte*>(values.data()),
                                          values.size() * sizeof(float));
  return GradientBytes(DType::kF32, {&piece, 1});
}

GradientBytes::GradientBytes(DType dtype, absl::Span<const absl::Span<const std::byte>> pieces)
    : dtype_(dtype) {
  int64_t bytes = 0;
  for (const auto& piece : pieces) {
    if (piece.empty()) continue;
    pieces_.push_back({.begin = bytes, .data = piece.data()});
    bytes += static_cast<int64_t>(piece.size());
  }
  count_ = bytes / static_cast<int64_t>(SizeOf(dtype));
}

std::optional<absl::Span<const float>> GradientBytes::AsFloats() const {
  if (dtype_ != DType::kF32 || pieces_.size() != 1 ||
      reinterpret_cast<uintptr_t>(pieces_[0].data) % alignof(float) != 0) {
    return std::nullopt;
  }
  return absl::Span<const float>(reinterpret_cast<const float*>(pieces_[0].data),
                                 static_cast<size_t>(count_));
}

void GradientBytes::CopyTo(int64_t first, absl::Span<float> target) const {
  ForEachRun(first, static_cast<int64_t>(target.size()),
             [&](int64_t at, const void* data, int64_t n) {
               CopyRun(dtype_, data, target.subspan(at, n));
             });
}

void GradientBytes::AddTo(int64_t first, absl::Span<float> target) const {
  ForEachRun(first, static_cast<int64_t>(target.size()),
             [&](int64_t at, const void* data, int64_t n) {
               AddRun(dtype_, data, target.subspan(at, n));
             });
}

std::optional<int64_t> GradientBytes::FirstNonfinite(int64_t first, int64_t count) const {
  std::optional<int64_t> found;
  ForEachRun(first, count, [&](int64_t at, const void* data, int64_t n) {
    if (found.has_value()) return;
    const std::optional<int64_t> index = muster::FirstNonfinite(dtype_, data, n);
    if (index.has_value()) found = first + at + *index;
  });
  return found;
}

void GradientBytes::ForEachRun(int64_t first, int64_t count, Visit visit) const {
  MUSTER_CHECK(first >= 0 && count >= 0 && count <= count_ - first)
      << count << " elements from " << first << " on, of " << count_;
  const auto size = static_cast<int64_t>(SizeOf(dtype_));
  const int64_t total = count_ * size;
  // The piece that element `first` begins in.
  auto piece = std::upper_bound(pieces_.begin(), pieces_.end(), first * size,
                                [](int64_t byte, const Piece& p) { return byte < p.begin; });
  for (int64_t at = 0; at < count;) {
    const int64_t byte = (first + at) * size;
    while (piece != pieces_.end() && piece->begin <= byte) ++piece;
    const Piece& current = *(piece - 1);
    const int64_t end = piece == pieces_.end() ? total : piece->begin;
    const int64_t whole = std::min((end - byte) / size, count - at);
    if (whole > 0) {
      visit(at, current.data + (byte - current.begin), whole);
      at += whole;
      continue;
    }
    // An element that lies in several pieces.
    std::array<std::byte, sizeof(float)> element;
    auto from = piece;
    for (int64_t i = 0; i < size; ++i) {
      while (from != pieces_.end() && from->begin <= byte + i) ++from;
      element[i] = (from - 1)->data[byte + i - (from - 1)->begin];
    }
    visit(at, element.data(), 1);
    ++at;
  }
}

}  // namespace muster
