#include "worker/runtime/element_buffer.h"

#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/status_macros.h"

namespace muster {

absl::StatusOr<ElementBuffer> ElementBuffer::Allocate(const std::shared_ptr<SharedArena>& arena,
                                                      DType dtype, int64_t count) {
  ElementBuffer buffer;
  buffer.dtype_ = dtype;
  buffer.count_ = count;
  const int64_t bytes = count * static_cast<int64_t>(SizeOf(dtype));
  if (arena == nullptr) {
    buffer.own_ = std::make_unique<std::byte[]>(static_cast<size_t>(bytes));
    buffer.data_ = buffer.own_.get();
    return buffer;
  }
  MUSTER_ASSIGN_OR_RETURN(buffer.shared_, arena->Allocate(bytes));
  buffer.data_ = buffer.shared_.data();
  std::memset(buffer.data_, 0, static_cast<size_t>(bytes));
  return buffer;
}

absl::Span<float> ElementBuffer::floats() const {
  MUSTER_CHECK(empty() || dtype_ == DType::kF32) << Name(dtype_);
  return {reinterpret_cast<float*>(data_), static_cast<size_t>(count_)};
}

absl::Span<uint16_t> ElementBuffer::halves() const {
  MUSTER_CHECK(empty() || IsHalfPrecision(dtype_)) << Name(dtype_);
  return {reinterpret_cast<uint16_t*>(data_), static_cast<size_t>(count_)};
}

absl::Status ElementBuffer::Renew() {
  return shared_.data() == nullptr ? absl::OkStatus() : shared_.Renew();
}

}  // namespace muster
