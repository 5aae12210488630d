#include "collectives/tuner/measure.h"

#include <algorithm>
#include <array>
#include <functional>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "collectives/model/cost_model.h"
#include "collectives/reduce/reduce.h"

namespace muster {
namespace {

constexpr int64_t kMostTextBytes = 1 << 20;
// Vectors of which rates are measured, and those of which algorithms are.
constexpr int64_t kRateBytes[] = {64 << 10, 1 << 20, 4 << 20};
constexpr int64_t kFactorBytes[] = {256, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20};
// Of so many rounds the lower quartile counts, each of repetitions that take about this long
// together: what else runs on the host for a moment only ever adds, and a model is kept.
constexpr int kRounds = 7;
constexpr double kRoundSeconds = 1e-3;
constexpr int64_t kMostRepetitions = 40;
// Of a round's repetitions one in so many comes before, untimed: how long waits spin is learnt from
// those before, which were another probe's.
constexpr int64_t kWarmUpShare = 4;
// Share of the budget for the mesh's own numbers; the rest is for algorithms.
constexpr double kShareOfRates = 0.4;

// Of what a vector takes whose rate is measured, its bytes take this share at least.
constexpr double kLeastShareOfBytes = 0.1;
// Algorithms that the formula makes so many times slower than the best are not measured.
constexpr double kHopeless = 4;

using Probe = std::function<absl::Status()>;

double LowerQuartile(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 4];
}

// Of calls that only measure, or hand on what was.
CollectiveOptions OptionsFor(Algorithm algorithm) {
  CollectiveOptions options;
  options.label = "measurement";
  options.caller_waits = true;
  options.algorithm = algorithm;
  return options;
}

class Measurement {
 public:
  Measurement(Communicator& communicator, const MeasureOptions& options)
      : communicator_(communicator),
        options_(options),
        input_(static_cast<size_t>(options.largest_bytes) / sizeof(float), 1.0f),
        output_(input_.size()) {
    model_.transport = communicator.transport_name();
    model_.ranks = communicator.world_size();
  }

  absl::Status Run() {
    MUSTER_RETURN_IF_ERROR(MeasureLatency());
    for (const int64_t bytes : kRateBytes) {
      if (bytes > options_.largest_bytes) continue;
      MUSTER_ASSIGN_OR_RETURN(const bool done, MeasureRates(bytes));
      if (!done) break;
    }
    for (const int64_t bytes : kFactorBytes) {
      if (bytes > options_.largest_bytes) continue;
      for (const Collective collective : options_.collectives) {
        MUSTER_ASSIGN_OR_RETURN(const bool done, MeasureFactors(collective, bytes));
        if (!done) return absl::OkStatus();
      }
    }
    return absl::OkStatus();
  }

  LinkModel TakeModel() { return std::move(model_); }

 private:
  int size() const { return communicator_.world_size(); }

  absl::Status AllGather(int64_t bytes, Algorithm algorithm) {
    return RunCollective(communicator_, Collective::kAllGather,
                         bytes / static_cast<int64_t>(sizeof(float)), algorithm, input_.data(),
                         output_.data());
  }

