// Every SIMD target that was compiled and that this machine has, against the scalar oracle, bit by
// bit.
#include "collectives/reduce/reduce.h"

#include <algorithm>
#include <set>

#include "base/random.h"
#include "gtest/gtest.h"
#include "hwy/highway.h"
#include "tests/collectives/reduce/reduce_oracle.h"

namespace muster {
namespace {

using oracle::IsNan;
using oracle::ReduceElement;

constexpr uint8_t kGuard = 0xa5;
constexpr size_t kGuardBytes = 64;

// `count` elements at a chosen misalignment, with guard bytes around them.
class Array {
 public:
  Array(DType dtype, int64_t count, size_t misalignment)
      : dtype_(dtype), size_(count * SizeOf(dtype)) {
    bytes_.assign(kGuardBytes + misalignment + size_ + kGuardBytes, kGuard);
    begin_ = kGuardBytes + misalignment;
    // vector's memory is aligned to 16 at least; the misalignment is relative to that.
  }
  // Misaligned by that much to the largest vector there is.
  static Array Aligned(DType dtype, int64_t count, size_t misalignment) {
    Array array(dtype, count, misalignment + kGuardBytes);
    const size_t beyond = reinterpret_cast<uintptr_t>(array.bytes_.data()) % kGuardBytes;
    array.begin_ = 2 * kGuardBytes - beyond + misalignment;
    return array;
  }
  uint8_t* data() { return bytes_.data() + begin_; }
  const uint8_t* data() const { return bytes_.data() + begin_; }
  const uint8_t* at(int64_t i) const { return data() + i * SizeOf(dtype_); }
  uint8_t* at(int64_t i) { return data() + i * SizeOf(dtype_); }
  bool GuardsAreIntact() const {
    const auto intact = [](uint8_t byte) { return byte == kGuard; };
    return std::all_of(bytes_.begin(), bytes_.begin() + begin_, intact) &&
           std::all_of(bytes_.begin() + begin_ + size_, bytes_.end(), intact);
  }

