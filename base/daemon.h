// What every daemon's main does alike: termination signals on a thread of their own, and settings
// of libraries that cost speed otherwise.
#ifndef MUSTER_BASE_DAEMON_H_
#define MUSTER_BASE_DAEMON_H_

#include <functional>
#include <string>
#include <thread>

#include "absl/strings/string_view.h"

namespace muster {

// A check of a flag's value: what is wrong with it, or nothing. A variable of a script that is not
// set must not be taken for a flag that is not given.
std::string NotEmpty(const std::string& value);
// Likewise: what is read into an unsigned number would wrap around.
std::string NotNegative(const std::string& value);

// Opens /dev/null for each of standard input, output and error that is closed: its number would be
// given to the next file or socket, and what is written for a person would go there. Standard
// output is opened for reading, so that an answer that goes nowhere is an error of its writer.
// Call first in main.
void OpenStandardDescriptors();

// Ends a program's output: writes out what standard output still holds and returns `exit_code`, or
// 1 after a line by `program` on standard error if any of it could not be written.
int EndOutput(absl::string_view program, int exit_code);

// Raises the limit of open files to what the system allows this process, at most 2^20. gRPC closes
// a listener for good when accepting a connection finds no descriptor, and the usual 1024 are
// within a port scan's reach. Call before any thread starts.
void RaiseFileLimit();

// Takes back what libraries have set as they were loaded: PSM, which libfabric brings along, ends
// the process with 1 and without a word at Ctrl-C, and with a trace in place of a core when it
// crashes. Signals that are ignored stay so. In a container, whose first process this may be, it
// ends at SIGTERM as elsewhere. A file that would grow beyond its limit (SIGXFSZ) is an error of
// the call that writes it. Call first in main.
void ResetSignals();

// ResetSignals. Keeps large blocks in the process instead of returning them to the system after
// each use, since fresh pages are slow to touch; and turns off the search for deadlocks at each
// lock, which Debian's Abseil is built with. Call first in main.
void TuneProcess();

// Keeps the memory that threads share in one arena, which only grows: other arenas of glibc go back
// to the system when they are empty, whatever TuneProcess has set, and each receive buffer is then
// touched for the first time. For processes that move large amounts of data on few threads. Call
// first in main, after TuneProcess.
void KeepFreedMemory();

// Routes SIGTERM and SIGINT to a thread, so that nothing runs inside a signal handler. The first
// calls `first`; the second ends the process at once with 128 + the signal's number. SIGPIPE is
// ignored.
//
// Construct in main before any other thread starts: they inherit the signal mask.
class SignalThread {
 public:
  // `first` is called with the signal's number, at most once.
  explicit SignalThread(std::function<void(int signal)> first);
  // No call begins afterwards.
  ~SignalThread();
  SignalThread(const SignalThread&) = delete;
  SignalThread& operator=(const SignalThread&) = delete;

 private:
  const std::function<void(int)> first_;
  std::thread thread_;
};

}  // namespace muster

#endif  // MUSTER_BASE_DAEMON_H_