  // Seconds of each probe on the slowest rank, of rounds in which they take turns; nothing if rank
  // 0 finds that it would take longer than until `share` of the budget is spent. `foreseen`: of all
  // probes, once each; 0: not known.
  absl::StatusOr<std::vector<double>> Time(double share, double foreseen,
                                           const std::vector<Probe>& probes) {
    const auto fits = [&](double seconds) {
      return absl::Seconds(seconds) <= start_ + share * options_.budget - absl::Now();
    };
    std::vector<int64_t> repetitions(probes.size(), fits((kRounds + 2) * foreseen) ? 1 : 0);
    MUSTER_RETURN_IF_ERROR(RootsWord(&repetitions));
    if (repetitions[0] == 0) return std::vector<double>();
    double expected = 0;
    for (size_t i = 0; i < probes.size(); ++i) {
      MUSTER_RETURN_IF_ERROR(probes[i]());  // Touches buffers, makes plans.
      const absl::Time start = absl::Now();
      MUSTER_RETURN_IF_ERROR(probes[i]());
      const double took = absl::ToDoubleSeconds(absl::Now() - start);
      repetitions[i] = std::clamp(static_cast<int64_t>(kRoundSeconds / std::max(took, 1e-9)),
                                  int64_t{1}, kMostRepetitions);
      expected +=
          kRounds * static_cast<double>(repetitions[i] + repetitions[i] / kWarmUpShare) * took;
    }
    if (!fits(expected)) std::fill(repetitions.begin(), repetitions.end(), 0);
    MUSTER_RETURN_IF_ERROR(RootsWord(&repetitions));
    if (repetitions[0] == 0) return std::vector<double>();
    std::vector<std::vector<double>> times(probes.size());
    for (int round = 0; round < kRounds; ++round) {
      for (size_t i = 0; i < probes.size(); ++i) {
        for (int64_t n = 0; n < repetitions[i] / kWarmUpShare; ++n) {
          MUSTER_RETURN_IF_ERROR(probes[i]());
        }
        const absl::Time start = absl::Now();
        for (int64_t n = 0; n < repetitions[i]; ++n) MUSTER_RETURN_IF_ERROR(probes[i]());
        times[i].push_back(absl::ToDoubleSeconds(absl::Now() - start) /
                           static_cast<double>(repetitions[i]));
      }
    }
    std::vector<double> typical;
    for (std::vector<double>& of_probe : times) {
      typical.push_back(LowerQuartile(std::move(of_probe)));
    }
    MUSTER_RETURN_IF_ERROR(Slowest(&typical));
    return typical;
  }

  // Of all ranks' values the largest, on all ranks. A collective is over when it is over for all:
  // whoever only sends at last, as a star's server does, is done before.
  absl::Status Slowest(std::vector<double>* values) {
    return communicator_
        .AllReduce(values->data(), values->data(), static_cast<int64_t>(values->size()),
                   DType::kF64, ReduceOp::kMax, OptionsFor(Algorithm::kDirect))
        .Wait();
  }

  // Rank 0's values on all ranks.
  template <typename T>
  absl::Status RootsWord(std::vector<T>* values) {
    return communicator_
        .Broadcast(values->data(), values->data(), static_cast<int64_t>(values->size() * sizeof(T)),
                   DType::kU8, 0, OptionsFor(Algorithm::kBinomialTree))
        .Wait();
  }

  // Half of a vector goes to one's neighbour, and then as much comes back: at any time one
  // direction is idle. Of an odd number of ranks the last has no neighbour.
  absl::Status ThereAndBack(int64_t count) {
    const CollectiveOptions options = OptionsFor(Algorithm::kAuto);
    const Rank self = communicator_.rank();
    const Rank peer = self % 2 == 0 ? self + 1 : self - 1;
    if (peer >= size()) return absl::OkStatus();
    for (const bool sends : {self % 2 == 0, self % 2 != 0}) {
      MUSTER_RETURN_IF_ERROR(
          sends ? communicator_.Send(input_.data(), count, DType::kF32, peer, options).Wait()
                : communicator_.Receive(output_.data(), count, DType::kF32, peer, options).Wait());
    }
    return absl::OkStatus();
  }

  absl::Status MeasureLatency() {
    const int64_t bytes = size() * static_cast<int64_t>(sizeof(float));
    MUSTER_ASSIGN_OR_RETURN(const std::vector<double> times,
                            Time(/*share=*/1, /*foreseen=*/0,
                                 {[&] { return AllGather(bytes, Algorithm::kRing); },
                                  [&] { return AllGather(bytes, Algorithm::kDirect); }}));
    if (times.empty() || size() == 1) return absl::OkStatus();
    const double hops = size() - 1;
    // Around the ring the messages follow each other, directly they go at once: of one as many as
    // of the other. Two ranks can't be told apart.
    const double ring = times[0] / hops;
    const double direct = times[1];
    model_.latency_seconds =
        size() == 2 ? ring : std::clamp((times[0] - direct) / (hops - 1), 0.1 * ring, ring);
    model_.message_seconds =
        size() == 2 ? 0 : std::max(0.0, direct - model_.latency_seconds) / (hops - 1);
    return absl::OkStatus();
  }

