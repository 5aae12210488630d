// Where a command's output goes: a terminal with a status line that stays at the bottom, or a plain
// stream of lines.
//
// Thread-compatible. The first write error is remembered and ends all output: the reader may have
// gone (`muster watch | head`), or the disk may be full.
#ifndef MUSTER_CLIENT_OUTPUT_CONSOLE_H_
#define MUSTER_CLIENT_OUTPUT_CONSOLE_H_

#include <cstdio>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace muster {

class Console {
 public:
  // `stream` must outlive the console. `is_terminal`: redraw a status line and use colours.
  Console(std::FILE* stream, bool is_terminal) : stream_(stream), is_terminal_(is_terminal) {}
  // Wipes the status line.
  ~Console();
  Console(const Console&) = delete;
  Console& operator=(const Console&) = delete;

  bool is_terminal() const { return is_terminal_; }
  // Width of the terminal now; 100 if it is none.
  int columns() const;

  // Writes one line (above the status line) at once.
  void Line(absl::string_view text);
  // Replaces the status line; empty: none. Does nothing without a terminal. Text beyond the width
  // is cut: a status line must not wrap.
  void Status(absl::string_view text);

  // UNAVAILABLE with the system's words if some output could not be written.
  const absl::Status& write_status() const { return write_status_; }

 private:
  void Write(absl::string_view text);

  std::FILE* const stream_;
  const bool is_terminal_;
  std::string status_;
  absl::Status write_status_;
};

// Whether a person reads the stream.
bool IsTerminal(std::FILE* stream);

}  // namespace muster

#endif  // MUSTER_CLIENT_OUTPUT_CONSOLE_H_
