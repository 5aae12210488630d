#include "client/summary.h"

#include <cmath>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "client/output/job_text.h"
#include "nlohmann/json.hpp"

namespace muster {
namespace {

using Json = nlohmann::ordered_json;

Json Number(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }
Json Text(const std::string& value) { return value.empty() ? Json(nullptr) : Json(value); }

}  // namespace

void RunSummary::Update(const v1::Job& job) {
  job_ = job;
  for (const v1::ViewChange& change : job.view_changes()) {
    if (change.cause() != v1::VIEW_CHANGE_CAUSE_START) changes_[change.epoch()] = change;
  }
}

const v1::Progress& RunSummary::progress() const {
  return job_.has_final_report() ? job_.final_report().progress() : job_.progress();
}

std::string RunSummary::Json() const {
  const bool has_steps = progress().step() > 0;
  const auto measured = [&](double value) {
    return has_steps ? Number(value) : nlohmann::ordered_json(nullptr);
  };
  nlohmann::ordered_json changes = nlohmann::ordered_json::array();
  for (const auto& [epoch, change] : changes_) {
    changes.push_back(
        {{"epoch", epoch},
         {"cause", Name(change.cause())},
         {"worker", absl::StrJoin(change.workers(), ",")},
         {"duration_ms", change.has_duration_ms() ? Number(change.duration_ms())
                                                  : nlohmann::ordered_json(nullptr)}});
  }
  nlohmann::ordered_json summary = {
      {"job", job_.description().name()},
      {"steps", progress().step()},
      {"final_loss", measured(progress().loss())},
      {"test_accuracy", progress().has_test_accuracy() ? measured(progress().test_accuracy())
                                                       : nlohmann::ordered_json(nullptr)},
      {"view_changes", std::move(changes)},
      {"step_ms_p50", measured(progress().step_ms_p50())},
      {"step_ms_p99", measured(progress().step_ms_p99())},
      {"comm_wait_share", measured(progress().comm_wait_share())},
      {"checkpoint", muster::Text(NewestCheckpoint(job_))},
      {"parameters_sha256", muster::Text(job_.final_report().parameters_sha256())},
      {"job_id", muster::Text(job_.id())},
      {"state", job_.id().empty() ? nlohmann::ordered_json(nullptr)
                                  : nlohmann::ordered_json(Name(job_.state()))},
      {"reason", muster::Text(job_.reason())}};
  return summary.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

std::string RunSummary::Text(absl::Duration elapsed) const {
  const v1::Progress& end = progress();
  std::vector<std::vector<std::string>> rows = {
      {"job", absl::StrCat(job_.description().name(), " (", job_.id(), ") ", Name(job_.state()))}};
  if (job_.state() != v1::JOB_STATE_SUCCEEDED && !job_.reason().empty()) {
    rows.push_back({"reason", job_.reason()});
  }
  rows.push_back({"steps", absl::StrCat(end.step(), " of ", job_.total_steps())});
  if (end.skipped_steps() > 0) {
    rows.push_back({"skipped", absl::StrCat(end.skipped_steps(), " updates were not finite")});
  }
  if (end.step() > 0) {
    rows.push_back({"loss", absl::StrFormat("%.4f", end.loss())});
    rows.push_back({"test accuracy", end.has_test_accuracy()
                                         ? absl::StrFormat("%.4f", end.test_accuracy())
                                         : "not evaluated"});
    rows.push_back({"time", absl::StrFormat("%.1f s", absl::ToDoubleSeconds(elapsed))});
    rows.push_back({"step time", absl::StrFormat("p50 %.2f ms, p99 %.2f ms", end.step_ms_p50(),
                                                 end.step_ms_p99())});
    rows.push_back({"waiting for communication",
                    absl::StrFormat("%.1f%% of step time", 100 * end.comm_wait_share())});
  }
  rows.push_back({"view changes", absl::StrCat(changes_.size())});
  for (const auto& [epoch, change] : changes_) rows.push_back({"", ViewChangeText(change)});
  const std::string checkpoint = NewestCheckpoint(job_);
  rows.push_back({"checkpoint", checkpoint.empty() ? "none" : checkpoint});
  if (!job_.final_report().parameters_sha256().empty()) {
    rows.push_back(
        {"parameters", absl::StrCat("sha256 ", job_.final_report().parameters_sha256())});
  }
  return FormatTable(rows);
}

}  // namespace muster
