#include "collectives/engine/registered_calls.h"

#include <gtest/gtest.h>

namespace muster {
namespace {

Fingerprint Call(uint64_t sequence, int64_t count) {
  Fingerprint call;
  call.sequence = sequence;
  call.count = count;
  return call;
}

TEST(RegisteredCallsTest, GoesByTheLastCallOfTheKind) {
  RegisteredCalls calls;
  EXPECT_FALSE(calls.Contains(Call(1, 10)));
  calls.Note(Call(1, 10), true);
  calls.Note(Call(2, 20), false);
  EXPECT_TRUE(calls.Contains(Call(3, 10)));
  EXPECT_FALSE(calls.Contains(Call(3, 20)));
  calls.Note(Call(3, 10), false);
  EXPECT_FALSE(calls.Contains(Call(4, 10)));
}

TEST(RegisteredCallsTest, ForgetsAllRatherThanGrowWithoutBound) {
  RegisteredCalls calls;
  const auto most = static_cast<int64_t>(RegisteredCalls::kMostKinds);
  for (int64_t kind = 0; kind < most; ++kind) calls.Note(Call(1, kind), true);
  calls.Note(Call(2, 0), true);  // A known one makes no room.
  EXPECT_TRUE(calls.Contains(Call(3, most - 1)));
  calls.Note(Call(3, most), true);
  EXPECT_TRUE(calls.Contains(Call(4, most)));
  EXPECT_FALSE(calls.Contains(Call(4, 0)));
}

}  // namespace
}  // namespace muster
