#include "client/output/console.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace muster {
namespace {

constexpr int kDefaultColumns = 100;
constexpr absl::string_view kEraseLine = "\r\033[K";

}  // namespace

Console::~Console() { Status(""); }

int Console::columns() const {
  winsize size = {};
  if (is_terminal_ && ioctl(fileno(stream_), TIOCGWINSZ, &size) == 0 && size.ws_col > 0) {
    return size.ws_col;
  }
  return kDefaultColumns;
}

void Console::Line(absl::string_view text) {
  if (status_.empty()) {
    Write(absl::StrCat(text, "\n"));
  } else {
    Write(absl::StrCat(kEraseLine, text, "\n", status_));
  }
}

void Console::Status(absl::string_view text) {
  if (!is_terminal_) return;
  const std::string next(text.substr(0, static_cast<size_t>(columns() - 1)));
  if (next == status_) return;
  status_ = next;
  Write(absl::StrCat(kEraseLine, status_));
}

void Console::Write(absl::string_view text) {
  if (!write_status_.ok()) return;
  if (std::fwrite(text.data(), 1, text.size(), stream_) != text.size() ||
      std::fflush(stream_) != 0) {
    write_status_ =
        absl::UnavailableError(absl::StrCat("cannot write the output: ", std::strerror(errno)));
  }
}

bool IsTerminal(std::FILE* stream) { return isatty(fileno(stream)) != 0; }

}  // namespace muster