 private:
  DType dtype_;
  size_t size_;
  size_t begin_;
  std::vector<uint8_t> bytes_;
};

template <typename T>
T PickFloat(uint64_t bits, double normal) {
  switch (bits % 16) {
    case 0:
      return T{0};
    case 1:
      return -T{0};
    case 2:
      return std::numeric_limits<T>::infinity();
    case 3:
      return -std::numeric_limits<T>::infinity();
    case 4:
      return std::numeric_limits<T>::quiet_NaN();
    case 5:
      return std::numeric_limits<T>::denorm_min() * static_cast<T>(bits >> 40);
    case 6:
      return std::numeric_limits<T>::max();
    case 7:
      return static_cast<T>(normal * 1e-6);
    default:
      return static_cast<T>(normal);
  }
}

// Random elements: mostly ordinary numbers, and the special ones in between.
void Fill(Array& array, DType dtype, int64_t count, const RandomStream& random) {
  for (int64_t i = 0; i < count; ++i) {
    const uint64_t bits = random.Bits(2 * i);
    const double normal = random.Normal(2 * i + 1);
    uint8_t* const to = array.at(i);
    switch (dtype) {
      case DType::kF32:
        oracle::WriteAs(to, PickFloat<float>(bits, normal));
        break;
      case DType::kF64:
        oracle::WriteAs(to, PickFloat<double>(bits, normal));
        break;
      case DType::kF16:
      case DType::kBF16: {
        // A quarter are any bits at all, which includes subnormals and NaNs of every payload.
        const auto value = static_cast<float>(normal);
        const uint16_t ordinary = dtype == DType::kF16 ? F32ToF16(value) : F32ToBF16(value);
        oracle::WriteAs(to, bits % 4 == 0 ? static_cast<uint16_t>(bits >> 32) : ordinary);
        break;
      }
      case DType::kI32:
        oracle::WriteAs(to, static_cast<int32_t>(bits));
        break;
      case DType::kI64:
        oracle::WriteAs(to, static_cast<int64_t>(bits));
        break;
      case DType::kU8:
        oracle::WriteAs(to, static_cast<uint8_t>(bits));
        break;
    }
  }
}

// Sums and products of NaNs are NaNs of any payload; everything else is exact.
void ExpectSame(DType dtype, ReduceOp op, const Array& expected, const Array& actual, int64_t count,
                const std::string& context) {
  const bool any_nan = op != ReduceOp::kMin && op != ReduceOp::kMax;
  for (int64_t i = 0; i < count; ++i) {
    if (any_nan && IsNan(dtype, expected.at(i)) && IsNan(dtype, actual.at(i))) continue;
    ASSERT_EQ(std::memcmp(expected.at(i), actual.at(i), SizeOf(dtype)), 0)
        << context << " element " << i << " of " << count;
  }
  ASSERT_TRUE(actual.GuardsAreIntact()) << context << " wrote outside its target";
}

// Runs `test` once per SIMD target.
class ReduceTest : public testing::Test {
 protected:
  static void ForEachTarget(const std::function<void(const std::string&)>& test) {
    std::set<std::string> seen;
    // The scalar target is always there, though SupportedTargets names it only if nothing else is.
    for (int64_t targets = (hwy::SupportedTargets() | HWY_STATIC_TARGET) & HWY_TARGETS;
         targets != 0; targets &= targets - 1) {
      const int64_t target = targets & -targets;
      hwy::SetSupportedTargetsForTest(target);
      hwy::GetChosenTarget().Update(hwy::SupportedTargets());
      const std::string name(ReduceTargetName());
      EXPECT_EQ(name, hwy::TargetName(target));
      seen.insert(name);
      test(name);
      if (HasFatalFailure()) break;
    }
    hwy::SetSupportedTargetsForTest(0);
    hwy::GetChosenTarget().DeInit();
    EXPECT_GE(seen.size(), 2u) << "only one SIMD target was tried";
  }
};

std::vector<int64_t> Lengths() {
  std::vector<int64_t> lengths(71);
  for (int i = 0; i <= 70; ++i) lengths[i] = i;
  lengths.push_back(1000);
  return lengths;
}

std::string Context(const std::string& target, DType dtype, ReduceOp op) {
  return absl::StrCat(target, " ", std::string(Name(dtype)), " ", std::string(Name(op)));
}

TEST_F(ReduceTest, ReduceIntoMatchesTheOracle) {
  ForEachTarget([](const std::string& target) {
    for (const DType dtype : kAllDTypes) {
      for (const ReduceOp op : kAllReduceOps) {
        const std::string context = Context(target, dtype, op);
        for (const int64_t count : Lengths()) {
          const size_t shift = count % 8;
          Array incoming(dtype, count, shift), local(dtype, count, (shift * 3) % 16);
          Fill(incoming, dtype, count, RandomStream(1, "incoming", count));
          Fill(local, dtype, count, RandomStream(1, "local", count));
          Array expected(dtype, count, 0), apart(dtype, count, (shift * 5) % 16);
          for (int64_t i = 0; i < count; ++i) {
            ReduceElement(dtype, op, {incoming.at(i), local.at(i)}, 1, expected.at(i));
          }
          ReduceInto(dtype, op, apart.data(), incoming.data(), local.data(), count);
          ExpectSame(dtype, op, expected, apart, count, context);
          Array over_incoming = incoming, over_local = local;
          ReduceInto(dtype, op, over_incoming.data(), over_incoming.data(), local.data(), count);
          ExpectSame(dtype, op, expected, over_incoming, count, context + " over incoming");
          ReduceInto(dtype, op, over_local.data(), incoming.data(), over_local.data(), count);
          ExpectSame(dtype, op, expected, over_local, count, context + " over local");
          if (HasFatalFailure()) return;
        }
      }
    }
  });
}

TEST_F(ReduceTest, ReduceManyMatchesTheOracle) {
  ForEachTarget([](const std::string& target) {
    for (const DType dtype : kAllDTypes) {
      for (const ReduceOp op : kAllReduceOps) {
        for (const int64_t count : Lengths()) {
          const size_t terms = 1 + count % 7;
          const int64_t divisor = op == ReduceOp::kAverage ? 1 + count % 5 : 1;
          std::vector<Array> sources;
          for (size_t k = 0; k < terms; ++k) {
            sources.emplace_back(dtype, count, (count + k) % 9);
            Fill(sources[k], dtype, count, RandomStream(2, "source", count, k));
          }
          Array expected(dtype, count, 0);
          for (int64_t i = 0; i < count; ++i) {
            std::vector<const uint8_t*> elements;
            for (const Array& source : sources) elements.push_back(source.at(i));
            ReduceElement(dtype, op, elements, divisor, expected.at(i));
          }
          // Into its own memory, then over each of the sources.
          for (size_t over = 0; over <= terms; ++over) {
            std::vector<Array> inputs = sources;
            Array apart(dtype, count, count % 3);
            Array& result = over < terms ? inputs[over] : apart;
            std::vector<const void*> pointers;
            for (const Array& input : inputs) pointers.push_back(input.data());
            ReduceMany(dtype, op, result.data(), pointers, count, divisor);
            ExpectSame(dtype, op, expected, result, count,
                       absl::StrCat(Context(target, dtype, op), " of ", terms, " over ", over));
            if (HasFatalFailure()) return;
          }
        }
      }
    }
  });
}

TEST_F(ReduceTest, SeveralTargetsWithinAndPastTheCachesMatchTheOracle) {
  ForEachTarget([](const std::string& target) {
    for (const DType dtype : kAllDTypes) {
      for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kAverage, ReduceOp::kMax}) {
        for (const int64_t count : Lengths()) {
          // Targets aligned alike, by an element or by a byte beyond a vector; and each otherwise.
          const size_t element = SizeOf(dtype);
          const size_t shifts[][2] = {{0, 0}, {element, element}, {1, 1}, {0, element}};
          for (const auto& [first_shift, second_shift] : shifts) {
            const int64_t divisor = op == ReduceOp::kAverage ? 3 : 1;
            std::vector<Array> sources;
            for (size_t k = 0; k < 3; ++k) {
              sources.emplace_back(dtype, count, k);
              Fill(sources[k], dtype, count, RandomStream(5, "source", count, k));
            }
            Array expected(dtype, count, 0);
            for (int64_t i = 0; i < count; ++i) {
              ReduceElement(dtype, op, {sources[0].at(i), sources[1].at(i), sources[2].at(i)},
                            divisor, expected.at(i));
            }
            for (const bool past_caches : {false, true}) {
              Array first = Array::Aligned(dtype, count, first_shift);
              Array second = Array::Aligned(dtype, count, second_shift);
              ReduceManyInto(dtype, op, {first.data(), second.data()},
                             {sources[0].data(), sources[1].data(), sources[2].data()}, count,
                             divisor, past_caches);
              const std::string context = absl::StrCat(Context(target, dtype, op), " past caches ",
                                                       past_caches, " shift ", first_shift);
              ExpectSame(dtype, op, expected, first, count, context);
              ExpectSame(dtype, op, expected, second, count, context);
              if (HasFatalFailure()) return;
            }
          }
        }
      }
    }
  });
}

