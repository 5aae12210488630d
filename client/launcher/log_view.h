// Turns the JSON lines of a daemon (base/log.h) into lines for a person. Pure and thread-safe,
// except that one LineSplitter belongs to one stream.
#ifndef MUSTER_CLIENT_LAUNCHER_LOG_VIEW_H_
#define MUSTER_CLIENT_LAUNCHER_LOG_VIEW_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "base/log.h"

namespace muster {

struct LogLine {
  LogLevel level = LogLevel::kInfo;
  std::string text;  // without the process's name
};

// "12:34:56.789 W late: peer is late peer=worker-1 (rank 1, epoch 3, step 120)". A line that is no
// log line (a crash, a sanitizer's report) is shown as it is and counts as an error.
LogLine ReadLogLine(absl::string_view line);

// Cuts a stream into lines.
class LineSplitter {
 public:
  // The lines that `bytes` completes. A line beyond 64 KiB is cut into several.
  std::vector<std::string> Add(absl::string_view bytes);
  // What is left without a newline; empties the splitter.
  std::string Rest();

 private:
  std::string partial_;
};

}  // namespace muster

#endif  // MUSTER_CLIENT_LAUNCHER_LOG_VIEW_H_
