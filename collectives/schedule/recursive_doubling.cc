#include "collectives/schedule/recursive_doubling.h"

#include <bit>

#include "collectives/schedule/builder.h"

namespace muster::schedule_internal {
namespace {

// Where the successive sums of a rank go. In a round a rank sends one sum while it makes the next,
// so each goes to the other of two buffers than the one before; the last belongs in the output.
class AlternatingSums {
 public:
  // `sums` are to be made, of which the first may replace its own source if `first_in_place`.
  AlternatingSums(ScheduleBuilder& builder, int sums, bool first_in_place)
      : output_(builder.WholeOutput()), current_(builder.WholeInput()) {
    next_is_output_ = sums % 2 == 1;
    // An input that is the output can't be sent and be overwritten by its first sum at once.
    if (next_is_output_ && current_ == output_ && !first_in_place) next_is_output_ = false;
    if (sums >= 2 || !next_is_output_) scratch_ = builder.TakeScratch(output_.count);
  }
  const Slice& current() const { return current_; }
  const Slice& next() const { return next_is_output_ ? output_ : scratch_; }
  void Advance() {
    current_ = next();
    next_is_output_ = !next_is_output_;
  }

 private:
  Slice output_;
  Slice scratch_;
  Slice current_;
  bool next_is_output_ = false;
};

}  // namespace

Schedule RecursiveDoublingAllReduce(const ScheduleRequest& request) {
  ScheduleBuilder builder(request);
  const Slice output = builder.WholeOutput();
  const Rank rank = request.rank;
  const int core = static_cast<int>(std::bit_floor(static_cast<unsigned>(request.size)));
  const int folded = request.size - core;
  const bool in_fold = rank < 2 * folded;
  if (request.size == 1) {
    builder.AddCopy(builder.WholeInput(), output);
    return builder.Take();
  }
  if (in_fold && rank % 2 == 0) {
    builder.Add(Send(rank + 1, builder.WholeInput()));
    builder.Add(Recv(rank + 1, output));
    return builder.Take();
  }
  const int rounds = std::bit_width(static_cast<unsigned>(core)) - 1;
  AlternatingSums sums(builder, rounds + (in_fold ? 1 : 0), in_fold);
  if (in_fold) {
    builder.Add(RecvReduce(rank - 1, sums.current(), sums.next(), /*completes_sum=*/false));
    sums.Advance();
  }
  const int number = in_fold ? rank / 2 : rank - folded;  // among the core
  for (int distance = 1; distance < core; distance *= 2) {
    const int other = number ^ distance;
    const Rank peer = other < folded ? 2 * other + 1 : other + folded;
    builder.AddShift(number, distance, {Send(peer, sums.current())},
                     {RecvReduce(peer, sums.current(), sums.next(), 2 * distance == core)});
    sums.Advance();
  }
  builder.AddCopy(sums.current(), output);
  if (in_fold) builder.Add(Send(rank - 1, output));
  return builder.Take();
}

}  // namespace muster::schedule_internal