  // False: the time is spent.
  absl::StatusOr<bool> MeasureRates(int64_t bytes) {
    const int64_t count = bytes / static_cast<int64_t>(sizeof(float));
    std::vector<Probe> probes = {[&] { return AllGather(bytes, Algorithm::kRing); },
                                 [&] {
                                   ReduceInto(DType::kF32, ReduceOp::kSum, output_.data(),
                                              output_.data(), input_.data(), count);
                                   return absl::OkStatus();
                                 }};
    const ChoiceRequest request =
        communicator_.ChoiceRequestFor(Collective::kAllReduce, count, DType::kF32);
    const size_t window_at = probes.size() + 1;
    probes.push_back([&] { return size() > 1 ? ThereAndBack(count / 2) : absl::OkStatus(); });
    if (request.window.has_value()) {
      for (const int64_t elements : {int64_t{1}, count}) {
        probes.push_back([this, elements] {
          return RunCollective(communicator_, Collective::kAllReduce, elements, Algorithm::kWindow,
                               input_.data(), output_.data());
        });
      }
    }
    MUSTER_ASSIGN_OR_RETURN(const std::vector<double> times,
                            Time(kShareOfRates, foreseen_, probes));
    if (times.empty()) return false;
    // The next vector is this many times as long.
    foreseen_ = 16 * std::accumulate(times.begin(), times.end(), 0.0);
    // What the formula leaves to the rate, over what it makes of a rate of 1.
    ScheduleRequest gather;
    gather.collective = Collective::kAllGather;
    gather.algorithm = Algorithm::kRing;
    gather.size = size();
    gather.counts = EvenCounts(count, size());
    const auto rate = [](double time, double fixed, double with_one) {
      // Bytes take time, even where they are lost in the noise of the latency.
      const double of_bytes = std::max(kLeastShareOfBytes * time, time - fixed);
      return with_one > fixed ? of_bytes / (with_one - fixed) : 0.0;
    };
    LinkModel bare = model_;
    bare.wire.clear();
    LinkModel with_one = bare;
    with_one.wire = {{1, 1.0}};
    const auto predict = [&](const LinkModel& model) {
      return PredictMessages(model, gather, DType::kF32, request.segment_bytes);
    };
    model_.wire.push_back({bytes, rate(times[0], predict(bare), predict(with_one))});
    model_.reduce.push_back({bytes, times[1] / static_cast<double>(bytes)});
    if (size() > 1) MeasuredOneWay(bytes, request.segment_bytes, times[2]);
    if (request.window.has_value()) {
      if (model_.shared.empty()) model_.meet_seconds = times[window_at];
      bare.meet_seconds = with_one.meet_seconds = model_.meet_seconds;
      bare.shared.clear();
      with_one.shared = {{1, 1.0}};
      model_.shared.push_back({bytes, rate(times[window_at + 1], PredictWindow(bare, request),
                                           PredictWindow(with_one, request))});
    }
    return true;
  }

  // `time` of ThereAndBack with half of `bytes`. By what a direction is, its rate lies between half
  // of that of both and all of it; what is measured beyond is noise.
  void MeasuredOneWay(int64_t bytes, int64_t segment_bytes, double time) {
    const double wire = model_.wire.back().seconds_per_byte;
    const int64_t half = bytes / 2;
    const auto segments = static_cast<double>((half + segment_bytes - 1) / segment_bytes);
    const double fixed = model_.latency_seconds + (segments - 1) * model_.message_seconds;
    const double rate = (time / 2 - fixed) / static_cast<double>(half);
    model_.one_way.push_back({bytes, std::clamp(rate, wire / 2, wire)});
  }

  // False: the time is spent.
  absl::StatusOr<bool> MeasureFactors(Collective collective, int64_t bytes) {
    const int64_t count = bytes / static_cast<int64_t>(sizeof(float));
    LinkModel formula = model_;
    formula.factors.clear();
    const ChoiceRequest request = communicator_.ChoiceRequestFor(collective, count, DType::kF32);
    const AlgorithmChoice candidates = Choose(formula, request);
    std::vector<Probe> probes;
    std::vector<FactorAt> factors;
    double foreseen = 0;
    for (const Prediction& candidate : candidates.considered) {
      const Algorithm algorithm = candidate.algorithm;
      const double predicted = algorithm == Algorithm::kWindow
                                   ? PredictWindow(formula, request)
                                   : PredictMessages(formula, ToScheduleRequest(request, algorithm),
                                                     DType::kF32, request.segment_bytes);
      if (predicted <= 0 || predicted > kHopeless * candidates.considered[0].seconds) continue;
      foreseen += predicted;
      factors.push_back({collective, algorithm, bytes, 1 / predicted});
      probes.push_back([this, collective, count, algorithm] {
        return RunCollective(communicator_, collective, count, algorithm, input_.data(),
                             output_.data());
      });
    }
    if (probes.empty()) return true;
    MUSTER_ASSIGN_OR_RETURN(const std::vector<double> times, Time(/*share=*/1, foreseen, probes));
    if (times.empty()) return false;
    for (size_t i = 0; i < factors.size(); ++i) {
      factors[i].factor *= times[i];
      if (factors[i].factor > 0) model_.factors.push_back(factors[i]);
    }
    return true;
  }

