#include "collectives/reduce/reduce_kernels.h"

#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "collectives/reduce/reduce_kernels.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep

#include "collectives/reduce/codecs-inl.h"
#include "collectives/reduce/operators-inl.h"
#include "hwy/cache_control.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace muster::reduce_internal::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// Elements of a pair of vectors.
template <class Codec>
HWY_INLINE size_t PairLanes() {
  return 2 * hn::Lanes(typename Codec::D());
}

// A pair of vectors of elements that begin at `from`, of which only `count` exist; the others are
// zero.
template <class Codec>
HWY_INLINE void LoadSome(const uint8_t* from, size_t count, typename Codec::V& first,
                         typename Codec::V& second) {
  HWY_ALIGN uint8_t buffer[2 * HWY_MAX_BYTES] = {};
  std::memcpy(buffer, from, count * sizeof(typename Codec::Storage));
  Codec::Load(buffer, first, second);
}

template <class Codec>
HWY_INLINE void StoreSome(typename Codec::V first, typename Codec::V second, uint8_t* to,
                          size_t count) {
  HWY_ALIGN uint8_t buffer[2 * HWY_MAX_BYTES];
  Codec::template Store<false>(first, second, buffer);
  std::memcpy(to, buffer, count * sizeof(typename Codec::Storage));
}

// How far ahead of the loop caches are told what it comes to. Of several streams at once a core
// follows few by itself, and a line to be written it would fetch only when the store is there.
// Vectors past the caches come from memory, which is farther: into the second level, since so much
// of several streams would push itself out of the first.
constexpr size_t kAheadBytes = 2048;
constexpr size_t kStreamAheadBytes = 8192;
constexpr size_t kLineBytes = 64;

template <bool kStream>
HWY_INLINE void PrefetchToRead(const uint8_t* from, size_t bytes) {
  for (size_t i = 0; i < bytes; i += kLineBytes) {
    __builtin_prefetch(from + i, /*rw=*/0, kStream ? 2 : 3);
  }
}
HWY_INLINE void PrefetchToWrite(const uint8_t* from, size_t bytes) {
  for (size_t i = 0; i < bytes; i += kLineBytes) {
#if HWY_ARCH_X86
    // Compilers emit it only for targets that name it; where it is not known it does nothing.
    asm volatile("prefetchw %0" : : "m"(from[i]));
#else
    __builtin_prefetch(from + i, 1);
#endif
  }
}

struct PairLoop {
  uint8_t* target;
  const uint8_t* first;
  const uint8_t* second;
  size_t count;

  // Every result is that of an operation.
  bool Operates() const { return true; }

  template <class Codec, class Op>
  void Run() const {
    constexpr size_t kBytes = sizeof(typename Codec::Storage);
    const typename Codec::D d;
    const size_t step = PairLanes<Codec>();
    // Copies, since the compiler must assume that a store to `to` could change the members.
    uint8_t* const to = target;
    const uint8_t* const a = first;
    const uint8_t* const b = second;
    const size_t n = count;
    typename Codec::V a0, a1, b0, b1;
    size_t i = 0;
    for (; i + step <= n; i += step) {
      Codec::Load(a + i * kBytes, a0, a1);
      Codec::Load(b + i * kBytes, b0, b1);
      Codec::template Store<false>(Op::Apply(d, a0, b0), Op::Apply(d, a1, b1), to + i * kBytes);
    }
    if (i == n) return;
    LoadSome<Codec>(a + i * kBytes, n - i, a0, a1);
    LoadSome<Codec>(b + i * kBytes, n - i, b0, b1);
    StoreSome<Codec>(Op::Apply(d, a0, b0), Op::Apply(d, a1, b1), to + i * kBytes, n - i);
  }
};

// Divides floats; integers pass (they are divided by the caller, outside vectors).
template <class D, class V, HWY_IF_FLOAT(hn::TFromD<D>)>
HWY_INLINE V Divide(D d, V value, int64_t divisor) {
  return hn::Div(value, hn::Set(d, static_cast<hn::TFromD<D>>(divisor)));
}
template <class D, class V, HWY_IF_NOT_FLOAT(hn::TFromD<D>)>
HWY_INLINE V Divide(D, V value, int64_t) {
  return value;
}

