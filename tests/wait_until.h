// Waiting in tests: the one place under tests/ that may sleep (a tidy rule).
//
// A test waits for what it needs; the deadline only bounds a hang and is never met when all is
// well. Where the state lies under a mutex of the test, absl::Condition is better still.
// Thread-safe.
#ifndef MUSTER_TESTS_WAIT_UNTIL_H_
#define MUSTER_TESTS_WAIT_UNTIL_H_

#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/check.h"

namespace muster {

// Longest wait for anything; a machine under load is slow.
inline constexpr absl::Duration kTestPatience = absl::Seconds(20);

// Asks `predicate` again and again. Whether it held before `patience` was over.
template <typename Predicate>
[[nodiscard]] bool WaitUntil(Predicate predicate, absl::Duration patience = kTestPatience) {
  constexpr absl::Duration kPause = absl::Milliseconds(2);
  const absl::Time deadline = absl::Now() + patience;
  while (!predicate()) {
    if (absl::Now() >= deadline) return false;
    absl::SleepFor(kPause);
  }
  return true;
}

// For tests that are about time itself, or that move an action to another moment of what goes on in
// other threads. `why` says which; the test must hold however long this takes.
inline void LetTimePass(absl::Duration duration, absl::string_view why) {
  MUSTER_CHECK(!why.empty()) << "say why the test needs time to pass";
  absl::SleepFor(duration);
}

}  // namespace muster

#endif  // MUSTER_TESTS_WAIT_UNTIL_H_