  Communicator& communicator_;
  const MeasureOptions& options_;
  const absl::Time start_ = absl::Now();
  std::vector<float> input_;
  std::vector<float> output_;
  double foreseen_ = 0;  // seconds of the next rates
  LinkModel model_;
};

}  // namespace

absl::StatusOr<LinkModel> MeasureLinks(Communicator& communicator, const MeasureOptions& options) {
  Measurement measurement(communicator, options);
  MUSTER_RETURN_IF_ERROR(measurement.Run());
  // All have rank 0's numbers; one text of them is what all go by, however a host rounds.
  MUSTER_ASSIGN_OR_RETURN(const std::string text,
                          BroadcastText(communicator, 0, ToText(measurement.TakeModel())));
  return LinkModelFromText(text);
}

absl::StatusOr<std::string> BroadcastText(Communicator& communicator, Rank from,
                                          const std::string& text) {
  MUSTER_CHECK(communicator.rank() != from || static_cast<int64_t>(text.size()) <= kMostTextBytes);
  CollectiveOptions options;
  options.label = "link model";
  options.caller_waits = true;
  options.algorithm = Algorithm::kBinomialTree;
  int64_t size = static_cast<int64_t>(text.size());
  MUSTER_RETURN_IF_ERROR(
      communicator.Broadcast(&size, &size, 1, DType::kI64, from, options).Wait());
  if (size < 0 || size > kMostTextBytes) {
    return absl::InternalError(absl::StrCat("rank ", from, " announces a text of ", size,
                                            " bytes; expected 0 to ", kMostTextBytes));
  }
  std::string all = text;
  all.resize(static_cast<size_t>(size));
  MUSTER_RETURN_IF_ERROR(
      communicator.Broadcast(all.data(), all.data(), size, DType::kU8, from, options).Wait());
  return all;
}

absl::Status RunCollective(Communicator& communicator, Collective collective, int64_t count,
                           Algorithm algorithm, const float* input, float* output) {
  CollectiveOptions options;
  options.label = "measurement";
  options.caller_waits = true;
  options.algorithm = algorithm;
  const int size = communicator.world_size();
  constexpr DType kType = DType::kF32;
  constexpr ReduceOp kSum = ReduceOp::kSum;
  std::vector<int64_t> counts;
  if (InputIsChunk(collective) || OutputIsChunk(collective)) {
    counts = EvenCounts(count, size);
  }
  switch (collective) {
    case Collective::kAllReduce:
      return communicator.AllReduce(input, output, count, kType, kSum, options).Wait();
    case Collective::kReduceScatter:
      return communicator.ReduceScatter(input, output, counts, kType, kSum, options).Wait();
    case Collective::kAllGather:
      return communicator.AllGather(input, output, counts, kType, options).Wait();
    case Collective::kBroadcast:
      return communicator.Broadcast(input, output, count, kType, 0, options).Wait();
    case Collective::kBarrier:
      return communicator.Barrier(options).Wait();
    case Collective::kReduce:
      return communicator.Reduce(input, output, count, kType, kSum, 0, options).Wait();
    case Collective::kGather:
      return communicator.Gather(input, output, counts, kType, 0, options).Wait();
    case Collective::kScatter:
      return communicator.Scatter(input, output, counts, kType, 0, options).Wait();
    case Collective::kAllToAll:
      return communicator.AllToAll(input, output, count / size, kType, options).Wait();
    // As with no servers: every rank is a worker.
    case Collective::kPush:
      return communicator.Push(input, output, counts, counts, kType, kSum, options).Wait();
    case Collective::kPull:
      return communicator.Pull(input, output, counts, size, kType, options).Wait();
    case Collective::kSendReceive:
      break;
  }
  return absl::InvalidArgumentError(
      absl::StrCat(Name(collective), " is no collective of all ranks"));
}

}  // namespace muster
