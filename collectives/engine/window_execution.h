// One operation in shared memory under way: does what a window schedule says, between meets.
//
// Driven by one thread at a time, the one that drives the transport.
#ifndef MUSTER_COLLECTIVES_ENGINE_WINDOW_EXECUTION_H_
#define MUSTER_COLLECTIVES_ENGINE_WINDOW_EXECUTION_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "collectives/engine/operation.h"
#include "collectives/engine/window_plan.h"
#include "collectives/transport/window.h"

namespace muster {

class WindowExecution {
 public:
  // `number` counts the window's operations, the same on all ranks, as is whether all ranks'
  // buffers are `expected_registered`: then even what is small goes the direct way. Poll says
  // `token` at each meet.
  WindowExecution(std::shared_ptr<Operation> operation, Window& window, Rank rank, uint64_t number,
                  bool expected_registered, uint64_t token);

  Operation& operation() const { return *operation_; }
  const std::shared_ptr<Operation>& shared_operation() const { return operation_; }

  // Shows the call to the others and arrives at the first meet. Requires: not begun; all operations
  // before it are done.
  absl::Status Begin();
  bool begun() const { return begun_; }
  // All have met: works on to the next meet, or the end. INVALID_ARGUMENT: a rank has called
  // something else. UNAVAILABLE: a rank has closed.
  absl::Status Met();
  bool done() const { return done_; }
  // All ranks' buffers were registered, as far as the direct way needs it. Requires: done().
  bool was_registered() const { return registered_; }
  // That makes a difference for calls of the kind, and was not expected. Requires: done().
  bool registration_surprised() const { return plan_.small && registered_ != expected_registered_; }

  // Peers on which it waits now.
  std::vector<Rank> WaitsFor() const { return window_.Missing(); }

 private:
  // All ranks have called the same.
  absl::Status Compare() const;
  // All ranks have registered what the direct way needs.
  bool AllRegistered() const;
  // Has the caches load the beginnings of what the next interval reads.
  void FetchSources() const;
  absl::Status RunInterval();
  // Spares those who take others' pieces the first touch of each page of theirs.
  void MapOthersPages();
  // Takes pieces of the plan's shared steps, first of this rank's, until none are left.
  absl::Status RunShared();
  // Does elements [begin, begin + count) of a step.
  absl::Status Run(const WindowStep& step, int64_t begin, int64_t count);
  // The output of some rank is its input.
  bool AnyInPlace() const;
  std::byte* Address(const WindowSlice& slice) const;

  const std::shared_ptr<Operation> operation_;
  const WindowPlan& plan_;
  Window& window_;
  const Rank rank_;
  const uint64_t token_;
  const int parity_;
  const int64_t element_bytes_;
  const bool expected_registered_;
  const bool small_;
  bool registered_ = false;
  // What is being run: steps by interval, or else a schedule that makes them one by one.
  const std::vector<std::vector<WindowStep>>* steps_ = nullptr;
  std::optional<WindowSchedule> staged_;
  bool shared_ = false;   // or else pieces; waits for the last of them
  bool streams_ = false;  // results bypass the caches
  int64_t interval_ = 0;
  bool begun_ = false;
  bool done_ = false;
  absl::InlinedVector<const void*, 8> sources_;
  absl::InlinedVector<void*, 8> targets_;
};

}  // namespace muster

#endif  // MUSTER_COLLECTIVES_ENGINE_WINDOW_EXECUTION_H_