// Keeps four vectors of running results in registers, so that each source is read once and nothing
// else is touched; all sources are read at an index before a target is written there.
struct ManyLoop {
  uint8_t* const* targets;
  size_t target_count;
  const uint8_t* const* sources;
  size_t source_count;
  size_t count;
  int64_t divisor;
  bool past_caches;

  // Every result is that of an operation; a single source passes as it is.
  bool Operates() const { return source_count > 1; }

  template <class Codec, class Op>
  void Run() const {
    constexpr size_t kBytes = sizeof(typename Codec::Storage);
    const typename Codec::D d;
    const size_t vector_bytes = hn::Lanes(d) * sizeof(hn::TFromD<typename Codec::D>);
    // Streams where all targets come to lie aligned together.
    const size_t misaligned = reinterpret_cast<uintptr_t>(targets[0]) % vector_bytes;
    bool streams = past_caches && misaligned % kBytes == 0;
    for (size_t t = 1; t < target_count; ++t) {
      streams = streams && reinterpret_cast<uintptr_t>(targets[t]) % vector_bytes == misaligned;
    }
    if (!streams) return RunPart<Codec, Op, false>(0, count);
    const size_t head = misaligned == 0 ? 0 : (vector_bytes - misaligned) / kBytes;
    const size_t begin = head < count ? head : count;
    RunPart<Codec, Op, false>(0, begin);
    RunPart<Codec, Op, true>(begin, count);
    hwy::FlushStream();
  }

  template <class Codec, class Op, bool kStream>
  HWY_INLINE void RunPart(size_t begin, size_t end) const {
    constexpr size_t kBytes = sizeof(typename Codec::Storage);
    const typename Codec::D d;
    const size_t step = PairLanes<Codec>();
    const size_t stride = step * kBytes;
    // Copies, as in PairLoop.
    const uint8_t* const* const from = sources;
    uint8_t* const* const to = targets;
    const size_t terms = source_count;
    const size_t places = target_count;
    const bool divides = divisor != 1;
    constexpr size_t kAhead = kStream ? kStreamAheadBytes : kAheadBytes;
    typename Codec::V v0, v1, v2, v3, w0, w1;
    size_t i = begin;
    for (; i + 2 * step <= end; i += 2 * step) {
      const size_t at = i * kBytes;
      // Not beyond the end: what lies there may be another rank's to work on.
      const bool fetches = i + kAhead / kBytes < end;
      if (fetches) PrefetchToRead<kStream>(from[0] + at + kAhead, 2 * stride);
      Codec::Load(from[0] + at, v0, v1);
      Codec::Load(from[0] + at + stride, v2, v3);
      for (size_t k = 1; k < terms; ++k) {
        const uint8_t* const source = from[k] + at;
        if (fetches) PrefetchToRead<kStream>(source + kAhead, 2 * stride);
        Codec::Load(source, w0, w1);
        v0 = Op::Apply(d, v0, w0);
        v1 = Op::Apply(d, v1, w1);
        Codec::Load(source + stride, w0, w1);
        v2 = Op::Apply(d, v2, w0);
        v3 = Op::Apply(d, v3, w1);
      }
      if (divides) {
        v0 = Divide(d, v0, divisor);
        v1 = Divide(d, v1, divisor);
        v2 = Divide(d, v2, divisor);
        v3 = Divide(d, v3, divisor);
      }
      for (size_t t = 0; t < places; ++t) {
        uint8_t* const target = to[t] + at;
        if (fetches && !kStream) PrefetchToWrite(target + kAhead, 2 * stride);
        Codec::template Store<kStream>(v0, v1, target);
        Codec::template Store<kStream>(v2, v3, target + stride);
      }
    }
    for (; i < end; i += step) {
      const size_t some = end - i < step ? end - i : step;
      const size_t at = i * kBytes;
      LoadSome<Codec>(from[0] + at, some, v0, v1);
      for (size_t k = 1; k < terms; ++k) {
        LoadSome<Codec>(from[k] + at, some, w0, w1);
        v0 = Op::Apply(d, v0, w0);
        v1 = Op::Apply(d, v1, w1);
      }
      if (divides) {
        v0 = Divide(d, v0, divisor);
        v1 = Divide(d, v1, divisor);
      }
      for (size_t t = 0; t < places; ++t) StoreSome<Codec>(v0, v1, to[t] + at, some);
    }
  }
};

