// What a daemon writes to its log, as the launcher shows it to a person.
#include "base/check.h"
#include "base/text.h"
#include "client/launcher/log_view.h"
#include "tests/fuzz/targets.h"

namespace muster {
namespace {

FuzzOutcome Run(absl::string_view bytes) {
  LineSplitter splitter;
  std::vector<std::string> lines = splitter.Add(bytes.substr(0, bytes.size() / 2));
  for (std::string& line : splitter.Add(bytes.substr(bytes.size() / 2))) {
    lines.push_back(std::move(line));
  }
  lines.push_back(splitter.Rest());
  for (const std::string& line : lines) {
    const LogLine shown = ReadLogLine(line);
    // A line must not steer the terminal.
    MUSTER_CHECK(TextForPeople(shown.text, shown.text.size()) == shown.text) << shown.text;
  }
  return FuzzOutcome::kAccepted;
}

std::vector<std::string> Seeds() {
  return {
      "{\"time\":\"2024-05-06T12:34:56.789012Z\",\"level\":\"warning\",\"event\":\"late\","
      "\"text\":\"peer is late\",\"fields\":{\"peer\":\"worker-1\",\"waited_ms\":7},"
      "\"rank\":1,\"epoch\":3,\"step\":120}\n",
      "terminate called after throwing an instance of 'std::bad_alloc'\n"};
}

}  // namespace

const FuzzTarget kLogLineTarget = {
    .name = "log_line", .run = Run, .seeds = Seeds, .max_bytes = 2'048, .refuses = false};

}  // namespace muster
