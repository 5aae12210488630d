// Checks for bugs in Muster itself: an invariant that only a programming error can break.
//
// MUSTER_CHECK(cond) << "context";   stays on in every build, prints file, line and text, aborts.
// What the outside world can cause (input, network, files) is never checked but returned as an
// absl::Status.
#ifndef MUSTER_BASE_CHECK_H_
#define MUSTER_BASE_CHECK_H_

#include <cstdio>
#include <cstdlib>
#include <sstream>

namespace muster::internal {

// Collects the message of a failed check and aborts when destroyed.
class CheckFailure {
 public:
  CheckFailure(const char* file, int line, const char* condition) {
    stream_ << file << ":" << line << ": check failed: " << condition << " ";
  }
  [[noreturn]] ~CheckFailure() {
    std::fprintf(stderr, "%s\n", stream_.str().c_str());
    std::fflush(stderr);
    std::abort();
  }
  std::ostream& stream() { return stream_; }

 private:
  std::ostringstream stream_;
};

// Lets the conditional operator below yield void on both sides.
struct Voidify {
  void operator&(std::ostream&) const {}
};

}  // namespace muster::internal

#define MUSTER_CHECK(condition)                 \
  (condition) ? (void)0                         \
              : ::muster::internal::Voidify() & \
                    ::muster::internal::CheckFailure(__FILE__, __LINE__, #condition).stream()

#define MUSTER_CHECK_EQ(a, b) MUSTER_CHECK((a) == (b)) << "(" << (a) << " vs " << (b) << ") "
#define MUSTER_CHECK_LE(a, b) MUSTER_CHECK((a) <= (b)) << "(" << (a) << " vs " << (b) << ") "
#define MUSTER_CHECK_LT(a, b) MUSTER_CHECK((a) < (b)) << "(" << (a) << " vs " << (b) << ") "
#define MUSTER_CHECK_GE(a, b) MUSTER_CHECK((a) >= (b)) << "(" << (a) << " vs " << (b) << ") "

#endif  // MUSTER_BASE_CHECK_H_
