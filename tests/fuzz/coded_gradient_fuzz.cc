// A coded block of a gradient (worker/compression), as it comes from another worker.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "tests/fuzz/targets.h"
#include "worker/compression/gradient_codec.h"

namespace muster {
namespace {

using absl::StatusCode;
using Kind = GradientCompression::Kind;

constexpr GradientCompression kCompressions[] = {{.kind = Kind::kInt8},
                                                 {.kind = Kind::kTopK, .top_k_fraction = 0.01},
                                                 {.kind = Kind::kTopK, .top_k_fraction = 0.5}};

bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

// The codec, the number of elements in two bytes, then the block.
FuzzOutcome Run(absl::string_view bytes) {
  const auto byte = [&](size_t i) { return i < bytes.size() ? static_cast<uint8_t>(bytes[i]) : 0; };
  const GradientCodec codec(kCompressions[byte(0) % std::size(kCompressions)]);
  const int64_t elements = (byte(1) + 256 * byte(2)) % codec.block_elements() + 1;
  const absl::string_view block = bytes.substr(std::min<size_t>(3, bytes.size()));
  const absl::Span<const std::byte> coded(reinterpret_cast<const std::byte*>(block.data()),
                                          block.size());
  std::vector<float> whole(static_cast<size_t>(elements));
  const absl::Status status = codec.Add(coded, elements, 0, /*starts=*/true, absl::MakeSpan(whole));
  if (!status.ok()) return Refused(status, {StatusCode::kDataLoss});
  MUSTER_CHECK_EQ(static_cast<int64_t>(coded.size()), codec.BytesOf(elements));
  // Parts are the same as the whole, and nothing beside them is touched.
  const auto middle = static_cast<size_t>(elements / 2);
  std::vector<float> parts(whole.size(), 1);
  const absl::Span<float> into = absl::MakeSpan(parts);
  MUSTER_CHECK(
      codec.Add(coded, elements, static_cast<int64_t>(middle), true, into.subspan(middle)).ok());
  MUSTER_CHECK(std::all_of(parts.begin(), parts.begin() + static_cast<int64_t>(middle),
                           [](float value) { return value == 1; }));
  MUSTER_CHECK(codec.Add(coded, elements, 0, true, into.first(middle)).ok());
  MUSTER_CHECK(SameBits(parts, whole));
  return FuzzOutcome::kAccepted;
}

std::vector<std::string> Seeds() {
  std::vector<std::string> seeds;
  for (size_t kind = 0; kind < std::size(kCompressions); ++kind) {
    const GradientCodec codec(kCompressions[kind]);
    for (const int64_t elements : {int64_t{1}, int64_t{70}, codec.block_elements()}) {
      std::vector<float> values(static_cast<size_t>(elements));
      for (size_t i = 0; i < values.size(); ++i) {
        values[i] = std::sin(static_cast<float>(i * i)) * 0.1f;
      }
      std::string seed = {static_cast<char>(kind), static_cast<char>((elements - 1) % 256),
                          static_cast<char>((elements - 1) / 256)};
      const size_t head = seed.size();
      seed.resize(head + static_cast<size_t>(codec.BytesOf(elements)));
      codec.Encode(absl::MakeSpan(values),
                   {reinterpret_cast<std::byte*>(seed.data() + head), seed.size() - head});
      seeds.push_back(std::move(seed));
    }
  }
  return seeds;
}

}  // namespace

const FuzzTarget kCodedGradientTarget = {"coded_gradient", Run, Seeds, 3 + 2'048};

}  // namespace muster
