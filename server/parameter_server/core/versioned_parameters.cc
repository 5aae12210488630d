#include "server/parameter_server/core/versioned_parameters.h"

#include <algorithm>
#include <array>
#include <utility>

#include "absl/functional/function_ref.h"
#include "base/check.h"

namespace muster {
namespace {

// Elements of a gradient that are copied at a time to where the rule reads them: 16 KiB, which stay
// in the nearest cache.
constexpr int64_t kBlock = 4096;

// Calls visit for each segment's range.
void ForEachSegment(Range range, int64_t segment_elements,
                    absl::FunctionRef<void(Range segment)> visit) {
  for (int64_t at = range.offset; at < range.end(); at += segment_elements) {
    visit({.offset = at, .count = std::min(segment_elements, range.end() - at)});
  }
}

}  // namespace

VersionedParameters::VersionedParameters(Range range, int64_t segment_elements,
                                         const UpdateRule& rule, BufferPool& pool)
    : range_(range), segment_elements_(segment_elements), rule_(rule), pool_(pool) {
  ForEachSegment(range, segment_elements, [&](Range part) {
    Segment segment{.range = part, .memory = std::make_shared<Memory>()};
    segment.memory->floats = pool_.Take(part.count);
    for (int i = 0; i < rule.state_slots(); ++i) segment.slots.push_back(pool_.Take(part.count));
    segments_.push_back(std::move(segment));
  });
}

int64_t VersionedParameters::BytesFor(Range range, int64_t segment_elements,
                                      const UpdateRule& rule) {
  int64_t bytes = 0;
  ForEachSegment(range, segment_elements, [&](Range part) {
    bytes += BufferPool::BytesFor(part.count) * (1 + rule.state_slots());
  });
  return bytes;
}

VersionedParameters::SegmentSpan VersionedParameters::SegmentsIn(Range range) const {
  MUSTER_CHECK(range_.Contains(range));
  if (range.count == 0) return {};
  return {.first = static_cast<int>((range.offset - range_.offset) / segment_elements_),
          .last = static_cast<int>((range.end() - 1 - range_.offset) / segment_elements_) + 1};
}

absl::Span<float> VersionedParameters::mutable_values(int segment) {
  Memory& memory = *segments_[segment].memory;
  MUSTER_CHECK_EQ(memory.pins, 0);
  return memory.floats.span();
}

std::vector<absl::Span<float>> VersionedParameters::SlotsOf(Segment& segment) {
  std::vector<absl::Span<float>> slots;
  for (PooledFloats& slot : segment.slots) slots.push_back(slot.span());
  return slots;
}

void VersionedParameters::Prepare(int index, const UpdateScalars& scalars,
                                  absl::Span<const float> gradient, TensorSums& sums) {
  Segment& segment = segments_[index];
  rule_.Prepare(segment.range, scalars, std::as_const(*segment.memory).span(), gradient,
                SlotsOf(segment), sums);
}

absl::Span<float> VersionedParameters::Unpinned(Segment& segment) {
  if (segment.memory->pins > 0) {
    auto fresh = std::make_shared<Memory>();
    fresh->floats = pool_.Take(segment.range.count);
    const absl::Span<const float> old = std::as_const(*segment.memory).span();
    std::copy(old.begin(), old.end(), fresh->floats.span().begin());
    segment.memory->retired = true;
    retired_bytes_ += segment.memory->floats.bytes();
    segment.memory = std::move(fresh);
  }
  return segment.memory->floats.span();
}

void VersionedParameters::Apply(int index, const UpdateScalars& scalars,
                                absl::Span<const float> gradient) {
  Segment& segment = segments_[index];
  rule_.Apply(segment.range, scalars, Unpinned(segment), gradient, SlotsOf(segment));
}

void VersionedParameters::Apply(int index, const UpdateScalars& scalars,
                                const GradientBytes& gradient, int64_t first) {
  Segment& segment = segments_[index];
  const absl::Span<float> values = Unpinned(segment);
  const std::vector<absl::Span<float>> slots = SlotsOf(segment);
  std::vector<absl::Span<float>> slots_of_block(slots.size());
  alignas(BufferPool::kAlignmentBytes) std::array<float, kBlock> block;
  for (int64_t at = 0; at < segment.range.count; at += kBlock) {
    const int64_t count = std::min(kBlock, segment.range.count - at);
    const auto part = [&](absl::Span<float> whole) {
      return whole.subspan(static_cast<size_t>(at), static_cast<size_t>(count));
    };
    const absl::Span<float> aligned = absl::MakeSpan(block).first(static_cast<size_t>(count));
    gradient.CopyTo(first + at, aligned);
    std::transform(slots.begin(), slots.end(), slots_of_block.begin(), part);
    rule_.Apply({.offset = segment.range.offset + at, .count = count}, scalars, part(values),
                aligned, slots_of_block);
  }
}

PinId VersionedParameters::Pin(Range range, std::vector<absl::Span<const float>>* pieces) {
  std::vector<std::shared_ptr<Memory>> pinned;
  const SegmentSpan span = SegmentsIn(range);
  for (int i = span.first; i < span.last; ++i) {
    const Segment& segment = segments_[i];
    const int64_t begin = std::max(range.offset, segment.range.offset);
    const int64_t end = std::min(range.end(), segment.range.end());
    pieces->push_back(values(i).subspan(begin - segment.range.offset, end - begin));
    ++segment.memory->pins;
    pinned.push_back(segment.memory);
  }
  const PinId pin = next_pin_++;
  pins_.emplace(pin, std::move(pinned));
  return pin;
}

void VersionedParameters::Unpin(PinId pin) {
  const auto it = pins_.find(pin);
  MUSTER_CHECK(it != pins_.end()) << "pin " << pin << " is not held";
  for (const std::shared_ptr<Memory>& memory : it->second) {
    if (--memory->pins == 0 && memory->retired) retired_bytes_ -= memory->floats.bytes();
  }
  pins_.erase(it);
}

}  // namespace muster
