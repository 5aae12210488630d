#include "collectives/model/cost_model.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/check.h"
#include "collectives/schedule/cost.h"
#include "collectives/schedule/window_schedule.h"

namespace muster {
namespace {

// Other segments than the one configured must promise this much: what they do to caches is not
// modelled.
constexpr double kSegmentGain = 0.9;
// How much faster than shared memory messages must promise to be: where buffers turn out to be
// registered, it moves a third of the bytes that are predicted.
constexpr double kMessagesGain = 3;
constexpr int64_t kLeastSegment = 16 << 10;
constexpr int64_t kMostSegment = 4 << 20;
// Of larger meshes the cost is evaluated for some ranks alone.
constexpr int kMostEvaluated = 32;
// In one shot a rank holds the others' whole vectors: nobody asked for so much memory.
constexpr int64_t kMostHeldBytes = int64_t{4} << 20;

bool IsInteger(DType dtype) {
  switch (dtype) {
    case DType::kF32:
    case DType::kF64:
    case DType::kF16:
    case DType::kBF16:
      return false;
    case DType::kI32:
    case DType::kI64:
    case DType::kU8:
      return true;
  }
  return false;
}

// With two ranks these are the ring under other names.
bool IsRingOfTwo(Algorithm algorithm, int size) {
  return size <= 2 &&
         (algorithm == Algorithm::kHalvingDoubling || algorithm == Algorithm::kDoubleTree ||
          algorithm == Algorithm::kHierarchical);
}

bool MayHoldAll(const ChoiceRequest& request) {
  const int64_t held = kMostHeldBytes / std::max(1, request.size - 1);
  return request.count <= held / static_cast<int64_t>(SizeOf(request.dtype));
}

int64_t WholeCount(const ScheduleRequest& request) {
  int64_t whole = request.count;
  if (request.collective == Collective::kAllToAll) whole *= request.size;
  for (const int64_t count : request.counts) whole += count;
  return whole;
}

// All, or those that differ: roots, their neighbours, the ends and the middle.
std::vector<Rank> RanksToEvaluate(const ScheduleRequest& request) {
  std::vector<Rank> ranks;
  if (request.size <= kMostEvaluated) {
    for (Rank r = 0; r < request.size; ++r) ranks.push_back(r);
    return ranks;
  }
  for (const Rank r : {0, 1, request.root, request.root + 1, request.size / 2, request.size - 1}) {
    ranks.push_back(r % request.size);
  }
  return ranks;
}

// Bytes that each rank reads or writes in the one-pass schedule, over those of the whole vector.
double WindowPasses(Collective collective, int size) {
  switch (collective) {
    case Collective::kAllReduce:
    case Collective::kAllGather:
    case Collective::kBroadcast:
      return 2;
    case Collective::kReduceScatter:
      return 1 + 1.0 / size;
    case Collective::kBarrier:
    case Collective::kReduce:
    case Collective::kGather:
    case Collective::kScatter:
    case Collective::kAllToAll:
    case Collective::kSendReceive:
    case Collective::kPush:
    case Collective::kPull:
      break;
  }
  return 0;
}

std::string Time(double seconds) {
  if (seconds < 1e-3) return absl::StrFormat("%.1f us", seconds * 1e6);
  return absl::StrFormat("%.2f ms", seconds * 1e3);
}

std::string Size(int64_t bytes) {
  if (bytes >= 1 << 20 && bytes % (1 << 20) == 0) return absl::StrCat(bytes >> 20, " MiB");
  if (bytes >= 1 << 10 && bytes % (1 << 10) == 0) return absl::StrCat(bytes >> 10, " KiB");
  return absl::StrCat(bytes, " bytes");
}

Prediction PredictBest(const LinkModel& model, const ChoiceRequest& request, Algorithm algorithm) {
  const ScheduleRequest schedule = ToScheduleRequest(request, algorithm);
  const int64_t bytes = WholeCount(schedule) * static_cast<int64_t>(SizeOf(request.dtype));
  Prediction best{.algorithm = algorithm,
                  .segment_bytes = request.segment_bytes,
                  .factor = FactorOf(model, request.collective, algorithm, bytes)};
  best.seconds = PredictMessages(model, schedule, request.dtype, request.segment_bytes);
  double least = best.seconds * kSegmentGain;
  // What was measured counts more than what other segments promise.
  const bool measured = IsMeasured(model, request.collective, algorithm);
  for (const int64_t segment : {request.segment_bytes / 4, request.segment_bytes * 4}) {
    if (measured) break;
    if (segment < kLeastSegment || segment > kMostSegment) continue;
    const double seconds = PredictMessages(model, schedule, request.dtype, segment);
    if (seconds >= least) continue;
    least = best.seconds = seconds;
    best.segment_bytes = segment;
  }
  best.seconds *= best.factor;
  return best;
}

}  // namespace

bool KeepsBits(Collective collective, Algorithm algorithm, DType dtype, int size) {
  return size <= 2 || IsInteger(dtype) || KeepsCanonicalOrder(collective, algorithm);
}

ScheduleRequest ToScheduleRequest(const ChoiceRequest& request, Algorithm algorithm) {
  ScheduleRequest schedule;
  schedule.collective = request.collective;
  schedule.algorithm = algorithm;
  schedule.size = request.size;
  schedule.root = request.root;
  if (request.collective == Collective::kSendReceive) {
    schedule.destination = (request.root + 1) % request.size;
  }
  if (request.collective == Collective::kPush || request.collective == Collective::kPull) {
    schedule.contributors = request.contributors > 0 ? request.contributors : request.size;
  }
  if (request.collective == Collective::kPush) {
    schedule.order_counts = EvenCounts(request.count, schedule.contributors);
  }
  if (InputIsChunk(request.collective) || OutputIsChunk(request.collective)) {
    schedule.counts = EvenCounts(request.count, request.size);
  } else if (request.collective == Collective::kAllToAll) {
    schedule.count = request.count / request.size;
  } else if (request.collective != Collective::kBarrier) {
    schedule.count = request.count;
  }
  if (algorithm == Algorithm::kHierarchical) schedule.hosts = request.hosts;
  schedule.half_precision = Reduces(request.collective) && IsHalfPrecision(request.dtype);
  return schedule;
}

double PredictMessages(const LinkModel& model, const ScheduleRequest& request, DType dtype,
                       int64_t segment_bytes) {
  const auto element_bytes = static_cast<int64_t>(SizeOf(dtype));
  const int64_t whole = WholeCount(request) * element_bytes;
  const double wire = RateOf(model.wire, whole);
  const double reduce = RateOf(model.reduce, whole);
  double slowest = 0;
  ScheduleRequest own = request;
  for (const Rank rank : RanksToEvaluate(request)) {
    own.rank = rank;
    const ScheduleCost cost = CostOf(own);
    const int64_t sent = cost.elements_sent * element_bytes;
    const int64_t segments =
        std::max(cost.messages_sent, (sent + segment_bytes - 1) / segment_bytes);
    // A message for each hop is in the latency. What a rank does not send itself in the longest
    // chain, others send before it, of which all but a segment overlaps with its own.
    const int64_t waits = std::max<int64_t>(0, cost.hops - cost.messages_sent);
    const int64_t passing = cost.messages_sent > 0 ? sent / cost.messages_sent : whole;
    const double seconds =
        static_cast<double>(cost.hops) * model.latency_seconds +
        static_cast<double>(std::max<int64_t>(0, segments - cost.hops)) * model.message_seconds +
        static_cast<double>(sent + waits * std::min(passing, segment_bytes)) * wire +
        static_cast<double>(cost.elements_reduced * element_bytes) * reduce;
    slowest = std::max(slowest, seconds);
  }
  return slowest;
}

double PredictWindow(const LinkModel& model, const ChoiceRequest& request) {
  MUSTER_CHECK(request.window.has_value());
  const int64_t bytes = request.count * static_cast<int64_t>(SizeOf(request.dtype));
  const double rate = RateOf(model.shared, bytes);
  const auto size = static_cast<double>(request.size);
  const double passes = WindowPasses(request.collective, request.size);
  double seconds = model.meet_seconds;
  if (bytes <= request.window->small_limit_bytes) {
    // In, and every rank reads all and writes its result.
    const double touched = Reduces(request.collective) ? size + 2 : 3;
    if (passes > 0) seconds += touched * static_cast<double>(bytes) * rate;
  } else {
    // Staged, since whether buffers are registered is found out at the first meet: in and out
    // again.
    const int64_t half = std::max<int64_t>(1, request.window->half_bytes);
    const int64_t pieces = (bytes + half - 1) / half;
    seconds = static_cast<double>(pieces + 3) * model.meet_seconds +
              3 * passes * static_cast<double>(bytes) * rate;
  }
  return seconds;
}

AlgorithmChoice Choose(const LinkModel& model, const ChoiceRequest& request) {
  AlgorithmChoice choice;
  if (request.window.has_value() && WindowSchedule::Supports(request.collective)) {
    const int64_t bytes = request.count * static_cast<int64_t>(SizeOf(request.dtype));
    const double factor = FactorOf(model, request.collective, Algorithm::kWindow, bytes);
    choice.considered.push_back({.algorithm = Algorithm::kWindow,
                                 .segment_bytes = request.segment_bytes,
                                 .seconds = PredictWindow(model, request) * factor,
                                 .factor = factor});
  }
  for (const Algorithm algorithm : AlgorithmsOf(request.collective)) {
    if (algorithm == Algorithm::kHierarchical && request.hosts.empty()) continue;
    if (IsRingOfTwo(algorithm, request.size)) continue;
    if (algorithm == Algorithm::kOneShot && !MayHoldAll(request)) continue;
    if (!ValidateRequest(ToScheduleRequest(request, algorithm)).ok()) continue;
    if (!request.any_order &&
        !KeepsBits(request.collective, algorithm, request.dtype, request.size)) {
      choice.out_of_order.push_back(algorithm);
      continue;
    }
    choice.considered.push_back(PredictBest(model, request, algorithm));
  }
  MUSTER_CHECK(!choice.considered.empty()) << "no algorithm for " << Name(request.collective);
  std::stable_sort(choice.considered.begin(), choice.considered.end(),
                   [](const Prediction& a, const Prediction& b) { return a.seconds < b.seconds; });
  const auto window =
      std::find_if(choice.considered.begin(), choice.considered.end(),
                   [](const Prediction& each) { return each.algorithm == Algorithm::kWindow; });
  if (window != choice.considered.end() &&
      window->seconds < kMessagesGain * choice.considered[0].seconds) {
    std::rotate(choice.considered.begin(), window, window + 1);
  }
  choice.algorithm = choice.considered[0].algorithm;
  choice.segment_bytes = choice.considered[0].segment_bytes;
  return choice;
}

std::string Comparison(const AlgorithmChoice& choice) {
  std::vector<std::string> others;
  for (size_t i = 1; i < choice.considered.size(); ++i) {
    others.push_back(absl::StrCat(Name(choice.considered[i].algorithm), " ",
                                  Time(choice.considered[i].seconds)));
  }
  std::string text = absl::StrCat("predicted ", Time(choice.considered[0].seconds));
  if (others.empty()) return absl::StrCat(text, ", the only one there is");
  absl::StrAppend(&text, "; ", absl::StrJoin(others, ", "));
  // It is not the fastest of them by prediction, and a reader would wonder why it is taken.
  if (choice.algorithm == Algorithm::kWindow &&
      choice.considered[1].seconds < choice.considered[0].seconds) {
    absl::StrAppendFormat(&text, "; window is taken unless it is %.0f times as slow",
                          kMessagesGain);
  }
  return text;
}

std::string Explain(const LinkModel& model, const ChoiceRequest& request,
                    const AlgorithmChoice& choice) {
  std::string text =
      absl::StrFormat("%s of %s (%s) by %d ranks over %s: %s, ", Name(request.collective),
                      Size(request.count * static_cast<int64_t>(SizeOf(request.dtype))),
                      Name(request.dtype), request.size, model.transport, Name(choice.algorithm));
  if (choice.segment_bytes != request.segment_bytes) {
    absl::StrAppend(&text, "in segments of ", Size(choice.segment_bytes), ", ");
  }
  absl::StrAppend(&text, Comparison(choice));
  if (!choice.out_of_order.empty()) {
    const auto append = [](std::string* out, Algorithm algorithm) { out->append(Name(algorithm)); };
    absl::StrAppend(&text, "; left out, as they add in another order: ",
                    absl::StrJoin(choice.out_of_order, ", ", append));
  }
  return text;
}

}  // namespace muster
