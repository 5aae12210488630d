#include "worker/runtime/float_buffer.h"

#include <algorithm>
#include <utility>

#include "base/status_macros.h"

namespace muster {

absl::StatusOr<FloatBuffer> FloatBuffer::Allocate(const std::shared_ptr<SharedArena>& arena,
                                                  int64_t count) {
  FloatBuffer buffer;
  if (arena == nullptr) {
    buffer.own_.resize(static_cast<size_t>(count));
    buffer.span_ = absl::MakeSpan(buffer.own_);
    return buffer;
  }
  MUSTER_ASSIGN_OR_RETURN(buffer.shared_,
                          arena->Allocate(count * static_cast<int64_t>(sizeof(float))));
  buffer.span_ = {reinterpret_cast<float*>(buffer.shared_.data()), static_cast<size_t>(count)};
  std::fill(buffer.span_.begin(), buffer.span_.end(), 0.0f);
  return buffer;
}

absl::Status FloatBuffer::Renew() {
  return shared_.data() == nullptr ? absl::OkStatus() : shared_.Renew();
}

}  // namespace muster