TEST_F(ReduceTest, ScaleForAverageMatchesTheOracle) {
  ForEachTarget([](const std::string& target) {
    for (const DType dtype : kAllDTypes) {
      for (const int64_t divisor :
           {int64_t{1}, int64_t{2}, int64_t{3}, int64_t{7}, int64_t{300}, int64_t{1} << 33}) {
        for (const int64_t count : Lengths()) {
          Array data(dtype, count, count % 11), expected(dtype, count, 0);
          Fill(data, dtype, count, RandomStream(3, "scale", count));
          for (int64_t i = 0; i < count; ++i) {
            ReduceElement(dtype, ReduceOp::kSum, {data.at(i)}, divisor, expected.at(i));
          }
          ScaleForAverage(dtype, data.data(), count, divisor);
          ExpectSame(dtype, ReduceOp::kAverage, expected, data, count,
                     absl::StrCat(target, " ", std::string(Name(dtype)), " / ", divisor));
          if (HasFatalFailure()) return;
        }
      }
    }
  });
}

// All 65536 values of both formats pass through load and store, on every target, as base/float16.h
// says.
TEST_F(ReduceTest, HalfPrecisionConversionsAreTheScalarOnes) {
  ForEachTarget([](const std::string& target) {
    for (const DType dtype : {DType::kF16, DType::kBF16}) {
      constexpr int64_t kCount = 65536;
      const bool f16 = dtype == DType::kF16;
      std::vector<uint16_t> all(kCount), result(kCount), ones(kCount);
      for (int64_t i = 0; i < kCount; ++i) all[i] = static_cast<uint16_t>(i);
      // Multiplication by values whose products need rounding, subnormals and overflow.
      for (const float factor : {1.0f, 1.001f, 0.333f, 0.0007f, 3000.0f, -0.9f}) {
        const uint16_t narrow = f16 ? F32ToF16(factor) : F32ToBF16(factor);
        std::fill(ones.begin(), ones.end(), narrow);
        ReduceInto(dtype, ReduceOp::kProduct, result.data(), all.data(), ones.data(), kCount);
        for (int64_t i = 0; i < kCount; ++i) {
          const float wide =
              f16 ? F16ToF32(all[i]) * F16ToF32(narrow) : BF16ToF32(all[i]) * BF16ToF32(narrow);
          const uint16_t expected = f16 ? F32ToF16(wide) : F32ToBF16(wide);
          ASSERT_EQ(result[i], expected)
              << target << " " << std::string(Name(dtype)) << " " << i << " * " << factor;
        }
      }
    }
  });
}

