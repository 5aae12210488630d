#include "client/output/job_display.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "client/output/job_text.h"
#include "client/output/message_json.h"

namespace muster {
namespace {

constexpr absl::Duration kPlainInterval = absl::Seconds(2);

}  // namespace

void JobDisplay::Update(const v1::Job& job, absl::Time now) {
  if (json_) {
    console_->Line(MessageToJson(job));
    return;
  }
  for (const v1::ViewChange& change : job.view_changes()) {
    if (change.epoch() <= newest_epoch_) continue;
    newest_epoch_ = change.epoch();
    console_->Line(absl::StrCat(job.description().name(), " ", ViewChangeText(change)));
  }
  // Once, not with each one that fails.
  const bool fail = job.failed_checkpoints_size() > 0;
  if (std::exchange(checkpoints_fail_, fail) != fail) {
    for (const v1::FailedCheckpoint& failed : job.failed_checkpoints()) {
      console_->Line(absl::StrCat(job.description().name(),
                                  " checkpoint failed: ", FailedCheckpointText(failed)));
    }
    if (!fail && !NewestCheckpoint(job).empty()) {
      console_->Line(absl::StrCat(job.description().name(),
                                  " checkpoints are written again: ", NewestCheckpoint(job)));
    }
  }
  const bool state_changed = job.state() != state_ || job.reason() != reason_;
  state_ = job.state();
  reason_ = job.reason();
  const bool ended = job.state() == v1::JOB_STATE_SUCCEEDED ||
                     job.state() == v1::JOB_STATE_FAILED || job.state() == v1::JOB_STATE_CANCELLED;
  if (console_->is_terminal()) {
    console_->Status(ended ? "" : ProgressBar(job, console_->columns()));
    if (ended && state_changed) console_->Line(ProgressLine(job));
    return;
  }
  if (!state_changed && now - last_line_ < kPlainInterval) return;
  last_line_ = now;
  console_->Line(ProgressLine(job));
}

}  // namespace muster
