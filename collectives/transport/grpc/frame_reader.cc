#include "collectives/transport/grpc/frame_reader.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/status_macros.h"

namespace muster {
namespace {

// What is copied for a consumer at once: stays in a core's nearest caches.
constexpr size_t kStagedBytes = 64 << 10;
static_assert(kStagedBytes <= StagingBuffer::kBytes);

}  // namespace

absl::StatusOr<bool> FrameReader::Begin() {
  received_ = 0;
  current_ = receives_->Take(header_.tag);
  if (current_.has_value()) {
    if (current_->length != header_.length) {
      return LengthMismatch(header_.tag, current_->length, header_.length);
    }
    MUSTER_CHECK_LE(static_cast<size_t>(current_->element_bytes), carry_.size());
    return true;
  }
  early_bytes_ = receives_->Reserve(header_.tag, header_.length);
  early_ = early_bytes_ != nullptr;
  return early_;
}

void FrameReader::Consume(absl::Span<const std::byte> piece) {
  const auto element = static_cast<size_t>(current_->element_bytes);
  while (!piece.empty()) {
    const bool aligned = reinterpret_cast<uintptr_t>(piece.data()) % element == 0;
    absl::Span<const std::byte> elements;
    if (carried_ == 0 && aligned && piece.size() >= element) {
      elements = piece.first(piece.size() - piece.size() % element);
      piece.remove_prefix(elements.size());
    } else {
      const size_t taken = std::min(piece.size(), kStagedBytes - carried_);
      std::memcpy(staging_->data(), carry_.data(), carried_);
      std::memcpy(staging_->data() + carried_, piece.data(), taken);
      piece.remove_prefix(taken);
      const size_t there = carried_ + taken;
      carried_ = there % element;
      elements = absl::MakeConstSpan(staging_->data(), there - carried_);
      std::memcpy(carry_.data(), staging_->data() + elements.size(), carried_);
    }
    if (elements.empty()) continue;
    current_->consumer->Consume(current_->token, received_, elements);
    received_ += static_cast<int64_t>(elements.size());
  }
}

void FrameReader::Deliver(absl::Span<const std::byte> piece) {
  if (piece.empty()) return;
  if (current_.has_value() && current_->consumer != nullptr) return Consume(piece);
  std::byte* const to = current_.has_value() ? current_->destination : early_bytes_;
  std::memcpy(to + received_, piece.data(), piece.size());
  received_ += static_cast<int64_t>(piece.size());
}

absl::Status FrameReader::Finish(std::vector<uint64_t>* completed) {
  MUSTER_CHECK(carried_ == 0);
  if (current_.has_value()) {
    receives_->Finished(*current_);
    completed->push_back(current_->token);
    current_.reset();
    return absl::OkStatus();
  }
  early_ = false;
  uint64_t token = 0;
  MUSTER_ASSIGN_OR_RETURN(const bool served, receives_->Deliver(header_.tag, &token));
  if (served) completed->push_back(token);
  return absl::OkStatus();
}

absl::StatusOr<size_t> FrameReader::Take(absl::Span<const std::byte> bytes,
                                         std::vector<uint64_t>* completed) {
  const size_t all = bytes.size();
  while (true) {
    if (!receiving() && !waits_) {
      const size_t taken = std::min(bytes.size(), header_bytes_.size() - header_got_);
      if (taken > 0) std::memcpy(header_bytes_.data() + header_got_, bytes.data(), taken);
      header_got_ += taken;
      bytes.remove_prefix(taken);
      if (header_got_ < header_bytes_.size()) return all;
      MUSTER_ASSIGN_OR_RETURN(header_, DecodeDataHeader(header_bytes_));
      waits_ = true;
    }
    if (waits_) {
      MUSTER_ASSIGN_OR_RETURN(const bool begun, Begin());
      if (!begun) return all - bytes.size();
      waits_ = false;
      header_got_ = 0;
    }
    const auto left = static_cast<size_t>(header_.length - received_) - carried_;
    const auto piece = bytes.first(std::min(bytes.size(), left));
    Deliver(piece);
    bytes.remove_prefix(piece.size());
    if (piece.size() < left) return all;
    MUSTER_RETURN_IF_ERROR(Finish(completed));
  }
}

}  // namespace muster
