// What the tests of tables share: contributors, time, gradients that are a pure function of who and
// when, and the dumbest way to sum and apply them.
#ifndef MUSTER_TESTS_SERVER_PARAMETER_SERVER_CORE_TABLE_FIXTURE_H_
#define MUSTER_TESTS_SERVER_PARAMETER_SERVER_CORE_TABLE_FIXTURE_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/float16.h"
#include "base/random.h"
#include "server/parameter_server/core/dense_table.h"
#include "state/bucket_slices.h"
#include "state/gradient_norm.h"
#include "state/initialize.h"
#include "state/step_scalars.h"
#include "tests/state/random_layout.h"
#include "tests/state/update_rule_util.h"

namespace muster {

inline constexpr absl::Time kNow = absl::UnixEpoch();
inline constexpr absl::Duration kLease = absl::Seconds(10);
inline constexpr int64_t kPlenty = int64_t{1} << 40;

inline ContributorId Contributor(int32_t index, uint64_t start = 1) {
  return {.index = index, .incarnation = {start * 10000 + static_cast<uint64_t>(index) + 1}};
}

// SGD at rate 1; each contributor has one micro-batch of a step.
inline TableSpec DenseSpecOf(std::vector<TensorSpec> tensors, int32_t contributors,
                             Consistency consistency) {
  TableSpec spec;
  spec.name = "t";
  spec.shape = DenseShape{.tensors = std::move(tensors)};
  spec.rule = SgdOptions{};
  spec.learning_rate = {.peak = 1, .total_steps = 100};
  spec.contributors = contributors;
  spec.micro_batches = contributors;
  spec.consistency = consistency;
  return spec;
}

// Values as they travel.
struct Payload {
  DType dtype = DType::kF32;
  std::vector<std::byte> bytes;

  GradientBytes view() const {
    const absl::Span<const std::byte> piece(bytes);
    return GradientBytes::Create(dtype, {&piece, 1}).value();
  }
};

inline Payload Encode(absl::Span<const float> values, DType dtype) {
  Payload payload{.dtype = dtype};
  payload.bytes.resize(values.size() * SizeOf(dtype));
  for (size_t i = 0; i < values.size(); ++i) {
    if (dtype == DType::kF32) {
      std::memcpy(payload.bytes.data() + i * 4, &values[i], 4);
    } else {
      const uint16_t half = dtype == DType::kF16 ? F32ToF16(values[i]) : F32ToBF16(values[i]);
      std::memcpy(payload.bytes.data() + i * 2, &half, 2);
    }
  }
  return payload;
}

// What arrives of a value that is sent as `dtype`.
inline float Rounded(float value, DType dtype) {
  if (dtype == DType::kF16) return F16ToF32(F32ToF16(value));
  if (dtype == DType::kBF16) return BF16ToF32(F32ToBF16(value));
  return value;
}

// The gradient of a micro-batch over the whole space, padding too (which must not matter): values
// of very different sizes, so that sums depend on their order, with zeros of both signs.
inline std::vector<float> GradientOf(int64_t count, uint64_t seed, Step step, int32_t micro_batch,
                                     DType dtype) {
  const RandomStream stream(seed, "gradient", static_cast<uint64_t>(step),
                            static_cast<uint64_t>(micro_batch));
  std::vector<float> gradient(static_cast<size_t>(count));
  for (size_t i = 0; i < gradient.size(); ++i) {
    const uint64_t bits = stream.Bits(i);
    float value = std::ldexp(stream.UniformFloat(i) - 0.5f, static_cast<int>(bits % 12));
    if (bits % 7 == 0) value = bits % 2 == 0 ? 0.0f : -0.0f;
    gradient[i] = Rounded(value, dtype);
  }
  return gradient;
}

// The share of contributor c as the definition says it: an even cut of micro-batches.
inline std::pair<int32_t, int32_t> ShareByDefinition(int32_t c, int32_t contributors,
                                                     int32_t micro_batches) {
  return {static_cast<int32_t>(int64_t{c} * micro_batches / contributors),
          static_cast<int32_t>(int64_t{c + 1} * micro_batches / contributors)};
}

// The sum over all contributions of a step, by its definition, with plain additions: each
// contributor adds up its own (or has zeros), then contributors c + 1, ..., c for slice c.
inline std::vector<float> SumByDefinition(const Layout& layout, int32_t contributors,
                                          const std::vector<std::vector<float>>& gradients) {
  const auto micro_batches = static_cast<int32_t>(gradients.size());
  const auto size = static_cast<size_t>(layout.padded_count());
  std::vector<std::vector<float>> partial(static_cast<size_t>(contributors),
                                          std::vector<float>(size, 0.0f));
  for (int32_t c = 0; c < contributors; ++c) {
    const auto [first, last] = ShareByDefinition(c, contributors, micro_batches);
    for (int32_t m = first; m < last; ++m) {
      for (size_t i = 0; i < size; ++i) {
        partial[c][i] = m == first ? gradients[m][i] : partial[c][i] + gradients[m][i];
      }
    }
  }
  std::vector<float> sum(size);
  const BucketSlices slices = BucketSlices::Even(layout, contributors).value();
  for (const OwnedRange& piece : slices.PiecesOf({0, layout.padded_count()})) {
    for (int64_t i = piece.range.offset; i < piece.range.end(); ++i) {
      float value = partial[(piece.owner + 1) % contributors][i];
      for (int32_t k = 2; k <= contributors; ++k) {
        value += partial[(piece.owner + k) % contributors][i];
      }
      sum[i] = value;
    }
  }
  return sum;
}

// A whole table kept by one who has everything: parameters and slots of the whole space.
class DenseOracle {
 public:
  explicit DenseOracle(const TableSpec& spec)
      : spec_(spec),
        layout_(LayoutOf(spec).value()),
        rule_(UpdateRule::Create(spec.rule, layout_).value()) {
    const auto size = static_cast<size_t>(layout_.padded_count());
    state_.parameters.resize(size);
    InitializeParameters(layout_, spec.seed, absl::MakeSpan(state_.parameters));
    state_.slots.assign(static_cast<size_t>(rule_->state_slots()), std::vector<float>(size));
  }

