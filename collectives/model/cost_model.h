// From the numbers of a mesh to times of collectives, and from these to a choice of algorithm and
// segment size, with its reasons. Pure functions, thread-safe; the same answers on all ranks, which
// give the same arguments.
#ifndef MUSTER_COLLECTIVES_MODEL_COST_MODEL_H_
#define MUSTER_COLLECTIVES_MODEL_COST_MODEL_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "base/dtype.h"
#include "collectives/model/link_model.h"
#include "collectives/schedule/schedule.h"
#include "collectives/schedule/schedule_request.h"

namespace muster {

// What is to be done, as far as it bears on the choice.
struct ChoiceRequest {
  Collective collective = Collective::kAllReduce;
  int64_t count = 0;  // elements of the whole vector; of an all-to-all those of one rank
  DType dtype = DType::kF32;
  int size = 1;  // ranks that take part
  Rank root = 0;
  int contributors = 0;  // push, pull: how many are workers; 0: all
  // Sums may be added in any order. Otherwise only algorithms whose bits are those of the canonical
  // order are candidates: with two ranks all are, as a + b = b + a, and of integers all are.
  bool any_order = false;
  std::vector<int32_t> hosts;  // of each rank; empty: not known
  // Unless another is clearly better.
  int64_t segment_bytes = 256 << 10;
  // Where the ranks share memory (window_schedule.h).
  struct Window {
    int64_t small_limit_bytes = 0;
    int64_t half_bytes = 0;  // of a stage's part
  };
  std::optional<Window> window;
};

struct Prediction {
  Algorithm algorithm = Algorithm::kRing;
  int64_t segment_bytes = 0;
  double seconds = 0;
  double factor = 1;  // of it that was measured (LinkModel::factors)
};

struct AlgorithmChoice {
  Algorithm algorithm = Algorithm::kRing;
  int64_t segment_bytes = 0;
  std::vector<Prediction> considered;   // the chosen one, then the fastest first; one at least
  std::vector<Algorithm> out_of_order;  // that add in an order of their own, and were left out
};

// Algorithms whose bits do not depend on it are those of the canonical order for `size` ranks.
bool KeepsBits(Collective collective, Algorithm algorithm, DType dtype, int size);

// Seconds that the slowest rank takes. `request` asks for an algorithm by messages, as rank 0; its
// chunks are those of EvenCounts.
double PredictMessages(const LinkModel& model, const ScheduleRequest& request, DType dtype,
                       int64_t segment_bytes);
// The same in shared memory. Requires: request.window.
double PredictWindow(const LinkModel& model, const ChoiceRequest& request);

// `request` as a schedule's, by one algorithm.
ScheduleRequest ToScheduleRequest(const ChoiceRequest& request, Algorithm algorithm);

// The fastest; of equals the first that AlgorithmsOf names. Shared memory unless another is far
// faster: whether buffers are registered, which the prediction cannot know, makes it up to three
// times as fast.
AlgorithmChoice Choose(const LinkModel& model, const ChoiceRequest& request);

// The same without what was asked: "predicted 12.0 us; direct 14.1 us".
std::string Comparison(const AlgorithmChoice& choice);

// One line: what was chosen, what the others would take, and what was left out.
std::string Explain(const LinkModel& model, const ChoiceRequest& request,
                    const AlgorithmChoice& choice);

}  // namespace muster

#endif  // MUSTER_COLLECTIVES_MODEL_COST_MODEL_H_
