// One thing to measure: a collective of so many elements of a type. Sizes and bandwidths are those
// of nccl-tests (doc/PERFORMANCE.md there).
//
// Pure functions. Needs no more than the C++ library, so that peers can share it.
#ifndef MUSTER_BENCH_COLLECTIVES_TRIAL_H_
#define MUSTER_BENCH_COLLECTIVES_TRIAL_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace muster::bench {

enum class Kind : uint8_t {
  kAllReduce,
  kReduceScatter,
  kAllGather,
  kBroadcast,
  kReduce,
  kGather,
  kScatter,
  kAllToAll,
  kSendReceive,  // everyone sends to the next rank and receives from the one before
  kBarrier,
};

enum class ElementType : uint8_t { kF32, kF64, kF16, kBF16, kI32 };
enum class Redop : uint8_t { kSum, kAverage, kMin, kMax };

// Trivially copyable: ranks hand it on as it is.
struct Trial {
  Kind kind = Kind::kAllReduce;
  ElementType type = ElementType::kF32;
  Redop redop = Redop::kSum;
  bool in_place = false;
  int32_t root = 0;
  int32_t iterations = 0;
  // As nccl-tests counts: of the whole vector for all-reduce, broadcast, reduce and send-receive;
  // of one rank's part, or one pair's, for the others.
  uint64_t count = 0;
  char variant[20] = "auto";  // the implementation's own word
};

// "all-reduce", "f32", "sum". The inverse is empty for what is no name.
const char* Name(Kind kind);
const char* Name(ElementType type);
const char* Name(Redop redop);
std::optional<Kind> KindFromName(const std::string& name);
std::optional<ElementType> TypeFromName(const std::string& name);
std::optional<Redop> RedopFromName(const std::string& name);
std::vector<std::string> KindNames();
std::vector<std::string> TypeNames();
std::vector<std::string> RedopNames();

size_t SizeOf(ElementType type);
bool Reduces(Kind kind);
bool HasRoot(Kind kind);
// Input and output may be one memory.
bool WorksInPlace(Kind kind);

// The count of a vector of `bytes`, at least 1; 0 for a barrier.
uint64_t CountOf(Kind kind, ElementType type, int ranks, uint64_t bytes);
// Elements of the larger of input and output: nccl-tests' size.
uint64_t WholeCount(const Trial& trial, int ranks);
// Elements that a rank gives and gets; 0 where it gives or gets nothing.
uint64_t InputCount(const Trial& trial, int rank, int ranks);
uint64_t OutputCount(const Trial& trial, int rank, int ranks);
// In place: where input and output begin within the one memory, in elements.
uint64_t InputOffsetInPlace(const Trial& trial, int rank);
uint64_t OutputOffsetInPlace(const Trial& trial, int rank);

// Bus bandwidth is this times the size by the time; 0 for a barrier.
double BusFactor(Kind kind, int ranks);

// A line of text, and back; empty for what is none.
std::string Format(const Trial& trial);
std::optional<Trial> ParseTrial(const std::string& line);

}  // namespace muster::bench

#endif  // MUSTER_BENCH_COLLECTIVES_TRIAL_H_
