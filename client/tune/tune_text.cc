// The part of tune_report.h that reads and writes text.
#include <limits>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/status_macros.h"
#include "client/tune/tune_report.h"
#include "nlohmann/json.hpp"

namespace muster {
namespace {

constexpr int64_t kMostBytes = int64_t{1} << 32;
constexpr int64_t kStep = 4;

absl::StatusOr<int64_t> ParseSize(absl::string_view word) {
  absl::string_view number = word;
  int64_t unit = 1;
  if (absl::ConsumeSuffix(&number, "KiB")) unit = 1 << 10;
  if (absl::ConsumeSuffix(&number, "MiB")) unit = 1 << 20;
  if (absl::ConsumeSuffix(&number, "GiB")) unit = 1 << 30;
  int64_t value = 0;
  if (!absl::SimpleAtoi(number, &value) || value < 1 || value > kMostBytes / unit ||
      value * unit % static_cast<int64_t>(sizeof(float)) != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("expected a size such as 4096, 64KiB or 1MiB, a multiple of 4 up to 4GiB, "
                     "got \"",
                     std::string(word), "\""));
  }
  return value * unit;
}

std::string SizeText(int64_t bytes) {
  if (bytes % (1 << 20) == 0) return absl::StrCat(bytes >> 20, "MiB");
  if (bytes % (1 << 10) == 0) return absl::StrCat(bytes >> 10, "KiB");
  return absl::StrCat(bytes);
}

std::string RatesText(absl::Span<const RateAt> rates) {
  std::vector<std::string> parts;
  for (const RateAt& at : rates) {
    if (at.seconds_per_byte <= 0) continue;
    parts.push_back(absl::StrFormat("%.2f at %s", 1e-9 / at.seconds_per_byte, SizeText(at.bytes)));
  }
  return absl::StrJoin(parts, ", ");
}

// Of a row: "ring 12.3 (13.1)", predicted and measured microseconds.
std::string CandidateText(const TuneRow& row, size_t i) {
  const Prediction& each = row.choice.considered[i];
  std::string text = absl::StrFormat("%s %.1f", Name(each.algorithm), each.seconds * 1e6);
  if (i < row.measured.size()) absl::StrAppendFormat(&text, " (%.1f)", row.measured[i] * 1e6);
  return text;
}

}  // namespace

absl::StatusOr<std::vector<int64_t>> ParseSizes(absl::string_view text) {
  std::vector<int64_t> sizes;
  for (const absl::string_view part : absl::StrSplit(text, ',')) {
    const std::pair<absl::string_view, absl::string_view> ends = absl::StrSplit(part, '-');
    MUSTER_ASSIGN_OR_RETURN(const int64_t first, ParseSize(ends.first));
    int64_t last = first;
    if (ends.first.size() != part.size()) {
      MUSTER_ASSIGN_OR_RETURN(last, ParseSize(part.substr(ends.first.size() + 1)));
    }
    if (last < first) {
      return absl::InvalidArgumentError(
          absl::StrCat("expected a range from small to large, got \"", std::string(part), "\""));
    }
    for (int64_t bytes = first; bytes <= last; bytes *= kStep) sizes.push_back(bytes);
  }
  return sizes;
}

std::vector<std::string> ReportLines(const TuneRequest& request, const TuneReport& report,
                                     bool explain) {
  const LinkModel& model = *report.model;
  std::vector<std::string> lines = {
      absl::StrFormat("# %s of f32 by %d ranks over %s, model %s", Name(request.collective),
                      request.ranks, model.transport, report.source),
      absl::StrFormat(
          "# latency %.2f us, a further message %.2f us; GB/s on the wire: %s; one way alone: %s; "
          "added: %s",
          model.latency_seconds * 1e6, model.message_seconds * 1e6, RatesText(model.wire),
          RatesText(model.one_way), RatesText(model.reduce))};
  if (!model.shared.empty()) {
    lines.push_back(absl::StrFormat("# a meet in shared memory %.2f us; GB/s read or written: %s",
                                    model.meet_seconds * 1e6, RatesText(model.shared)));
  }
  for (const std::string& warning : report.warnings) lines.push_back("# warning: " + warning);
  lines.push_back(absl::StrFormat("#%7s %-20s %8s %s%s", "size", "chosen", "segment",
                                  request.verify ? "of best  " : "",
                                  request.verify ? "us predicted (measured)" : "us predicted"));
  for (const TuneRow& row : report.rows) {
    std::vector<std::string> candidates;
    for (size_t i = 0; i < row.choice.considered.size(); ++i) {
      candidates.push_back(CandidateText(row, i));
    }
    lines.push_back(absl::StrFormat("%8s %-20s %8s %s%s", SizeText(row.bytes),
                                    Name(row.choice.algorithm), SizeText(row.choice.segment_bytes),
                                    request.verify ? absl::StrFormat("%-8.3f ", row.ratio()) : "",
                                    absl::StrJoin(candidates, ", ")));
    if (explain) lines.push_back(absl::StrCat("         ", row.why));
  }
  return lines;
}

std::vector<std::string> ReportJson(const TuneRequest& request, const TuneReport& report) {
  std::vector<std::string> lines;
  for (const TuneRow& row : report.rows) {
    nlohmann::ordered_json json = {{"transport", request.transport},
                                   {"ranks", request.ranks},
                                   {"collective", Name(request.collective)},
                                   {"bytes", row.bytes},
                                   {"algorithm", Name(row.choice.algorithm)},
                                   {"segment_bytes", row.choice.segment_bytes},
                                   {"predicted_us", row.choice.considered[0].seconds * 1e6},
                                   {"model", report.source},
                                   {"why", row.why}};
    auto& candidates = json["candidates"] = nlohmann::ordered_json::array();
    for (size_t i = 0; i < row.choice.considered.size(); ++i) {
      const Prediction& each = row.choice.considered[i];
      candidates.push_back({{"algorithm", Name(each.algorithm)},
                            {"predicted_us", each.seconds * 1e6},
                            {"measured_factor", each.factor}});
      if (i < row.measured.size()) candidates.back()["measured_us"] = row.measured[i] * 1e6;
    }
    if (request.verify) {
      json["chosen_us"] = row.chosen_seconds * 1e6;
      json["best"] = Name(row.best);
      json["best_us"] = row.best_seconds * 1e6;
      json["ratio"] = row.ratio();
    }
    if (!report.warnings.empty()) json["warnings"] = report.warnings;
    lines.push_back(json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
  }
  return lines;
}

}  // namespace muster