template <class Codec, class Loop>
void RunFloat(ReduceOp op, const Loop& loop) {
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kAverage:
      return loop.template Run<Codec, Sum>();
    case ReduceOp::kMin:
      return loop.template Run<Codec, FloatMin>();
    case ReduceOp::kMax:
      return loop.template Run<Codec, FloatMax>();
    case ReduceOp::kProduct:
      return loop.template Run<Codec, Product>();
  }
}

template <typename T, class Multiply, class Loop>
void RunInteger(ReduceOp op, const Loop& loop) {
  using Wrapping = Native<hwy::MakeUnsigned<T>>;
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kAverage:
      return loop.template Run<Wrapping, Sum>();
    case ReduceOp::kMin:
      return loop.template Run<Native<T>, IntegerMin>();
    case ReduceOp::kMax:
      return loop.template Run<Native<T>, IntegerMax>();
    case ReduceOp::kProduct:
      return loop.template Run<Wrapping, Multiply>();
  }
}

template <class Loop>
void RunLoop(DType dtype, ReduceOp op, const Loop& loop) {
  switch (dtype) {
    case DType::kF32:
      return RunFloat<Native<float>>(op, loop);
    case DType::kF64:
      return RunFloat<Native<double>>(op, loop);
    case DType::kF16:
      return RunFloat<Float16>(op, loop);
    case DType::kBF16:
      return loop.Operates() ? RunFloat<Bfloat16Result>(op, loop) : RunFloat<Bfloat16>(op, loop);
    case DType::kI32:
      return RunInteger<int32_t, Product>(op, loop);
    case DType::kI64:
      return RunInteger<int64_t, Product>(op, loop);
    case DType::kU8:
      return RunInteger<uint8_t, ByteProduct>(op, loop);
  }
}

void ReducePairOnTarget(DType dtype, ReduceOp op, uint8_t* target, const uint8_t* first,
                        const uint8_t* second, size_t count) {
  RunLoop(dtype, op, PairLoop{target, first, second, count});
}

void ReduceAllOnTarget(DType dtype, ReduceOp op, uint8_t* const* targets, size_t target_count,
                       const uint8_t* const* sources, size_t source_count, size_t count,
                       int64_t divisor, bool past_caches) {
  RunLoop(dtype, op,
          ManyLoop{targets, target_count, sources, source_count, count, divisor, past_caches});
}

const char* NameOfTarget() { return hwy::TargetName(HWY_TARGET); }

}  // namespace muster::reduce_internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace muster::reduce_internal {

HWY_EXPORT(ReducePairOnTarget);
HWY_EXPORT(ReduceAllOnTarget);
HWY_EXPORT(NameOfTarget);

void ReducePair(DType dtype, ReduceOp op, uint8_t* target, const uint8_t* first,
                const uint8_t* second, size_t count) {
  HWY_DYNAMIC_DISPATCH(ReducePairOnTarget)(dtype, op, target, first, second, count);
}

void ReduceAll(DType dtype, ReduceOp op, uint8_t* const* targets, size_t target_count,
               const uint8_t* const* sources, size_t source_count, size_t count, int64_t divisor,
               bool past_caches) {
  HWY_DYNAMIC_DISPATCH(ReduceAllOnTarget)
  (dtype, op, targets, target_count, sources, source_count, count, divisor, past_caches);
}

const char* TargetName() { return HWY_DYNAMIC_DISPATCH(NameOfTarget)(); }

}  // namespace muster::reduce_internal
#endif  // HWY_ONCE
