// What the tuner chooses on this host, and how good that is.
#ifndef MUSTER_CLIENT_TUNE_TUNE_REPORT_H_
#define MUSTER_CLIENT_TUNE_TUNE_REPORT_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/file.h"
#include "collectives/model/cost_model.h"
#include "collectives/model/link_model.h"

namespace muster {

struct TuneRequest {
  std::string transport;
  int ranks = 2;
  Collective collective = Collective::kAllReduce;
  std::vector<int64_t> bytes;  // of the whole f32 vector
  bool any_order = false;
  bool verify = false;  // measures every candidate
  int rounds = 15;      // of which the median counts
  absl::Duration budget = absl::Milliseconds(600);
  std::string cache_directory;  // empty: none
  std::string host;             // this one
  std::string software_version;
};

struct TuneRow {
  int64_t bytes = 0;
  AlgorithmChoice choice;
  std::string why;
  // Seconds of each candidate, as choice.considered; empty: not verified.
  std::vector<double> measured;
  double chosen_seconds = 0;  // as chosen, its segments included
  double best_seconds = 0;
  Algorithm best = Algorithm::kAuto;
  // How much longer the choice takes than the best: 1 where it is the best.
  double ratio() const { return best_seconds > 0 ? chosen_seconds / best_seconds : 1; }
};

struct TuneReport {
  std::shared_ptr<const LinkModel> model;
  std::string source;
  std::vector<std::string> warnings;
  std::vector<TuneRow> rows;
};

// Measures, with threads as ranks; takes about the budget, and with `verify` seconds for each size.
// FAILED_PRECONDITION: the budget is too short to measure the links.
absl::StatusOr<TuneReport> MakeTuneReport(const TuneRequest& request, FileSystem& files);

// "1KiB-64MiB" (by fours), "64KiB,1MiB", "4096": in bytes, each a multiple of 4. INVALID_ARGUMENT
// says what is wrong.
absl::StatusOr<std::vector<int64_t>> ParseSizes(absl::string_view text);

// For people. With `explain` a line says why of each row.
std::vector<std::string> ReportLines(const TuneRequest& request, const TuneReport& report,
                                     bool explain);
// An object for each row.
std::vector<std::string> ReportJson(const TuneRequest& request, const TuneReport& report);

}  // namespace muster

#endif  // MUSTER_CLIENT_TUNE_TUNE_REPORT_H_
