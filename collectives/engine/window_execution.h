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
  // `number` counts the window's operations, the same on all ranks. Poll says `token` at each meet.
  WindowExecution(std::shared_ptr<Operation> operation, Window& window, Rank rank, uint64_t number,
                  uint64_t token);

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
  absl::Status Run(const WindowStep& step);
  std::byte* Address(const WindowSlice& slice) const;

  const std::shared_ptr<Operation> operation_;
  const WindowPlan& plan_;
  Window& window_;
  const Rank rank_;
  const uint64_t token_;
  const int parity_;
  const int64_t element_bytes_;
  // What is being run: steps by interval, or else a schedule that makes them one by one.
  const std::vector<std::vector<WindowStep>>* steps_ = nullptr;
  std::optional<WindowSchedule> staged_;
  int64_t interval_ = 0;
  bool begun_ = false;
  bool done_ = false;
  absl::InlinedVector<const void*, 8> sources_;
  absl::InlinedVector<void*, 8> targets_;
};

}  // namespace muster

#endif  // MUSTER_COLLECTIVES_ENGINE_WINDOW_EXECUTION_H_