TEST(ReduceValuesTest, HalfPrecisionSumsRoundOnce) {
  // 2048 + 1 is 2048 in f16 (ties to even), so rounding at every hop would lose both ones.
  const uint16_t values[] = {F32ToF16(2048), F32ToF16(1), F32ToF16(1)};
  const std::vector<const void*> sources = {&values[0], &values[1], &values[2]};
  uint16_t sum = 0;
  ReduceMany(DType::kF16, ReduceOp::kSum, &sum, sources, 1);
  EXPECT_EQ(F16ToF32(sum), 2050);
  // 65504 is the largest f16: the sum overflows it, the average does not.
  const uint16_t largest = F32ToF16(65504);
  uint16_t average = 0;
  ReduceMany(DType::kF16, ReduceOp::kAverage, &average, {&largest, &largest}, 1, 2);
  EXPECT_EQ(average, largest);
}

TEST(ReduceValuesTest, SumsKeepNegativeZeroAndIntegersWrap) {
  const float zero = -0.0f;
  float sum = 1;
  ReduceMany(DType::kF32, ReduceOp::kSum, &sum, {&zero, &zero, &zero}, 1);
  EXPECT_TRUE(sum == 0 && std::signbit(sum));
  const int32_t largest = std::numeric_limits<int32_t>::max();
  int32_t wrapped = 0;
  ReduceMany(DType::kI32, ReduceOp::kSum, &wrapped, {&largest, &largest}, 1);
  EXPECT_EQ(wrapped, -2);
  int32_t negative = -7;
  ScaleForAverage(DType::kI32, &negative, 1, 2);
  EXPECT_EQ(negative, -3);  // toward zero
}

TEST(ReduceValuesTest, NothingToDoTouchesNothing) {
  for (const DType dtype : kAllDTypes) {
    ReduceInto(dtype, ReduceOp::kSum, nullptr, nullptr, nullptr, 0);
    const void* const none = nullptr;
    ReduceMany(dtype, ReduceOp::kAverage, nullptr, {&none, 1}, 0, 3);
    ScaleForAverage(dtype, nullptr, 0, 3);
  }
}

TEST(ReduceDeathTest, MisuseIsABug) {
  float value = 0;
  EXPECT_DEATH(ReduceMany(DType::kF32, ReduceOp::kSum, &value, {}, 1), "sources");
  EXPECT_DEATH(ReduceMany(DType::kF32, ReduceOp::kSum, &value, {&value}, 1, 2), "not divided");
  EXPECT_DEATH(ScaleForAverage(DType::kF32, &value, 1, 0), "divisor");
}

}  // namespace
}  // namespace muster
