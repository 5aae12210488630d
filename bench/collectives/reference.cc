#include "bench/collectives/reference.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <vector>

#include "base/float16.h"

namespace muster::bench {
namespace {

// Inputs repeat after so many elements: a prime, so that no shift by a chunk or a page goes unseen.
constexpr uint64_t kPeriod = 1009;

// A multiple of 1/8 below 4 in magnitude: few enough bits for every type.
double ValueOf(int rank, uint64_t i) {
  uint64_t bits = (static_cast<uint64_t>(rank) << 32) + i % kPeriod + 1;
  bits *= 0x9e3779b97f4a7c15u;
  bits ^= bits >> 29;
  bits *= 0xbf58476d1ce4e5b9u;
  return (static_cast<double>(bits >> 58) - 32) / 8;
}

void Encode(ElementType type, double value, std::byte* to) {
  const auto put = [to](auto number) { std::memcpy(to, &number, sizeof(number)); };
  switch (type) {
    case ElementType::kF32:
      return put(static_cast<float>(value));
    case ElementType::kF64:
      return put(value);
    case ElementType::kF16:
      return put(F32ToF16(static_cast<float>(value)));
    case ElementType::kBF16:
      return put(F32ToBF16(static_cast<float>(value)));
    case ElementType::kI32:
      return put(static_cast<int32_t>(value * 8));
  }
}

// The average as reduce.h has it: one division in the type that is added in.
double Average(ElementType type, double sum, int ranks) {
  switch (type) {
    case ElementType::kF64:
      return sum / ranks;
    case ElementType::kF32:
    case ElementType::kF16:
    case ElementType::kBF16:
      return static_cast<double>(static_cast<float>(sum) / static_cast<float>(ranks));
    case ElementType::kI32:  // Encode() multiplies by 8 again.
      return static_cast<double>(static_cast<int32_t>(sum * 8) / ranks) / 8;
  }
  return 0;
}

double ReductionOf(const Trial& trial, int ranks, uint64_t i) {
  double result = ValueOf(0, i);
  for (int r = 1; r < ranks; ++r) {
    const double value = ValueOf(r, i);
    switch (trial.redop) {
      case Redop::kSum:
      case Redop::kAverage:
        result += value;
        break;
      case Redop::kMin:
        result = std::min(result, value);
        break;
      case Redop::kMax:
        result = std::max(result, value);
        break;
    }
  }
  return trial.redop == Redop::kAverage ? Average(trial.type, result, ranks) : result;
}

// One period of encoded elements.
class Pattern {
 public:
  Pattern(ElementType type, const std::function<double(uint64_t)>& value)
      : size_(SizeOf(type)), bytes_(kPeriod * size_) {
    for (uint64_t i = 0; i < kPeriod; ++i) Encode(type, value(i), &bytes_[i * size_]);
  }

  // Writes elements number `first` on.
  void Fill(std::byte* to, uint64_t first, uint64_t count) const {
    ForEachRun(first, count, [&](uint64_t at, const std::byte* run, uint64_t n) {
      std::memcpy(to + at * size_, run, n * size_);
    });
  }
  int64_t CountDifferent(const std::byte* from, uint64_t first, uint64_t count) const {
    int64_t different = 0;
    ForEachRun(first, count, [&](uint64_t at, const std::byte* run, uint64_t n) {
      if (std::memcmp(from + at * size_, run, n * size_) == 0) return;
      for (uint64_t i = 0; i < n; ++i) {
        if (std::memcmp(from + (at + i) * size_, run + i * size_, size_) != 0) ++different;
      }
    });
    return different;
  }

 private:
  template <typename Body>
  void ForEachRun(uint64_t first, uint64_t count, const Body& body) const {
    for (uint64_t at = 0; at < count;) {
      const uint64_t within = (first + at) % kPeriod;
      const uint64_t n = std::min(kPeriod - within, count - at);
      body(at, &bytes_[within * size_], n);
      at += n;
    }
  }

  const size_t size_;
  std::vector<std::byte> bytes_;
};

Pattern InputOf(const Trial& trial, int rank) {
  return Pattern(trial.type, [rank](uint64_t i) { return ValueOf(rank, i); });
}

}  // namespace

void FillInput(const Trial& trial, int rank, int ranks, void* input) {
  InputOf(trial, rank).Fill(static_cast<std::byte*>(input), 0, InputCount(trial, rank, ranks));
}

int64_t CountWrong(const Trial& trial, int rank, int ranks, const void* output) {
  const auto* const bytes = static_cast<const std::byte*>(output);
  const uint64_t count = OutputCount(trial, rank, ranks);
  if (count == 0) return 0;
  // Where in a whole vector this rank's part begins.
  const uint64_t part = static_cast<uint64_t>(rank) * trial.count;
  switch (trial.kind) {
    case Kind::kAllReduce:
    case Kind::kReduce:
    case Kind::kReduceScatter: {
      const Pattern expected(trial.type, [&](uint64_t i) { return ReductionOf(trial, ranks, i); });
      return expected.CountDifferent(bytes, trial.kind == Kind::kReduceScatter ? part : 0, count);
    }
    case Kind::kAllGather:
    case Kind::kGather:
    case Kind::kAllToAll: {
      int64_t wrong = 0;
      for (int r = 0; r < ranks; ++r) {
        const uint64_t at = static_cast<uint64_t>(r) * trial.count * SizeOf(trial.type);
        wrong += InputOf(trial, r).CountDifferent(
            bytes + at, trial.kind == Kind::kAllToAll ? part : 0, trial.count);
      }
      return wrong;
    }
    case Kind::kBroadcast:
      return InputOf(trial, trial.root).CountDifferent(bytes, 0, count);
    case Kind::kScatter:
      return InputOf(trial, trial.root).CountDifferent(bytes, part, count);
    case Kind::kSendReceive:
      return InputOf(trial, (rank + ranks - 1) % ranks).CountDifferent(bytes, 0, count);
    case Kind::kBarrier:
      return 0;
  }
  return 0;
}

}  // namespace muster::bench
