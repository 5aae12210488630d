// What a mesh of ranks was measured to be capable of (collectives/tuner/measure.h): the numbers
// from which times of collectives are predicted. A plain value with a text form, in which it is
// agreed among ranks and kept in files. Pure, thread-safe.
//
// Numbers are measured while all ranks work at once, so that what they share (cores, a card)
// counts. A mesh has one set of them: that of its slowest links.
#ifndef MUSTER_COLLECTIVES_MODEL_LINK_MODEL_H_
#define MUSTER_COLLECTIVES_MODEL_LINK_MODEL_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "collectives/schedule/schedule.h"

namespace muster {

// Depends on how long the whole vector is: what does not fit caches is slower.
struct RateAt {
  int64_t bytes = 0;  // of the whole vector
  double seconds_per_byte = 0;
  bool operator==(const RateAt&) const = default;
};

// Measured time over predicted time of an algorithm: what the formula does not know of it.
struct FactorAt {
  Collective collective = Collective::kAllReduce;
  Algorithm algorithm = Algorithm::kRing;
  int64_t bytes = 0;  // of the whole vector
  double factor = 1;
  bool operator==(const FactorAt&) const = default;
};

struct LinkModel {
  std::string transport;  // Transport::name()
  int ranks = 1;
  double latency_seconds = 0;  // of a short message, from its post to its receipt
  double message_seconds = 0;  // that a further message of the same rank takes
  std::vector<RateAt> wire;    // of what a rank sends while it receives as much; ascending bytes
  // Of what a rank sends while it receives nothing, or the reverse; ascending bytes, empty: not
  // measured. As much as above where the directions are independent, down to half where they share
  // what limits them.
  std::vector<RateAt> one_way;
  std::vector<RateAt> reduce;  // of adding to a vector; ascending bytes
  // Where ranks share memory: a meet of all, and of each byte that a rank reads or writes there.
  double meet_seconds = 0;
  std::vector<RateAt> shared;     // ascending bytes; empty: they do not
  std::vector<FactorAt> factors;  // by collective, algorithm, ascending bytes
  bool operator==(const LinkModel&) const = default;
};

// Between two measured sizes rates and factors change evenly with the logarithm of the size;
// outside they stay what they are at the end. IEEE operations in a fixed order: the same on every
// host.
double RateOf(absl::Span<const RateAt> rates, int64_t bytes);  // 0 without rates
double FactorOf(const LinkModel& model, Collective collective, Algorithm algorithm, int64_t bytes);
// Whether such a factor was measured; otherwise it is 1.
bool IsMeasured(const LinkModel& model, Collective collective, Algorithm algorithm);

// Whether times can be predicted by it: FAILED_PRECONDITION says what was not measured, if latency,
// rates or what shared memory takes are missing or 0 (a rank alone has none of them).
absl::Status CheckMeasured(const LinkModel& model);

// Lines of words. Numbers are rounded to six digits: ranks agree on the text, not on a model.
std::string ToText(const LinkModel& model);
// INVALID_ARGUMENT names line and word. Takes what ToText gives and nothing that no measurement can
// yield: negative or endless times, sizes out of order.
absl::StatusOr<LinkModel> LinkModelFromText(absl::string_view text);

}  // namespace muster

#endif  // MUSTER_COLLECTIVES_MODEL_LINK_MODEL_H_