  const Layout& layout() const { return layout_; }
  const std::vector<float>& parameters() const { return state_.parameters; }

  // The squared norm over what trains of `range`.
  SquaredSum SquaresOf(const std::vector<float>& gradient, Range range) const {
    SquaredSum squares;
    for (const Tensor& tensor : layout_.tensors()) {
      if (tensor.spec.frozen) continue;
      const int64_t begin = std::max(tensor.offset, range.offset);
      const int64_t end = std::min(tensor.offset + tensor.count, range.end());
      if (begin < end) {
        squares.Add(absl::MakeConstSpan(gradient).subspan(begin, end - begin));
      }
    }
    return squares;
  }

  // Applies the sum of what sums over `samples` samples; `norm_range` is what the norm goes by.
  void Apply(Step step, const std::vector<float>& gradient, int64_t samples, Range norm_range) {
    const SquaredSum squares = SquaresOf(gradient, norm_range);
    if (spec_.nonfinite == NonfinitePolicy::kSkip && !squares.finite()) return;
    const bool clips = spec_.clip_norm > 0;
    UpdateScalars scalars;
    scalars.learning_rate = LearningRate(spec_.learning_rate, step);
    scalars.gradient_scale = ComputeGradientScale(clips ? squares.Value() : 0,
                                                  std::max<int64_t>(1, samples), spec_.clip_norm)
                                 .scale;
    scalars.update_count = ++updates_;
    UpdateRanges(*rule_, {{0, layout_.padded_count()}}, scalars, gradient, state_);
  }

 private:
  const TableSpec spec_;
  const Layout layout_;
  const std::unique_ptr<UpdateRule> rule_;
  RuleState state_;
  int64_t updates_ = 0;
};

// All that a pull shows, as a copy.
inline std::vector<float> Values(const DensePullResult& result) {
  std::vector<float> values;
  for (const auto piece : result.pieces) values.insert(values.end(), piece.begin(), piece.end());
  return values;
}

inline std::vector<float> PullAll(DenseTable& table) {
  const DensePullResult result = table.Pull({.range = table.range()}, kNow).value();
  std::vector<float> values = Values(result);
  table.Release(result.pin);
  return values;
}

inline std::vector<float> PartOf(const std::vector<float>& values, Range range) {
  return {values.begin() + range.offset, values.begin() + range.end()};
}

inline bool SameFloats(absl::Span<const float> a, absl::Span<const float> b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

// The first difference, for messages.
inline std::string Difference(absl::Span<const float> got, absl::Span<const float> expected) {
  if (got.size() != expected.size()) return absl::StrCat(got.size(), " of ", expected.size());
  for (size_t i = 0; i < got.size(); ++i) {
    if (std::memcmp(&got[i], &expected[i], sizeof(float)) != 0) {
      return absl::StrFormat("element %d: %.9g, expected %.9g", i, got[i], expected[i]);
    }
  }
  return "none";
}

// [0, count) in random consecutive parts of at most `most`.
inline std::vector<Range> RandomChunks(Range range, int64_t most, std::mt19937& random) {
  std::vector<Range> chunks;
  for (int64_t at = range.offset; at < range.end();) {
    const int64_t n = std::min(Draw(random, 1, most), range.end() - at);
    chunks.push_back({at, n});
    at += n;
  }
  return chunks;
}

}  // namespace muster

#endif  // MUSTER_TESTS_SERVER_PARAMETER_SERVER_CORE_TABLE_FIXTURE_H_
