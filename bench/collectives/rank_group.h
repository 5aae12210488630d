// The ranks of one implementation under measurement: processes (or threads) that wait, asleep, for
// commands and time all-reduces.
//
// Rank 0 reads commands, a line each, from standard input, "COUNT ITERATIONS VARIANT", and answers
// with "MICROSECONDS ERRORS": mean time of one all-reduce of COUNT f32 values, and how many values
// of all ranks were wrong. An empty or ended input ends the group. This is how bench-allreduce runs
// several implementations by turns in one run.
#ifndef MUSTER_BENCH_ALLREDUCE_RANK_GROUP_H_
#define MUSTER_BENCH_ALLREDUCE_RANK_GROUP_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace muster::bench {

// One rank of an implementation.
class AllReducer {
 public:
  virtual ~AllReducer() = default;
  // output = sum of all ranks' inputs. `variant` names the algorithm. Exits the process on errors.
  virtual void Run(const float* input, float* output, size_t count, const std::string& variant) = 0;
  // Memory for buffers, kept until the reducer's end.
  virtual float* Allocate(size_t count);
  // False where the implementation moves bytes without summing them (a bound).
  virtual bool Sums() const { return true; }

 private:
  std::vector<std::unique_ptr<float[]>> buffers_;
};

// Memory that all ranks share, for exchanging addresses while they start.
class Exchange {
 public:
  explicit Exchange(int ranks);
  // Publishes this rank's text (under 120 bytes) and waits for everybody's.
  std::vector<std::string> AllToAll(int rank, const std::string& text);

 private:
  struct Slot;
  const int ranks_;
  Slot* slots_;
};

using AllReducerFactory = std::function<std::unique_ptr<AllReducer>(int rank, Exchange& exchange)>;

// Serves commands until the input ends; returns the exit code. With `processes` each rank is
// forked.
int ServeRanks(int ranks, bool processes, const AllReducerFactory& factory);

// Times one command as rank `rank` of `ranks`; used by ServeRanks and by implementations that bring
// their own processes. Returns microseconds per all-reduce and counts wrong values into *errors.
double TimeAllReduce(AllReducer& reducer, int rank, int ranks, size_t count, int iterations,
                     const std::string& variant, int64_t* errors);

}  // namespace muster::bench

#endif  // MUSTER_BENCH_ALLREDUCE_RANK_GROUP_H_
