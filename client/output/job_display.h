// Shows a job while it runs: a status line with a progress bar on a terminal, otherwise a line when
// something changes and every few seconds. Thread-compatible.
#ifndef MUSTER_CLIENT_OUTPUT_JOB_DISPLAY_H_
#define MUSTER_CLIENT_OUTPUT_JOB_DISPLAY_H_

#include <cstdint>
#include <string>

#include "absl/time/time.h"
#include "client/output/console.h"
#include "muster/v1/coordinator.pb.h"

namespace muster {

class JobDisplay {
 public:
  // `json`: each update is one line of JSON and nothing else is shown. `console` must outlive this.
  JobDisplay(Console* console, bool json) : console_(console), json_(json) {}

  void Update(const v1::Job& job, absl::Time now);

 private:
  Console* const console_;
  const bool json_;
  v1::JobState state_ = v1::JOB_STATE_UNSPECIFIED;
  std::string reason_;
  bool checkpoints_fail_ = false;
  uint64_t newest_epoch_ = 0;  // of the view changes shown
  absl::Time last_line_ = absl::InfinitePast();
};

}  // namespace muster

#endif  // MUSTER_CLIENT_OUTPUT_JOB_DISPLAY_H_
