#include "collectives/model/link_model.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "base/status_macros.h"
#include "collectives/schedule/schedule_request.h"

namespace muster {
namespace {

constexpr char kFirstLine[] = "muster-link-model 1";
constexpr int kMaxRows = 4096;  // of any kind

// Even within each octave: library logarithms may differ between hosts in the last bit.
double RoughLog2(int64_t value) {
  int exponent = 0;
  const double fraction = std::frexp(static_cast<double>(value < 1 ? 1 : value), &exponent);
  return exponent + 2 * fraction - 2;
}

struct Point {
  int64_t bytes;
  double value;
};

double Between(const Point& low, const Point& high, int64_t bytes) {
  if (bytes <= low.bytes) return low.value;
  if (bytes >= high.bytes) return high.value;
  const double position =
      (RoughLog2(bytes) - RoughLog2(low.bytes)) / (RoughLog2(high.bytes) - RoughLog2(low.bytes));
  return low.value + (high.value - low.value) * position;
}

double ValueAt(absl::Span<const Point> points, int64_t bytes) {
  for (size_t i = 1; i < points.size(); ++i) {
    if (bytes <= points[i].bytes) return Between(points[i - 1], points[i], bytes);
  }
  return points.back().value;
}

std::vector<Point> PointsOf(const LinkModel& model, Collective collective, Algorithm algorithm) {
  std::vector<Point> points;
  for (const FactorAt& at : model.factors) {
    if (at.collective == collective && at.algorithm == algorithm) {
      points.push_back({at.bytes, at.factor});
    }
  }
  return points;
}

// The halves of an all-reduce are measured with it.
std::vector<Point> PointsFor(const LinkModel& model, Collective collective, Algorithm algorithm) {
  std::vector<Point> points = PointsOf(model, collective, algorithm);
  if (points.empty() &&
      (collective == Collective::kReduceScatter || collective == Collective::kAllGather)) {
    points = PointsOf(model, Collective::kAllReduce, algorithm);
  }
  return points;
}

template <typename Enum>
std::optional<Enum> FromName(absl::Span<const Enum> all, absl::string_view name) {
  for (const Enum each : all) {
    if (name == Name(each)) return each;
  }
  return std::nullopt;
}

constexpr Algorithm kAlgorithms[] = {Algorithm::kRing,
                                     Algorithm::kDirect,
                                     Algorithm::kRecursiveDoubling,
                                     Algorithm::kDoubleTree,
                                     Algorithm::kHierarchical,
                                     Algorithm::kHalvingDoubling,
                                     Algorithm::kStar,
                                     Algorithm::kBruck,
                                     Algorithm::kBinomialTree,
                                     Algorithm::kWindow,
                                     Algorithm::kScatterAllGather,
                                     Algorithm::kOneShot};

// Reads one line after the other into a model.
class Reader {
 public:
  absl::Status Add(absl::string_view line) {
    const std::vector<absl::string_view> words = absl::StrSplit(line, ' ');
    const absl::string_view key = words[0];
    if (++rows_ > kMaxRows) return absl::InvalidArgumentError("too many lines");
    if (key == "transport" && words.size() == 2) {
      model_.transport = std::string(words[1]);
      return absl::OkStatus();
    }
    if (key == "ranks" && words.size() == 2) {
      if (!absl::SimpleAtoi(words[1], &model_.ranks) || model_.ranks < 1 ||
          model_.ranks > kMaxScheduleRanks) {
        return Bad(words[1], absl::StrCat("1 to ", kMaxScheduleRanks));
      }
      return absl::OkStatus();
    }
    if (key == "latency" && words.size() == 2) return Number(words[1], &model_.latency_seconds);
    if (key == "message" && words.size() == 2) return Number(words[1], &model_.message_seconds);
    if (key == "meet" && words.size() == 2) return Number(words[1], &model_.meet_seconds);
    if (key == "wire" && words.size() == 3) return Rate(words, &model_.wire);
    if (key == "one-way" && words.size() == 3) return Rate(words, &model_.one_way);
    if (key == "reduce" && words.size() == 3) return Rate(words, &model_.reduce);
    if (key == "shared" && words.size() == 3) return Rate(words, &model_.shared);
    if (key == "factor" && words.size() == 5) return Factor(words);
    return Bad(key,
               "transport, ranks, latency, message, meet, wire, one-way, reduce, shared or factor");
  }

  absl::StatusOr<LinkModel> Take() {
    if (model_.transport.empty()) return absl::InvalidArgumentError("names no transport");
    return std::move(model_);
  }

 private:
  static absl::Status Bad(absl::string_view word, const std::string& expected) {
    return absl::InvalidArgumentError(
        absl::StrCat("expected ", expected, ", got \"", std::string(word), "\""));
  }

  static absl::Status Number(absl::string_view word, double* value) {
    if (!absl::SimpleAtod(word, value) || !std::isfinite(*value) || *value < 0) {
      return Bad(word, "a number, not below 0");
    }
    return absl::OkStatus();
  }

  static absl::Status Size(absl::string_view word, int64_t above, int64_t* bytes) {
    if (!absl::SimpleAtoi(word, bytes) || *bytes <= above) {
      return Bad(word, absl::StrCat("a size above ", above));
    }
    return absl::OkStatus();
  }

  static absl::Status Rate(absl::Span<const absl::string_view> words, std::vector<RateAt>* rates) {
    RateAt at;
    MUSTER_RETURN_IF_ERROR(Size(words[1], rates->empty() ? 0 : rates->back().bytes, &at.bytes));
    MUSTER_RETURN_IF_ERROR(Number(words[2], &at.seconds_per_byte));
    rates->push_back(at);
    return absl::OkStatus();
  }

  absl::Status Factor(absl::Span<const absl::string_view> words) {
    const auto collective = FromName<Collective>(kAllCollectives, words[1]);
    if (!collective.has_value()) return Bad(words[1], "a collective");
    const auto algorithm = FromName<Algorithm>(kAlgorithms, words[2]);
    if (!algorithm.has_value()) return Bad(words[2], "an algorithm");
    FactorAt at{.collective = *collective, .algorithm = *algorithm};
    const std::vector<Point> before = PointsOf(model_, *collective, *algorithm);
    MUSTER_RETURN_IF_ERROR(Size(words[3], before.empty() ? 0 : before.back().bytes, &at.bytes));
    MUSTER_RETURN_IF_ERROR(Number(words[4], &at.factor));
    if (at.factor == 0) return Bad(words[4], "a factor above 0");
    model_.factors.push_back(at);
    return absl::OkStatus();
  }

  LinkModel model_;
  int rows_ = 0;
};

void AppendRates(absl::string_view key, absl::Span<const RateAt> rates, std::string* text) {
  for (const RateAt& at : rates) {
    absl::StrAppendFormat(text, "%s %d %.6g\n", std::string(key), at.bytes, at.seconds_per_byte);
  }
}

}  // namespace

double RateOf(absl::Span<const RateAt> rates, int64_t bytes) {
  std::vector<Point> points;
  for (const RateAt& at : rates) points.push_back({at.bytes, at.seconds_per_byte});
  return points.empty() ? 0 : ValueAt(points, bytes);
}

double FactorOf(const LinkModel& model, Collective collective, Algorithm algorithm, int64_t bytes) {
  const std::vector<Point> points = PointsFor(model, collective, algorithm);
  return points.empty() ? 1 : ValueAt(points, bytes);
}

bool IsMeasured(const LinkModel& model, Collective collective, Algorithm algorithm) {
  return !PointsFor(model, collective, algorithm).empty();
}

absl::Status CheckMeasured(const LinkModel& model) {
  if (model.ranks == 1) return absl::OkStatus();
  const auto positive = [](absl::Span<const RateAt> rates) {
    return std::all_of(rates.begin(), rates.end(),
                       [](const RateAt& at) { return at.seconds_per_byte > 0; });
  };
  const char* missing = nullptr;
  if (!(model.latency_seconds > 0)) {
    missing = "latency";
  } else if (model.wire.empty() || !positive(model.wire) || !positive(model.one_way)) {
    missing = "the rate of links";
  } else if (model.reduce.empty() || !positive(model.reduce)) {
    missing = "the rate of adding";
  } else if (!positive(model.shared) || (!model.shared.empty() && !(model.meet_seconds > 0))) {
    missing = "the rate of shared memory";
  }
  if (missing == nullptr) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(missing, " of ", model.ranks, " ranks over ",
                                                    model.transport, " was not measured"));
}

std::string ToText(const LinkModel& model) {
  std::string text =
      absl::StrFormat("%s\ntransport %s\nranks %d\nlatency %.6g\nmessage %.6g\nmeet %.6g\n",
                      kFirstLine, model.transport, model.ranks, model.latency_seconds,
                      model.message_seconds, model.meet_seconds);
  AppendRates("wire", model.wire, &text);
  AppendRates("one-way", model.one_way, &text);
  AppendRates("reduce", model.reduce, &text);
  AppendRates("shared", model.shared, &text);
  for (const FactorAt& at : model.factors) {
    absl::StrAppendFormat(&text, "factor %s %s %d %.6g\n", Name(at.collective), Name(at.algorithm),
                          at.bytes, at.factor);
  }
  return text;
}

absl::StatusOr<LinkModel> LinkModelFromText(absl::string_view text) {
  Reader reader;
  int number = 0;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    ++number;
    if (number == 1) {
      if (line == kFirstLine) continue;
      return absl::InvalidArgumentError(
          absl::StrCat("line 1: expected \"", kFirstLine, "\", got ", line.size(), " other bytes"));
    }
    if (line.empty()) continue;
    MUSTER_RETURN_IF_ERROR(Annotate(reader.Add(line), absl::StrCat("line ", number)));
  }
  return reader.Take();
}

}  // namespace muster
